"""What a stage closes and estimates itself is noted before it has an effect, and the planner knows it where it must."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from ingest.journal.stage_notes import NoteReader, StageNote, StageNotes
from ingest.offsets import PlannedPosition
from ordering.errors import TidegateError
from tidegate.platform.checkpoint import between_batches

A, B = ("raw", 0), ("raw", 1)
ONE, TWO = (
    StageNote(A, 3, PlannedPosition(7, marks=((5, 1_000),), spans=((3, 900),))),
    StageNote(A, 7, PlannedPosition(9, spans=((3, 900),))),
)
ESTIMATE = StageNote(B, 4, PlannedPosition(4, frontier_us=2_000))


def test_each_note_is_read_once_with_its_facts(tmp_path: Path) -> None:
    """Each task has a file in each batch; whoever reads goes on where it was."""
    reader = NoteReader(tmp_path)
    assert reader.read() == []
    of_a, of_b = StageNotes(tmp_path, 4, 0), StageNotes(tmp_path, 4, 1)
    of_a.add([ONE])
    of_b.add([ESTIMATE])
    assert sorted(reader.read()) == [ONE, ESTIMATE]
    of_a.add([TWO])
    assert reader.read() == [TWO]
    assert reader.read_all() == []
    assert sorted(NoteReader(tmp_path).read_all()) == [ONE, TWO, ESTIMATE]


def test_the_notes_of_two_batches_are_kept_in_their_order(tmp_path: Path) -> None:
    """Older ones are deleted: their batches are committed, and the planner has read them."""
    reader = NoteReader(tmp_path)
    for batch in (9, 10, 11):
        StageNotes(tmp_path, batch, 0).add([StageNote(A, batch, PlannedPosition(batch + 1))])
    assert [note.start for note in reader.read()] == [10, 11]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stage_notes_10_0.jsonl", "stage_notes_11_0.jsonl"]


def test_a_task_that_is_repeated_finds_that_notes_were_begun(tmp_path: Path) -> None:
    """It does not add to the notes of another attempt."""
    StageNotes(tmp_path, 4, 0).add([ONE])
    with pytest.raises(FileExistsError):
        StageNotes(tmp_path, 4, 0)
    assert NoteReader(tmp_path).read() == [ONE]


def test_a_line_that_is_torn_had_no_effect(tmp_path: Path) -> None:
    """The process died while it wrote, before it judged. A line that was not whole yet is read once it is."""
    reader, notes = NoteReader(tmp_path), StageNotes(tmp_path, 4, 0)
    notes.add([ONE])
    with (tmp_path / "stage_notes_4_0.jsonl").open("a") as file:
        file.write('["raw", 0, 7, {"next_o')
    assert reader.read() == [ONE]
    with (tmp_path / "stage_notes_4_0.jsonl").open("a") as file:
        file.write('ffset": 9, "spans": [[3, 900]]}]\n')
    assert reader.read() == [TWO]


def test_while_something_goes_on_not_all_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that stands still holds the lock: whoever must know all waits, and is told."""
    for name in ("_LAST_S", "_ROUND_S"):
        monkeypatch.setattr(between_batches, name, 0.01)
    StageNotes(tmp_path, 4, 0).add([ONE])
    reader = NoteReader(tmp_path)
    lock = between_batches._lock(tmp_path, fcntl.LOCK_SH)
    assert lock is not None
    with pytest.raises(TidegateError, match="still goes on") as raised:
        reader.read_all()
    assert raised.value.code == "TG-JOURNAL-BUSY"
    os.close(lock)
    assert reader.read_all() == [ONE]
