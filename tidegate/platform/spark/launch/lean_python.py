"""
The Python program for Spark's helper processes on this machine: the running Python, without an archive that slows it down.

Spark puts its own copy of PySpark, an archive without compiled modules, before the installed package. Each process then compiles its
imports in 0.8 CPU seconds, and a start needs half a dozen processes. The program removes the archive from the path, and has the job's host
(:mod:`.python_host`) fork the process if there is one.

Law: nothing else changes. If the program cannot be written, Spark gets the running Python.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from tidegate.platform.spark.launch import ask_host

_PROGRAM = """\
#!/bin/sh
# Spark's archives stand first: the installed packages are the same and compiled.
case "$PYTHONPATH" in *pyspark.zip:*-src.zip:*) PYTHONPATH="${{PYTHONPATH#*-src.zip:}}" ;; esac
export PYTHONPATH
[ "$1" = -m ] && [ -S "${{{variable}}}" ] && exec '{python}' -IS '{ask}' "$@"
exec '{python}' "$@"
"""


def lean_python() -> str:
    """Return the path of the program, written if missing."""
    text = _PROGRAM.format(python=sys.executable, variable=ask_host.HOST_VARIABLE, ask=ask_host.__file__)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidegate"
    program = cache / f"python-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if "'" in f"{sys.executable}{ask_host.__file__}" or os.name != "posix":
        return sys.executable
    try:
        if not os.access(program, os.X_OK):
            cache.mkdir(parents=True, exist_ok=True)
            draft = program.with_suffix(f".{os.getpid()}")
            draft.write_text(text)
            draft.chmod(0o755)
            draft.replace(program)
    except OSError:
        return sys.executable
    return str(program)
