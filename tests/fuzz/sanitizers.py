"""
The parts in C, compiled with the address and undefined-behaviour sanitizers of gcc, and how a process is started that loads them.

Law: a read or write outside of what was allocated, and what C leaves undefined, end the process with a report on standard error.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))
import hatch_build  # noqa: E402  # the list of parts

# In the environment of a process that is to load the sanitized parts: their folder.
PARTS_FOLDER = "TIDEGATE_FUZZ_PARTS"
FLAGS = ["-g", "-O1", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-fno-omit-frame-pointer"]
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
# All parts that Python calls with payloads. That of Kafka has a program of its own.
PARTS = tuple(source for source in hatch_build.PARTS if source.parent.name != "kafka")
_KAFKA = "tests/fuzz/kafka_pieces.c"


def has_compiler() -> bool:
    """Return whether there is a gcc with both sanitizers."""
    try:
        return Path(_runtime("libasan.so")).is_absolute() and Path(_runtime("libubsan.so")).is_absolute()
    except OSError:
        return False


def compile_parts(folder: Path) -> None:
    """Compile the parts that Python calls, and the program ``kafka_pieces``, into *folder*."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in PARTS:
        target = folder / hatch_build.PARTS[source].name
        _compile([*SANITIZE, "-fPIC", "-shared", str(ROOT / source), "-o", str(target), "-lm"])
    _compile([*SANITIZE, str(ROOT / _KAFKA), "-o", str(folder / "kafka_pieces"), "-ldl"])


def _compile(arguments: list[str]) -> None:
    subprocess.run(["gcc", *FLAGS, *arguments], check=True)


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a Python process that loads the parts of *folder*."""
    return os.environ | {
        PARTS_FOLDER: str(folder),
        "LD_PRELOAD": f"{_runtime('libasan.so')}:{_runtime('libubsan.so')}",
        # Python and its libraries keep memory until the process ends; that is no leak of ours.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        # Pools would hide the edges of what is allocated.
        "PYTHONMALLOC": "malloc",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
    }


def _runtime(name: str) -> str:
    answer = subprocess.run(["gcc", f"-print-file-name={name}"], stdout=subprocess.PIPE, text=True, check=False)
    return os.path.realpath(answer.stdout.strip()) if "/" in answer.stdout else ""
