"""
Which memory allocator the workers run on: jemalloc where the machine has it.

Records are allocated by the thread that works and freed by librdkafka's, or the other way round, four pieces of memory an
event. The C library's allocator takes a lock and sweeps its lists for each; jemalloc takes a third of the job's CPU less,
and the C library a sixth less without lists of small pieces (docs/performance.md).

Law: results do not depend on it, what a user has preloaded or tuned stays, and nothing fails where there is no jemalloc.
"""

from __future__ import annotations

import ctypes.util
from collections.abc import Mapping

_ALLOCATORS = "jemalloc", "tcmalloc", "mimalloc"
# As many heaps as a worker has busy threads: one for each of librdkafka's threads would cost memory.
_JEMALLOC = "narenas:4"
# Largest piece that is kept in lists which the frees of other threads must sweep up.
_C_LIBRARY = "glibc.malloc.mxfast=0"


def allocator_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """
    Return what a worker's environment needs beyond *environment* for the best allocator there is.

    jemalloc is named without a folder: each machine looks for it when a worker starts there.
    """
    before = environment.get("LD_PRELOAD", "")
    if any(name in before for name in _ALLOCATORS):
        return {}
    if library := ctypes.util.find_library("jemalloc"):
        return {"LD_PRELOAD": f"{before} {library}".strip(), "MALLOC_CONF": environment.get("MALLOC_CONF", _JEMALLOC)}
    return {"GLIBC_TUNABLES": environment.get("GLIBC_TUNABLES", _C_LIBRARY)}
