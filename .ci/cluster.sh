#!/usr/bin/env bash
# The flights demo on the Spark cluster of docker-compose.yml: a worker and a driver are killed at work, and the result files must be
# those of 'make demo', which ran in local mode (level 1: the same bytes). Needs the images of .ci/images.sh and .tidegate/demo/out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export TIDEGATE_IMAGE=tidegate-stages:local TIDEGATE_KAFKA_IMAGE=tidegate-kafka:local TIDEGATE_REDIS_IMAGE=tidegate-redis:local
export TIDEGATE_DEMO_MASTER=spark://spark-master:7077 TIDEGATE_KAFKA_PORT=29092 TIDEGATE_REDIS_PORT=26379 TIDEGATE_SPARK_UI_PORT=28080
expected=.tidegate/demo/out
stages=(ingest departures mean-delay daily)
work=$(mktemp -d)

compose() { docker-compose --ansi never -f docker-compose.yml -f .ci/cluster.yml --project-name tidegate-ci --profile spark "$@"; }
say() { printf -- '--- %s (%d s)\n' "$*" "$SECONDS"; }

clean_up() {
  local code=$?
  [ "$code" = 0 ] || compose logs --no-color --tail 40 || true
  compose down --volumes --timeout 5 >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap clean_up EXIT

container() { compose ps --quiet "$1"; }

state() { docker inspect --format "{{.State.$2}}" "$(container "$1")"; }

# until_within SECONDS WHAT COMMAND...: return once the command says yes.
until_within() {
  local deadline=$((SECONDS + $1)) what=$2
  until "${@:3}"; do
    [ "$SECONDS" -lt "$deadline" ] || { echo ".ci/cluster.sh: not within $1 s: $what" >&2; return 1; }
    sleep 0.5
  done
}

is_healthy() { [ "$(state "$1" Health.Status)" = healthy ]; }
has_ended() { [ "$(state "$1" Status) $(state "$1" ExitCode)" = "exited 0" ]; }
has_executor() {
  docker exec "$(container "$1")" bash -c \
    'exec 3<>/dev/tcp/localhost/9464; printf "GET /metrics HTTP/1.0\r\n\r\n" >&3; grep -q "^tidegate_executors_held 1" <&3'
}

# Kill what runs in a service as a crash would: 'docker kill' would count as a wish of its user, after which nothing starts again.
crash() {
  say "killing $1; ingest so far: $(compose logs --no-color --tail 1 ingest | grep -o 'in [0-9,]*  ordered [0-9,]*' || echo nothing)"
  local pid
  pid=$(state "$1" Pid)
  [ "$pid" != 0 ] || { echo ".ci/cluster.sh: $1 has ended before it could be killed" >&2; return 1; }
  kill -9 "$pid"
}

[ -d "$expected" ] || { echo ".ci/cluster.sh: run 'make demo' first: its results are what this compares with" >&2; exit 1; }
say "the cluster: a master, a worker, four stages"
compose up --detach --no-build >"$work/up.log" 2>&1 || { cat "$work/up.log"; exit 1; }
until_within 300 "departures at work" is_healthy departures
crash spark-worker
until_within 300 "the worker" is_healthy spark-worker
until_within 300 "an executor for departures" has_executor departures
crash departures
say "all stages to the end of what was produced"
for stage in "${stages[@]}"; do until_within 420 "the end of $stage" has_ended "$stage"; done
docker cp "$(container ingest)":/var/lib/tidegate/out "$work/out"
# The lake is filled beside the files, by settings that only 'make demo' gives its queries, and the pictures are drawn by the demo itself.
diff --recursive --brief --exclude lake --exclude "*.svg" "$expected" "$work/out"
[ "$(docker inspect --format '{{.RestartCount}}' "$(container departures)")" -ge 1 ] || { echo ".ci/cluster.sh: nothing was killed" >&2; exit 1; }
say "the same bytes as in local mode: $(find "$work/out" -type f | wc -l) files"
