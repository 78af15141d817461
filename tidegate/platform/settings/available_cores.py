"""
Counts the cores that this process may use: the least of its own cores and the limit of each control group (cgroup) above it.

Law: a container that is limited to two cores of a large machine has two, as in Java. A part of a core counts as one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def available_cores(groups: Path = _GROUPS, own: Path = _OWN) -> int:
    """Return the number of cores, at least 1; *groups* is where control groups are mounted, *own* names those of the process."""
    limits = [math.ceil(limit) for limit in _limits(groups, own)]
    return max(1, min([len(os.sched_getaffinity(0)), *limits]))


def _limits(groups: Path, own: Path) -> Iterator[float]:
    """Yield the limits, in cores, of the groups above the process that have one."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        # Version 2: 0::PATH; version 1: NUMBER:cpu,cpuacct:PATH.
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            yield from filter(None, (_read_limit(folder / "cpu.max") for folder in _folders(groups, path)))
        elif "cpu" in controllers.split(","):
            names = "cpu.cfs_quota_us", "cpu.cfs_period_us"
            yield from filter(None, (_read_limit(*(folder / name for name in names)) for folder in _folders(groups / "cpu", path)))


def _folders(root: Path, path: str) -> list[Path]:
    # Within a container the path may be the host's and not exist there; the container's own group is then the root.
    inner = root / path.strip("/")
    return [folder for folder in (inner, *inner.parents) if folder.is_relative_to(root)]


def _read_limit(*files: Path) -> float | None:
    """Return quota / period from one file (version 2) or two (version 1); None if there is no limit."""
    try:
        quota, period = (float(word) for file in files for word in file.read_text().split())
    except (OSError, ValueError):  # no file; or "max": no limit
        return None
    return quota / period if quota > 0 and period > 0 else None
