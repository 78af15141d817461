# The image of every stage: `docker build -t tidegate .`; the command tells which stage (see docker-compose.yml).
# BASE is a Debian with Python 3.11 or newer; Java and venv are added where it has none.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
RUN python3 -c "import ensurepip" || (apt-get update && apt-get install -y --no-install-recommends python3-venv)
RUN python3 -m venv /opt/tidegate
COPY requirements.lock /src/
# The lock's versions and hashes bind, but its developer tools stay out: they are constraints, not wishes.
RUN cd /src && awk '/^uv==/ {found = 1} found {print} found && !/\\$/ {exit}' requirements.lock > uv.lock \
    && /opt/tidegate/bin/pip install --no-cache-dir --quiet --require-hashes -r uv.lock
COPY pyproject.toml README.md LICENSE /src/
COPY ordering /src/ordering
COPY ingest /src/ingest
COPY query /src/query
COPY sinks /src/sinks
COPY tidegate /src/tidegate
RUN cd /src && UV_SYSTEM_CERTS=1 /opt/tidegate/bin/uv pip install --no-cache --quiet --python /opt/tidegate/bin/python --constraint requirements.lock \
    --config-settings-package 'pyspark:--build-option=--compression=stored' . \
    && /opt/tidegate/bin/uv pip uninstall --quiet --python /opt/tidegate/bin/python uv

FROM ${BASE}
RUN command -v java >/dev/null || (apt-get update && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*)
COPY --from=build /opt/tidegate /opt/tidegate
ENV PATH=/opt/tidegate/bin:$PATH PYTHONUNBUFFERED=1
# Checkpoints, result files and Spark's scratch space live here: mount a volume to keep them.
RUN useradd --create-home --home-dir /var/lib/tidegate tidegate
USER tidegate
WORKDIR /var/lib/tidegate
ENTRYPOINT ["tidegate"]
CMD ["--help"]
