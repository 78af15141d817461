"""
The memory allocator of the workers: jemalloc if the machine has it.

One thread allocates a record and another (librdkafka's) frees it, four allocations an event. The C library then locks and sweeps its free
lists for each. jemalloc saves a third of the job's CPU; the C library without its lists of small pieces a sixth (docs/performance.md).

Law: results do not depend on the allocator, a user's preloaded or tuned one stays, and a missing jemalloc is no error.
"""

from __future__ import annotations

import ctypes.util
from collections.abc import Mapping

_ALLOCATORS = "jemalloc", "tcmalloc", "mimalloc"
# As many heaps as a worker has busy threads: one for each thread of librdkafka would cost memory.
_JEMALLOC = "narenas:4"
# Largest piece kept in fast lists, which frees by other threads must sweep: none.
_C_LIBRARY = "glibc.malloc.mxfast=0"


def allocator_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to add to a worker's *environment* for the best allocator available."""
    before = environment.get("LD_PRELOAD", "")
    if any(name in before for name in _ALLOCATORS):
        return {}
    # A name without a folder: each machine looks it up when a worker starts.
    if library := ctypes.util.find_library("jemalloc"):
        return {"LD_PRELOAD": f"{before} {library}".strip(), "MALLOC_CONF": environment.get("MALLOC_CONF", _JEMALLOC)}
    return {"GLIBC_TUNABLES": environment.get("GLIBC_TUNABLES", _C_LIBRARY)}
