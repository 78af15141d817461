"""
The writers of a run's results: into a file for each output, or to standard output.

Law: a result is one line, byte for byte the value that a job would write. Files are replaced, complete, after the run has succeeded.
If several outputs go to standard output, each line names its output; lines come in the order of time, then of the script.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from operator import itemgetter
from pathlib import Path
from typing import Self

import orjson

from ordering.errors import SettingError
from query.local.files import LocalFile
from query.local.inputs import BadRecord
from query.local.run import RunStep
from tidegate.records.files.output import LineWriter

# The file, without its ending, of records that cannot be used.
DEAD = "dead"
_NAME = re.compile(r"[^/\\\0]+")


class ResultFiles:
    """
    A file for each output in one folder, and one for records that cannot be used.
    Raises SettingError if the name of an output cannot be that of a file, or the file is one of the inputs.
    """

    def __init__(self, folder: Path, outputs: Sequence[str], read_files: Sequence[LocalFile]) -> None:
        self._folder, self._names = folder, [*outputs, DEAD]
        self._exit = ExitStack()
        inputs = {Path(file.path).resolve(): file for file in read_files}
        for output in outputs:
            if not _NAME.fullmatch(output) or output.lower() == DEAD:
                fix = "give it another name in the script, or write to standard output"
                raise SettingError(f"output {output} cannot be a file", code="TG-LOCAL-OUTPUT", where="--output-dir", fix=fix)
        for path in map(self._path, self._names):
            if path.resolve() in inputs:
                what = f"{path} is the file of input {inputs[path.resolve()].name}"
                raise SettingError(what, code="TG-SETTING-CONFLICT", where="--output-dir", fix="name another folder")

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.ndjson"

    def __enter__(self) -> Self:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            what = f"the folder cannot be made: {error.strerror or error}"
            raise SettingError(what, code="TG-LOCAL-OUTPUT", where=str(self._folder), fix="name another one") from None
        self._lines = [self._exit.enter_context(LineWriter(self._path(name))) for name in self._names]
        return self

    def __exit__(self, *error: object) -> None:
        """Discard the files that were not committed."""
        self._exit.close()

    def write(self, step: RunStep) -> None:
        for lines, results in zip(self._lines, step.results, strict=False):
            lines.write_texts(results.texts())
        self._lines[-1].write([dead_line(bad) for bad in step.bad])

    def commit(self) -> None:
        for lines in self._lines:
            lines.commit()


class PrintedResults:
    """Standard output; records that cannot be used are only counted."""

    def __init__(self, outputs: Sequence[str]) -> None:
        self._lines = LineWriter(None)
        self._heads = [b'{"output":%b,"value":' % orjson.dumps(name) for name in outputs] if len(outputs) > 1 else []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing: lines that were printed stay."""

    def write(self, step: RunStep) -> None:
        if not self._heads:
            self._lines.write_texts(step.results[0].texts())
            return
        timed_lines = [
            (system_us, b"%b%b}\n" % (head, value))
            for head, results in zip(self._heads, step.results, strict=True)
            for system_us, value in results.timed_values()
        ]
        # A stable sort: results of one instant stay in the order of the script's outputs.
        self._lines.write([line for _, line in sorted(timed_lines, key=itemgetter(0))])

    def commit(self) -> None:
        """Do nothing: lines were printed at once."""


def dead_line(bad: BadRecord) -> bytes:
    """Return the line of a record that cannot be used."""
    head = orjson.dumps({"reason": bad.reason, "input": bad.input, "partition": bad.partition, "line": bad.line})
    return b'%b,"value":%b}\n' % (head[:-1], bad.value)
