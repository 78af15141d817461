"""Jars are used only with exactly the pinned bytes, whoever fetched them; a Maven repository in a folder serves them here."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.platform.stack.jars import Pin, StackError, kafka_pins, resolve

CONTENTS = {("sea", ""): b"the bytes of sea", ("sea", "tests"): b"its tests", ("gate", ""): b"the bytes of gate"}
PINS = [Pin("org.example", name, "1.0", hashlib.sha256(content).hexdigest(), more) for (name, more), content in CONTENTS.items()]


@pytest.fixture(autouse=True)
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Maven repository with three tiny jars, two of them of one version, in a folder."""
    root = tmp_path / "repository"
    for pin, content in zip(PINS, CONTENTS.values(), strict=True):
        jar = root / "org" / "example" / pin.artifact / "1.0" / pin.file_name
        jar.parent.mkdir(parents=True, exist_ok=True)
        jar.write_bytes(content)
    monkeypatch.setenv("TIDEGATE_MAVEN_REPOSITORY", root.as_uri())
    return root


def test_jars_are_fetched_once_and_found_again(tmp_path: Path, repository: Path) -> None:
    """The second call needs no repository any more."""
    folder = resolve(PINS, tmp_path / "jars")
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert found == {f"{'-'.join(filter(None, [name, '1.0', more]))}.jar": content for (name, more), content in CONTENTS.items()}
    repository.rename(tmp_path / "gone")
    assert resolve(PINS, tmp_path / "jars") == folder


def test_a_fetched_jar_with_a_wrong_checksum_is_refused_and_not_kept(tmp_path: Path, repository: Path) -> None:
    """A repository that serves other bytes gets its jar named, and nothing into the cache."""
    (repository / "org/example/gate/1.0/gate-1.0.jar").write_bytes(b"other bytes")
    with pytest.raises(StackError) as refused:
        resolve(PINS, tmp_path / "jars")
    assert refused.value.code == "TG-STACK-CHECKSUM"
    assert "gate-1.0.jar" in refused.value.what
    assert not (tmp_path / "jars").exists()


@pytest.mark.parametrize("change", ["altered", "missing", "added"])
def test_a_cache_that_was_changed_is_refused(tmp_path: Path, change: str) -> None:
    """What lies in the cache is checked at every use: an altered, a missing or an additional jar is named."""
    folder = resolve(PINS, tmp_path / "jars")
    victim = folder / ("extra-1.0.jar" if change == "added" else "sea-1.0.jar")
    victim.unlink() if change == "missing" else victim.write_bytes(b"changed")
    with pytest.raises(StackError) as refused:
        resolve(PINS, folder)
    assert refused.value.code == "TG-STACK-CHECKSUM"
    assert victim.name in refused.value.what


def test_a_jar_that_cannot_be_fetched_is_named(tmp_path: Path) -> None:
    """The error tells which jar, and what may help."""
    with pytest.raises(StackError, match="absent") as failed:
        resolve([Pin("org.example", "absent", "1.0", "0" * 64)], tmp_path / "jars")
    assert failed.value.code == "TG-STACK-RESOLVE"


def test_two_processes_may_resolve_at_once(tmp_path: Path) -> None:
    """Both end with the same, whole folder."""
    program = (
        "import sys, pathlib; from tidegate.platform.stack.jars import Pin, resolve; "
        "resolve([Pin(*pin.split(',')) for pin in sys.argv[2:]], pathlib.Path(sys.argv[1]))"
    )
    pins = [f"{pin.group},{pin.artifact},{pin.version},{pin.sha256},{pin.classifier}" for pin in PINS]
    rivals = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "jars"), *pins]) for _ in range(2)]
    assert [rival.wait(60) for rival in rivals] == [0, 0]
    assert len(list((tmp_path / "jars").iterdir())) == len(PINS)


def test_every_pin_of_kafka_is_complete() -> None:
    """Group, artifact, version and 64 hex digits each; no jar twice; Kafka itself among them."""
    pins = kafka_pins()
    assert all(len(pin.sha256) == 64 and pin.group and pin.artifact and pin.version for pin in pins)
    assert len({pin.file_name for pin in pins}) == len(pins)
    assert "kafka_2.13" in {pin.artifact for pin in pins}
