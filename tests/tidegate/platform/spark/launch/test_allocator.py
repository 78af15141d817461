"""Which allocator workers get: jemalloc where it is installed, what the user has chosen wherever there is something."""

from __future__ import annotations

import ctypes.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.platform.spark.launch import allocator
from tidegate.platform.spark.launch.allocator import FreedMemory, allocator_environment, give_back

COLUMNS = {"ARROW_DEFAULT_MEMORY_POOL": "system", "NUMPY_MADVISE_HUGEPAGE": "0"}


@pytest.fixture
def jemalloc(monkeypatch: pytest.MonkeyPatch) -> str:
    """A machine with jemalloc."""
    monkeypatch.setattr(allocator, "find_jemalloc", lambda: "libjemalloc.so.2")
    return "libjemalloc.so.2"


def test_jemalloc_is_preloaded_where_the_machine_has_it(jemalloc: str) -> None:
    """By its name alone; it has as many heaps as a worker has busy threads, and keeps what was freed."""
    told = allocator_environment({})
    assert told == COLUMNS | {"LD_PRELOAD": jemalloc, "MALLOC_CONF": told["MALLOC_CONF"]}
    assert {"narenas:4", "dirty_decay_ms:-1"} <= set(told["MALLOC_CONF"].split(","))


def test_what_else_is_preloaded_or_tuned_stays(jemalloc: str) -> None:
    """The user's own come first."""
    told = allocator_environment({"LD_PRELOAD": "/lib/clock.so", "MALLOC_CONF": "narenas:1"})
    assert told == COLUMNS | {"LD_PRELOAD": f"/lib/clock.so {jemalloc}", "MALLOC_CONF": "narenas:1"}


@pytest.mark.parametrize("library", ["/usr/lib/libtcmalloc.so.4", "libmimalloc.so", "/opt/libjemalloc.so.1"])
def test_an_allocator_that_the_user_chose_stays(jemalloc: str, library: str) -> None:
    """Two allocators in one process would fight."""
    assert allocator_environment({"LD_PRELOAD": library}) == {}


def test_without_jemalloc_the_c_library_is_told_to_keep_columns_and_no_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the user has tuned it."""
    monkeypatch.setattr(allocator, "find_jemalloc", lambda: None)
    kept = "glibc.malloc.mmap_threshold=268435456:glibc.malloc.trim_threshold=268435456"
    assert allocator_environment({}) == COLUMNS | {"GLIBC_TUNABLES": f"glibc.malloc.mxfast=0:{kept}"}
    assert allocator_environment({"ARROW_DEFAULT_MEMORY_POOL": "mimalloc"})["ARROW_DEFAULT_MEMORY_POOL"] == "mimalloc"
    assert allocator_environment({"GLIBC_TUNABLES": "glibc.malloc.check=1"}) == COLUMNS | {"GLIBC_TUNABLES": "glibc.malloc.check=1"}


def test_a_program_starts_with_what_is_told_on_this_machine_and_without_a_word() -> None:
    """The loader complains of what it does not find on standard error."""
    program = "import ctypes; print(hasattr(ctypes.CDLL(None), 'mallctl'))"
    told = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **allocator_environment({})}, capture_output=True, text=True, check=True
    )
    assert (told.stdout.strip(), told.stderr) == (str(ctypes.util.find_library("jemalloc") is not None), "")


def test_the_loader_is_asked_for_jemalloc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its newest name, as ldconfig lists it; where there is no ldconfig, whoever knows."""
    listing = tmp_path / "ldconfig"
    listing.write_text("#!/bin/sh\necho '2 libs found'\nprintf '\\tlibjemalloc.so.2 (libc6,x86-64) => /lib/libjemalloc.so.2\\n'\n")
    listing.chmod(0o755)
    monkeypatch.setattr(allocator, "_LDCONFIG", listing)
    assert allocator.find_jemalloc() == "libjemalloc.so.2"
    listing.write_text("#!/bin/sh\necho '1 libs found'\n")
    assert allocator.find_jemalloc() is None
    monkeypatch.setattr(allocator, "_LDCONFIG", tmp_path / "nowhere")
    monkeypatch.setattr(ctypes.util, "find_library", {"jemalloc": "libjemalloc.so.2"}.get)
    assert allocator.find_jemalloc() == "libjemalloc.so.2"


BURST = """\
from pathlib import Path
from tidegate.platform.spark.launch.allocator import give_back

def resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

before = resident_mb()
burst = [bytearray(1_000_000) for _ in range(300)]
pins = [bytearray(2_000) for _ in range(100)]
peak = resident_mb()
del burst
kept = resident_mb()
give_back()
print(before, peak, kept, resident_mb())
"""


def test_memory_of_a_burst_is_kept_until_it_is_given_back() -> None:
    """By the allocator that workers have on this machine."""
    environment = {**os.environ, **allocator_environment({})}
    told = subprocess.run([sys.executable, "-c", BURST], env=environment, capture_output=True, text=True, check=True)
    before, peak, kept, after = map(float, told.stdout.split())
    assert peak > before + 290
    assert kept > before + 200, "a busy worker would get it again at once"
    assert after < before + 60


def test_only_a_silent_process_gives_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks every twenty seconds: it is silent if it was busy for less than a tenth of them."""
    given = list[float]()
    monkeypatch.setattr(allocator, "give_back", lambda: given.append(1))
    memory = FreedMemory(100.0, 5.0)
    assert not memory.give_back_in_silence(119.0, 5.1), "it has just looked"
    assert not memory.give_back_in_silence(121.0, 8.0), "it was busy"
    assert not memory.give_back_in_silence(140.0, 8.1)
    assert memory.give_back_in_silence(142.0, 8.5)
    assert given == [1]


def test_every_allocator_lets_itself_be_asked() -> None:
    """Nothing happens where nothing is free."""
    give_back()
