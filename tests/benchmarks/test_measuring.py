"""Whose CPU seconds are whose: processes are told apart whatever they were before."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from benchmarks.measuring import Meter


def until(met: Callable[[], bool]) -> None:
    """Wait for something that comes soon."""
    deadline = time.monotonic() + 30
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def sampled(meter: Meter) -> None:
    """Wait for one more sample, begun after now."""
    count = len(meter.samples)
    until(lambda: len(meter.samples) >= count + 2)


def test_a_launcher_script_that_becomes_the_jvm_is_the_jvm(tmp_path: Path) -> None:
    """spark-class is a shell first; what it was then says nothing."""
    bash = shutil.which("bash")
    assert bash is not None
    java = tmp_path / "java"
    java.symlink_to(bash)
    command = [bash, "-c", 'read line; exec "$0" -c "read line; true"', str(java)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        meter = Meter(process.pid)
        sampled(meter)
        process.stdin.write("go\n")
        process.stdin.flush()
        until(lambda: psutil.Process(process.pid).name() == "java")
        meter.stop()
        process.stdin.close()
    assert list(meter.cpu_s) == ["jvm"]


def test_a_process_that_has_ended_stays_what_it_was() -> None:
    """Nobody has waited for it yet: it has CPU seconds, but no command line."""
    with subprocess.Popen([sys.executable, "-c", "input()", "pyspark.daemon"], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        meter = Meter(process.pid)
        sampled(meter)
        process.stdin.close()
        until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
        meter.stop()
    assert list(meter.cpu_s) == ["python worker"]
