# The image of every stage: `docker build -t tidegate .`; the command tells which stage (see docker-compose.yml).
# BASE is a Debian with Python 3.11 or newer; Java and venv are added where it has none.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
LABEL tidegate.image=build
# UV_SYSTEM_CERTS: trust whom the base trusts, as pip does. UV_COMPILE_BYTECODE: the stage's user may write none there, so that each
# process would compile all that it imports.
ENV UV_SYSTEM_CERTS=1 UV_NO_CACHE=1 UV_COMPILE_BYTECODE=1 VIRTUAL_ENV=/opt/tidegate
RUN python3 -c "import ensurepip" || (apt-get update && apt-get install -y --no-install-recommends python3-venv)
RUN python3 -m venv /opt/tidegate && python3 -m venv /opt/uv
WORKDIR /src
COPY requirements.lock pyproject.toml ./
RUN awk '/^uv==/ {found = 1} found {print} found && !/\\$/ {exit}' requirements.lock > uv.lock \
    && /opt/uv/bin/pip install --no-cache-dir --quiet --require-hashes -r uv.lock
# What stores need, by pyproject.toml's names: --build-arg EXTRAS="postgres delta".
ARG EXTRAS=""
# The lock's versions and hashes bind, but its developer tools stay out: they are constraints, not wishes.
RUN /opt/uv/bin/uv pip install --quiet --constraint requirements.lock \
    --config-settings-package 'pyspark:--build-option=--compression=stored' -r pyproject.toml ${EXTRAS:+$(printf -- '--extra %s ' $EXTRAS)}
# The native part of the Kafka path (hatch_build.py): without a compiler everything works, but slower.
RUN command -v cc >/dev/null || (apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev)
COPY README.md LICENSE hatch_build.py ./
COPY ordering ordering
COPY ingest ingest
COPY query query
COPY sinks sinks
COPY tidegate tidegate
# What `tidegate demo` runs.
COPY examples/flights examples/flights
COPY tests/support/oracle.py tests/support/story.py tests/support/
RUN /opt/uv/bin/uv pip install --quiet --no-deps --build-constraint requirements.lock .

FROM ${BASE}
LABEL tidegate.image=stages
# Java runs Spark; jemalloc saves the workers a third of their CPU.
RUN packages="$(command -v java >/dev/null || echo openjdk-17-jre-headless) $(ldconfig -p | grep -q libjemalloc || echo libjemalloc2)"; \
    [ "$packages" = " " ] || (apt-get update && apt-get install -y --no-install-recommends $packages && rm -rf /var/lib/apt/lists/*)
COPY --from=build /opt/tidegate /opt/tidegate
ENV PATH=/opt/tidegate/bin:$PATH PYTHONUNBUFFERED=1
# Checkpoints, result files and Spark's scratch space live here: mount a volume to keep them.
RUN useradd --create-home --home-dir /var/lib/tidegate tidegate && install -d -o tidegate /var/cache/tidegate
USER tidegate
WORKDIR /var/lib/tidegate
# Not in the home, over which a volume lies: the class archive (180 MB) halves the CPU of a JVM's start.
ENV XDG_CACHE_HOME=/var/cache/tidegate
RUN python -m tidegate.platform.spark.class_archive
ENTRYPOINT ["tidegate"]
CMD ["--help"]
