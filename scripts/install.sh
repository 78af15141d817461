#!/usr/bin/env bash
# Make .venv with exactly what requirements.lock names, and this project in it, editable. Run by 'make install'.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Tidegate needs Python 3.11 or newer; set PYTHON=... to name one" >&2; exit 1; }
"$python" -m venv .venv
pip=(.venv/bin/python -m pip --disable-pip-version-check)

# uv reads its own variables only: hand it what pip was told.
export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-${UV_INDEX_URL:-${PIP_INDEX_URL:-}}}"
[ -n "$UV_DEFAULT_INDEX" ] || unset UV_DEFAULT_INDEX
export SSL_CERT_FILE="${SSL_CERT_FILE:-${PIP_CERT:-}}"
[ -n "$SSL_CERT_FILE" ] || unset SSL_CERT_FILE

export UV_SYSTEM_CERTS=1  # trust whom this machine trusts, as pip does

# Where Python may not write its bytecode itself, every process would compile all it imports anew.
compile=()
[ -z "${PYTHONDONTWRITEBYTECODE:-}" ] || compile=(--compile-bytecode)

with_uv() {
  awk '/^uv==/ {found = 1} found {print} found && !/\\$/ {exit}' requirements.lock > .venv/uv.lock
  "${pip[@]}" install --quiet --require-hashes -r .venv/uv.lock
  # pyspark comes as source, 450 MB of jars: packing them into a wheel uncompressed saves 27 of 37 seconds.
  .venv/bin/uv pip install --quiet --python .venv/bin/python --require-hashes -r requirements.lock "${compile[@]}" \
    --config-settings-package 'pyspark:--build-option=--compression=stored'
}
with_uv || { echo "uv could not install from the lock; trying pip, which is slower" >&2; "${pip[@]}" install --quiet --require-hashes -r requirements.lock; }
"${pip[@]}" install --quiet --no-deps --no-build-isolation --editable .
echo "recording which classes Spark loads, so that every job starts faster ..."
.venv/bin/python -m tidegate.platform.spark.class_archive
