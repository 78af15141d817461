"""The options of the JVM beside those of a user."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tidegate.platform.spark import options
from tidegate.platform.spark.options import archive_path, java_options


@pytest.mark.parametrize("added", ["", "-Dx=1", "-XX:+UseG1GC", "-XX:+UseParallelGC -Dx=1", "-XX:TieredStopAtLevel=4"])
def test_a_jvm_starts_with_them_and_what_a_user_adds(tmp_path: Path, added: str) -> None:
    """Two collectors are one too many; of other options the last one counts."""
    options = [*java_options(tmp_path, added).split(), *added.split()]
    started = subprocess.run(["java", *options, "-XX:+PrintFlagsFinal", "-version"], capture_output=True, text=True, check=False)
    assert started.returncode == 0, started.stderr
    flags = {words[1]: words[3] for words in (line.split() for line in started.stdout.splitlines()) if len(words) > 3}
    assert [name for name in ("UseSerialGC", "UseG1GC", "UseParallelGC") if flags[name] == "true"] == [
        next((name for name in ("UseG1GC", "UseParallelGC") if name in added), "UseSerialGC")
    ]
    assert flags["TieredStopAtLevel"] == ("4" if "=4" in added else "1")
    # Sizes of a heap are for the collector that they were measured with.
    assert (flags["InitialHeapSize"] == str(2**27)) == (flags["UseSerialGC"] == "true")


def test_jars_that_were_written_again_get_another_class_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The JVM ignores an archive of jars written at another time, as those of a second installation in the same place."""
    monkeypatch.setattr(options, "spark_home", lambda: tmp_path)
    (tmp_path / "jars").mkdir()
    jar = tmp_path / "jars" / "spark.jar"
    jar.touch()
    first = archive_path()
    assert archive_path() == first
    os.utime(jar, ns=(0, jar.stat().st_mtime_ns + 1))
    assert archive_path() != first
    assert archive_path().stem.rpartition("-")[0] == first.stem.rpartition("-")[0]
