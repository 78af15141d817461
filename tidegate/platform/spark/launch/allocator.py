"""
The memory allocator of the workers: jemalloc if the machine has it, else the C library. Arrow's and numpy's columns come from it too.

One thread allocates the parts of a record and another, librdkafka's, frees them: four allocations an event. For each of them the C library
locks and sweeps its free lists. jemalloc saves a third of the job's CPU; the C library without its lists of small pieces saves a sixth
(docs/reference/costs.md).

A column of a batch has tens of megabytes. Arrow's own allocator and numpy ask for huge pages, which the kernel clears each time. By default
every allocator returns a freed column to the kernel and gets it again, which was 40 % of a query worker's CPU. The settings below keep
freed columns in the process while it works. After some silence it gives them back (:class:`FreedMemory`).

Law: results do not depend on the allocator. An allocator that the user has preloaded or tuned is kept. A missing jemalloc is no error.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import re
import subprocess
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

_ALLOCATORS = "jemalloc", "tcmalloc", "mimalloc"
# As many heaps as a worker has busy threads: one for each thread of librdkafka would cost memory. Freed pages stay with the process, large
# pieces share the heaps with small ones, and a small column may be cut from any free large piece.
_JEMALLOC = "narenas:4,dirty_decay_ms:-1,oversize_threshold:0,lg_extent_max_active_fit:20"
# No piece is kept in the fast lists, which must be swept if another thread frees. Columns of up to 256 MiB stay with the process.
_KEPT_BYTES = 2**28
_C_LIBRARY = f"glibc.malloc.mxfast=0:glibc.malloc.mmap_threshold={_KEPT_BYTES}:glibc.malloc.trim_threshold={_KEPT_BYTES}"
# A process that was busy for less than this part of so many seconds is silent.
_SILENCE_S, _BUSY = 20.0, 0.1
# jemalloc's name for all of its heaps together.
_ALL_HEAPS = 4096
_LDCONFIG = Path("/sbin/ldconfig")
_COLUMNS = {"ARROW_DEFAULT_MEMORY_POOL": "system", "NUMPY_MADVISE_HUGEPAGE": "0"}


def allocator_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to add to a worker's *environment* for the best allocator available."""
    before = environment.get("LD_PRELOAD", "")
    if any(name in before for name in _ALLOCATORS):
        return {}
    columns = {name: environment.get(name, value) for name, value in _COLUMNS.items()}
    # A name without a folder: each machine looks it up when a worker starts.
    if library := find_jemalloc():
        return {**columns, "LD_PRELOAD": f"{before} {library}".strip(), "MALLOC_CONF": environment.get("MALLOC_CONF", _JEMALLOC)}
    return {**columns, "GLIBC_TUNABLES": environment.get("GLIBC_TUNABLES", _C_LIBRARY)}


def find_jemalloc() -> str | None:
    """Return the name by which this machine's loader finds jemalloc; None if it has none."""
    if not _LDCONFIG.exists():
        return ctypes.util.find_library("jemalloc")
    # Where ldconfig knows of none, that function would ask compilers and linkers, for a tenth of a second of each start.
    known = subprocess.run([_LDCONFIG, "-p"], capture_output=True, check=False).stdout.decode(errors="replace")
    found = re.search(r"^\s*(libjemalloc\.so\S*) ", known, re.MULTILINE)
    return found and found[1]


class FreedMemory:
    """
    The freed memory that this process keeps: it goes back to the kernel in silence, so that a burst costs memory for a minute and not for
    ever. A busy process would get it again at once. Clocks are parameters, seconds.
    """

    def __init__(self, now_s: float, cpu_s: float) -> None:
        self._looked_s, self._cpu_s = now_s, cpu_s

    def give_back_in_silence(self, now_s: float, cpu_s: float) -> bool:
        """
        Give it back if the process has done little since the last look, some seconds ago; return whether it has. Called after a task, and
        about once a second in a batch that stays open.
        """
        passed_s, busy_s = now_s - self._looked_s, cpu_s - self._cpu_s
        if passed_s < _SILENCE_S:
            return False
        self._looked_s, self._cpu_s = now_s, cpu_s
        is_silent = busy_s < _BUSY * passed_s
        if is_silent:
            give_back()
        return is_silent


@cache
def freed_memory() -> FreedMemory:
    """Return the one of this process."""
    return FreedMemory(time.monotonic(), time.process_time())


def give_back() -> None:
    """Give the memory that is free in this process back to the kernel, if its allocator can."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallctl"):
        library.mallctl(b"arena.%d.purge" % _ALL_HEAPS, None, None, None, ctypes.c_size_t(0))
    elif hasattr(library, "malloc_trim"):
        library.malloc_trim(ctypes.c_size_t(0))
