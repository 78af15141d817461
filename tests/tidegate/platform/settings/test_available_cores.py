"""The cores of this process: a container's limit counts, not the machine's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidegate.platform.settings.available_cores import available_cores

MACHINE = len(os.sched_getaffinity(0))


def cores_under(place: Path, own: str, files: dict[str, str]) -> int:
    """The cores under the given control groups."""
    (place / "own").write_text(own)
    for name, text in files.items():
        (place / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "groups" / name).write_text(text)
    return available_cores(place / "groups", place / "own")


@pytest.mark.parametrize(
    ("own", "files", "cores"),
    [
        ("0::/\n", {"cpu.max": "100000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "20000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "max 100000\n"}, MACHINE),
        ("0::/a/b\n", {"a/cpu.max": "100000 100000\n", "a/b/cpu.max": "max 100000\n"}, 1),
        ("0::/on/the/host\n", {"cpu.max": "100000 100000\n"}, 1),
        ("4:cpu,cpuacct:/a\n0::/\n", {"cpu/a/cpu.cfs_quota_us": "50000\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, 1),
        ("4:cpu,cpuacct:/a\n", {"cpu/a/cpu.cfs_quota_us": "-1\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, MACHINE),
        ("0::/\n", {"cpu.max": "100000000 1000\n"}, MACHINE),
        ("", {}, MACHINE),
    ],
)
def test_the_least_limit_of_all_groups_counts(tmp_path: Path, own: str, files: dict[str, str], cores: int) -> None:
    """Both versions of control groups; a part of a core is one; no limit leaves the machine's cores."""
    assert cores_under(tmp_path, own, files) == cores


def test_without_control_groups_the_machine_counts(tmp_path: Path) -> None:
    """Another system has no such files."""
    assert available_cores(tmp_path, tmp_path / "none") == MACHINE
