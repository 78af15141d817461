"""
What a stage closes in the journal and estimates itself, in a batch that stays open and between two of them. Its planner has not seen these
facts, so they are noted in the checkpoint's folder before they have an effect.

Law: a planner that goes on without the journal, or gives a journal back what it has lost, first waits until nothing goes on, and knows what
was noted. Facts stay true: what is noted of an earlier batch does no harm. The notes of two batches are kept: Spark commits a batch before
the next one begins, and a planner reads notes before it plans the batch whose tasks delete them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ingest.offsets import Partition, PlannedPosition
from ordering.errors import TidegateError
from tidegate.platform.checkpoint.between_batches import all_have_ended

_PREFIX = "stage_notes_"


class StageNote(NamedTuple):
    """A range that a stage has closed, from *start* to *end*, with all its facts; or an estimate at *end*, where *start* is too."""

    partition: Partition
    start: int
    end: PlannedPosition


class StageNotes:
    """
    The file of one task in one batch; *number* is the least roster number of its partitions.

    Raises FileExistsError: an attempt before this one has begun them; what it has noted is the planner's to read.
    """

    def __init__(self, folder: Path, batch: int, number: int) -> None:
        self._path = folder / f"{_PREFIX}{batch}_{number}.jsonl"
        self._path.open("x").close()
        for path, noted in _find(folder):
            if noted < batch - 1:
                path.unlink(missing_ok=True)

    def add(self, notes: Iterable[StageNote]) -> None:
        """Add *notes*; returns once they outlive this process."""
        lines = [json.dumps([*note.partition, note.start, note.end.to_json()]) + "\n" for note in notes]
        if lines:
            with self._path.open("a") as file:
                file.writelines(lines)


class NoteReader:
    """Reads the notes in a checkpoint's *folder*, each of them once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read_to: dict[Path, int] = {}

    def read(self) -> list[StageNote]:
        """Return what was noted since the last call. A line that is torn had no effect."""
        return [note for path, _ in sorted(_find(self._folder), key=lambda found: found[1]) for note in self._read(path)]

    def read_all(self) -> list[StageNote]:
        """As :meth:`read`, once nothing goes on. Raises TidegateError (TG-JOURNAL-BUSY): something still does."""
        if not all_have_ended(self._folder):
            raise TidegateError(
                "a task of the last batch still goes on, and may rely on facts of the journal that are not known here",
                code="TG-JOURNAL-BUSY",
                where=str(self._folder),
                fix="nothing, this is tried again; if it lasts, end the job's Python workers: what they do is repeated",
            )
        return self.read()

    def _read(self, path: Path) -> Iterator[StageNote]:
        start = self._read_to.get(path, 0)
        try:
            if path.stat().st_size <= start:
                return
            with path.open("rb") as file:
                file.seek(start)
                text = file.read()
        except FileNotFoundError:
            return
        whole = text[: text.rfind(b"\n") + 1]
        self._read_to[path] = start + len(whole)
        for line in whole.splitlines():
            topic, number, begin, end = json.loads(line)
            yield StageNote((topic, number), begin, PlannedPosition.from_json(end))


def _find(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield the files of notes, each with its batch."""
    for path in folder.glob(f"{_PREFIX}*_*.jsonl"):
        yield path, int(path.name.removeprefix(_PREFIX).split("_")[0])
