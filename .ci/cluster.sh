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

# Kill what runs in a service as a crash would: 'docker kill' would count as a wish of its user, after which nothing starts again.
crash() {
  say "killing $1; ingest so far: $(compose logs --no-color --tail 1 ingest | grep -o 'in [0-9,]*  ordered [0-9,]*' || echo nothing)"
  kill -9 "$(docker inspect --format '{{.State.Pid}}' "$(container "$1")")"
}

await() {
  local service=$1 deadline=$((SECONDS + 600))
  until [ "$(docker inspect --format '{{.State.Health.Status}}' "$(container "$service")")" = healthy ]; do
    [ "$SECONDS" -lt "$deadline" ] || { echo ".ci/cluster.sh: $service is not healthy" >&2; return 1; }
    sleep 1
  done
}

until_end() {
  compose run --rm --no-deps -T "$1" "${@:2}" --until-end >"$work/$1.log" 2>&1 || { cat "$work/$1.log"; return 1; }
}

[ -d "$expected" ] || { echo ".ci/cluster.sh: run 'make demo' first: its results are what this compares with" >&2; exit 1; }
say "the cluster: a master, a worker, four stages"
compose up --detach --no-build >"$work/up.log" 2>&1 || { cat "$work/up.log"; exit 1; }
await departures
crash spark-worker
await spark-worker
for stage in "${stages[@]}"; do await "$stage"; done
crash departures
for stage in "${stages[@]}"; do await "$stage"; done
say "all stages to the end of what was produced"
compose stop --timeout 60 "${stages[@]}" >/dev/null 2>&1
until_end ingest ingest flights
until_end departures query /flights/departures.sql --into departures &
until_end mean-delay query /flights/mean_delay.sql --into mean_delay
wait $!
until_end daily query /flights/daily.sql --into daily
docker cp "$(container ingest)":/var/lib/tidegate/out "$work/out"
# The lake is filled beside the files, by settings that only 'make demo' gives its queries.
diff --recursive --brief --exclude lake "$expected" "$work/out"
[ "$(docker inspect --format '{{.RestartCount}}' "$(container departures)")" -ge 1 ] || { echo ".ci/cluster.sh: nothing was killed" >&2; exit 1; }
say "the same bytes as in local mode: $(find "$work/out" -type f | wc -l) files"
