"""The parts in C are used only if they were compiled from the sources beside them."""

from __future__ import annotations

import shutil
from pathlib import Path

import hatch_build
from tidegate.basics.native_parts import open_part

SOURCE = Path("part.c")


def _compile(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(hatch_build, "ROOT", folder)
    assert hatch_build.compile_part(SOURCE, folder / "_part.so"), "the machine has a compiler"


def test_a_part_of_these_sources_is_used(tmp_path, monkeypatch):
    """What was just compiled is opened, also where its sources did not come along."""
    (tmp_path / SOURCE).write_text("int answer(void) { return 42; }\n")
    _compile(tmp_path, monkeypatch)
    assert open_part(tmp_path, "_part", {}).answer() == 42
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(tmp_path / "_part.so", alone)
    assert open_part(alone, "_part", {}).answer() == 42


def test_a_part_of_other_sources_is_not_used_and_that_is_said(tmp_path, monkeypatch, caplog):
    """After an update of a checkout without make install, the slow path gives the same results; the old part could crash."""
    (tmp_path / SOURCE).write_text("int answer(void) { return 42; }\n")
    _compile(tmp_path, monkeypatch)
    (tmp_path / "part.h").write_text("/* a new header */\n")
    assert open_part(tmp_path, "_part", {}) is None
    assert "make install" in caplog.text


def test_a_part_that_is_not_there_is_no_error(tmp_path):
    """Without a compiler there are no parts."""
    assert open_part(tmp_path, "_part", {}) is None
