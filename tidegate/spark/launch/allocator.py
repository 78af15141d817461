"""
The memory allocator of the workers: jemalloc if the machine has it, else the C library. Arrow's and numpy's columns come from it too.

One thread allocates a record and another (librdkafka's) frees it, four allocations an event. The C library then locks and sweeps its free
lists for each. jemalloc saves a third of the job's CPU; the C library without its lists of small pieces a sixth (docs/performance.md).

A column of a batch has tens of megabytes. Arrow's own allocator and numpy ask for huge pages, which the kernel clears each time, and every
allocator as it is set up returns a freed column to the kernel and gets it again: that was 40 % of a query worker's CPU. So both are told to
keep what was freed: a worker's memory stays at its peak.

Law: results do not depend on the allocator, a user's preloaded or tuned one stays, and a missing jemalloc is no error.
"""

from __future__ import annotations

import ctypes.util
from collections.abc import Mapping

_ALLOCATORS = "jemalloc", "tcmalloc", "mimalloc"
# As many heaps as a worker has busy threads: one for each thread of librdkafka would cost memory. Freed pages stay with the process, large
# pieces share the heaps, and a small column may be cut from whatever large piece is free.
_JEMALLOC = "narenas:4,dirty_decay_ms:-1,oversize_threshold:0,lg_extent_max_active_fit:20"
# Largest piece kept in fast lists, which frees by other threads must sweep: none. Columns stay with the process, up to 256 MiB.
_KEPT_BYTES = 2**28
_C_LIBRARY = f"glibc.malloc.mxfast=0:glibc.malloc.mmap_threshold={_KEPT_BYTES}:glibc.malloc.trim_threshold={_KEPT_BYTES}"
_COLUMNS = {"ARROW_DEFAULT_MEMORY_POOL": "system", "NUMPY_MADVISE_HUGEPAGE": "0"}


def allocator_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to add to a worker's *environment* for the best allocator available."""
    before = environment.get("LD_PRELOAD", "")
    if any(name in before for name in _ALLOCATORS):
        return {}
    columns = {name: environment.get(name, value) for name, value in _COLUMNS.items()}
    # A name without a folder: each machine looks it up when a worker starts.
    if library := ctypes.util.find_library("jemalloc"):
        return {**columns, "LD_PRELOAD": f"{before} {library}".strip(), "MALLOC_CONF": environment.get("MALLOC_CONF", _JEMALLOC)}
    return {**columns, "GLIBC_TUNABLES": environment.get("GLIBC_TUNABLES", _C_LIBRARY)}
