# The image of every stage: `docker build -t tidegate .`; the command tells which stage (see docker-compose.yml).
# BASE is a Debian with Python 3.11 or newer; Java and venv are added where it has none.
#
# What changes rarely lies below what changes often: the system's packages, the libraries of the lock, the class archive, and on top
# Tidegate itself, a few megabytes. A change of the code ships only that layer.
ARG BASE=python:3.11-slim-bookworm

# The libraries that pyproject.toml asks for, without the rest of it: a new command of ours is no new library.
FROM ${BASE} AS wishes
LABEL tidegate.image=build
COPY pyproject.toml /src/
RUN python3 -c "import json, tomllib; wishes = tomllib.load(open('/src/pyproject.toml', 'rb'))['project']; \
    print('[project]\nname = \"wishes\"\nversion = \"0\"\ndependencies =', json.dumps(wishes['dependencies'])); \
    print('[project.optional-dependencies]', *(f'{name} = {json.dumps(asked)}' for name, asked in wishes['optional-dependencies'].items()), sep='\n')" \
    > /pyproject.toml

FROM ${BASE} AS libraries
LABEL tidegate.image=build
# UV_SYSTEM_CERTS: trust whom the base trusts, as pip does. UV_COMPILE_BYTECODE: the stage's user may write none there, so that each
# process would compile all that it imports.
ENV UV_SYSTEM_CERTS=1 UV_NO_CACHE=1 UV_COMPILE_BYTECODE=1 VIRTUAL_ENV=/opt/tidegate
RUN python3 -c "import ensurepip" || (apt-get update && apt-get install -y --no-install-recommends python3-venv)
RUN python3 -m venv /opt/tidegate && python3 -m venv /opt/uv
WORKDIR /src
COPY requirements.lock ./
RUN awk '/^uv==/ {found = 1} found {print} found && !/\\$/ {exit}' requirements.lock > uv.lock \
    && /opt/uv/bin/pip install --no-cache-dir --quiet --require-hashes -r uv.lock
COPY --from=wishes /pyproject.toml ./
# What stores need, by pyproject.toml's names: --build-arg EXTRAS="postgres delta".
ARG EXTRAS=""
# The lock's versions and hashes bind, but its developer tools stay out: they are constraints, not wishes.
RUN /opt/uv/bin/uv pip install --quiet --constraint requirements.lock \
    --config-settings-package 'pyspark:--build-option=--compression=stored' -r pyproject.toml ${EXTRAS:+$(printf -- '--extra %s ' $EXTRAS)}

# Tidegate itself: the files that its installation adds to the libraries.
FROM libraries AS code
# The native part of the Kafka path (hatch_build.py): without a compiler everything works, but slower.
RUN command -v cc >/dev/null || (apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev)
RUN find /opt/tidegate -type f | sort > /before
COPY pyproject.toml README.md LICENSE hatch_build.py ./
COPY ordering ordering
COPY ingest ingest
COPY query query
COPY sinks sinks
COPY tidegate tidegate
# What `tidegate demo` runs.
COPY examples/flights examples/flights
COPY tests/support/oracle.py tests/support/story.py tests/support/
RUN /opt/uv/bin/uv pip install --quiet --no-deps --build-constraint requirements.lock . \
    && find /opt/tidegate -type f | sort | comm -13 /before - > /added && install -d /code && tar -cf - -T /added | tar -xf - -C /code

FROM ${BASE} AS system
LABEL tidegate.image=build
# Java runs Spark; jemalloc saves the workers a third of their CPU.
RUN packages="$(command -v java >/dev/null || echo openjdk-17-jre-headless) $(ldconfig -p | grep -q libjemalloc || echo libjemalloc2)"; \
    [ "$packages" = " " ] || (apt-get update && apt-get install -y --no-install-recommends $packages && rm -rf /var/lib/apt/lists/*)
COPY --from=libraries /opt/tidegate /opt/tidegate
ENV PATH=/opt/tidegate/bin:$PATH PYTHONUNBUFFERED=1
# Checkpoints, result files and Spark's scratch space live here: mount a volume to keep them.
RUN useradd --create-home --home-dir /var/lib/tidegate tidegate && install -d -o tidegate /var/cache/tidegate
USER tidegate
WORKDIR /var/lib/tidegate
# Not in the home, over which a volume lies: the class archive (180 MB) halves the CPU of a JVM's start.
ENV XDG_CACHE_HOME=/var/cache/tidegate

# The class archive is recorded by the few modules that start Spark: other changes of the code leave it as it is.
FROM system AS archive
LABEL tidegate.image=build
COPY ordering/__init__.py ordering/errors.py ordering/policies.py ordering/ticks.py /src/ordering/
COPY ordering/protocol/__init__.py ordering/protocol/elements.py /src/ordering/protocol/
COPY tidegate/__init__.py /src/tidegate/
COPY tidegate/basics /src/tidegate/basics
COPY tidegate/language/__init__.py /src/tidegate/language/
COPY tidegate/language/expressions/__init__.py /src/tidegate/language/expressions/
COPY tidegate/language/expressions/syntax/__init__.py tidegate/language/expressions/syntax/plain_path.py /src/tidegate/language/expressions/syntax/
COPY tidegate/platform/__init__.py /src/tidegate/platform/
COPY tidegate/platform/stack/__init__.py tidegate/platform/stack/this_folder.py /src/tidegate/platform/stack/
COPY tidegate/platform/observe/__init__.py tidegate/platform/observe/logs.py tidegate/platform/observe/stopping.py tidegate/platform/observe/terminal.py /src/tidegate/platform/observe/
COPY tidegate/platform/settings /src/tidegate/platform/settings
COPY tidegate/platform/spark /src/tidegate/platform/spark
RUN PYTHONPATH=/src python -m tidegate.platform.spark.class_archive

FROM system
LABEL tidegate.image=stages
COPY --from=archive --chown=tidegate /var/cache/tidegate /var/cache/tidegate
COPY --from=code /code/ /
ENTRYPOINT ["tidegate"]
CMD ["--help"]
