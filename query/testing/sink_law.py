"""
The law of a sink, tried: however often a sheet is published, and wherever a publication was broken off, a reader sees its rows once.

The sink is made anew for each publication, as a restarted worker makes it. A publication is broken off at each line that it executes in the
sink's own package. Then a reader must see what it saw before, or the whole sheet; and after the next publication exactly what an
undisturbed one gives. The sheets are published in another interpreter too, with another clock and hash seed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

from query.testing.other_interpreter import other_interpreter
from query.testing.user_code import load_anew, pickle_by_value
from sinks.base import SheetRows, Sink

SPAN_US = 60_000_000
# Start of the span in microseconds, partition, rows.
SHEETS: Sequence[tuple[int, int, SheetRows]] = [
    (0, 0, SheetRows.of([(5, b"a", b'{"n":2}'), (5, b"b", b'{"n":1}'), (9, b"a", b'{"n":3}')])),
    (0, 1, SheetRows.of([(7, b"c", b'{"n":4}')])),
    (SPAN_US, 0, SheetRows.of([(SPAN_US + 1, b"a", b'{"n":5}'), (SPAN_US + 1, b"a", b'{"n":6}')])),
]
_LINES_MAX = 500


class LawBrokenError(AssertionError):
    """
    A query, function, operator or sink gave other bytes when it was disturbed.

    Args:
        sentence: What differed, after what.
        case: The folder with the fewest events found that show it; None for a sink.
    """

    def __init__(self, sentence: str, case: Path | None = None, listing: str = "") -> None:
        self.sentence, self.case = sentence, case
        shown = f"\n\nA case that shows it, for tidegate test: {case}\n{listing}" if case is not None else ""
        super().__init__(f"{sentence}{shown}")


def visible_files(folder: Path) -> dict[str, bytes]:
    """Return what a reader of a folder sees: the bytes of each file whose name, and whose folders' names, begin with neither . nor _."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path: path.relative_to(folder) for path in files}
    return {str(name): path.read_bytes() for path, name in names.items() if not any(part[0] in "._" for part in name.parts)}


@dataclass(frozen=True)
class SinkUnderTest:
    """
    A sink for ``law_of``.

    Args:
        make: Returns a sink that writes into the destination that belongs to a folder, which is empty before the first.
        read: Returns what a reader of that destination sees; any value that can be compared.
    """

    make: Callable[[Path], Sink]
    read: Callable[[Path], Any] = visible_files


class _BrokenOffError(BaseException):
    """The kill of a publication; no handler of the sink catches it."""


def law_of_sink(sink: SinkUnderTest) -> None:
    """Raise LawBrokenError if a sink does not keep the law of :mod:`sinks.base`."""
    pickled = pickle_by_value(sink)
    with _folder() as folder:
        undisturbed = _publish_all(sink, folder)
    with _folder() as folder:
        _publish_all(sink, folder)
        _compare("after every sheet was published twice", undisturbed, _publish_all(load_anew(pickled), folder))
    with _folder() as folder:
        _publish_all(sink, folder)
        _compare("after another process published again", undisturbed, other_interpreter().call(publish_elsewhere, pickled, str(folder)))
    for sheet_number in range(len(SHEETS)):
        with _folder() as folder:
            whole = _publish_all(sink, folder, SHEETS[: sheet_number + 1])
        for line in range(1, _LINES_MAX):
            if not _break_off(sink, sheet_number, line, whole, undisturbed):
                break


def publish_elsewhere(pickled: bytes, folder: str) -> Any:
    """Publish all sheets; called in another interpreter."""
    return _publish_all(load_anew(pickled), Path(folder))


def _publish_all(sink: SinkUnderTest, folder: Path, sheets: Sequence[tuple[int, int, SheetRows]] = SHEETS) -> Any:
    for sheet in sheets:
        sink.make(folder).publish(*sheet)
    return sink.read(folder)


def _break_off(sink: SinkUnderTest, sheet_number: int, line: int, whole: Any, undisturbed: Any) -> bool:
    """Break off the publication of one sheet, *whole* with those before it, at its nth line; return whether it has so many."""
    start_us, partition, rows = SHEETS[sheet_number]
    with _folder() as folder:
        before = _publish_all(sink, folder, SHEETS[:sheet_number])
        with _broken_off_at(line, _package(type(sink.make(folder)).__module__)) as places:
            sink.make(folder).publish(start_us, partition, rows)
        if not places:
            return False
        after = sink.read(folder)
        where = f"after a kill at {places[0]}"
        if after not in (before, whole):
            raise LawBrokenError(f"{where} a reader sees a part of a sheet: {after!r}")
        _compare(f"{where} and another publication", undisturbed, _publish_all(sink, folder))
    return True


@contextmanager
def _broken_off_at(line: int, package: str) -> Iterator[list[str]]:
    """Break off what runs in the context at the nth line that it executes in *package*; yield the place, once it was reached."""
    places: list[str] = []
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if _package(frame.f_globals.get("__name__", "")) != package:
            return None
        if event == "line":
            count += 1
            if count == line:
                places.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
                raise _BrokenOffError
        return trace

    earlier = sys.gettrace()
    sys.settrace(trace)
    try:
        yield places
    except _BrokenOffError:
        pass
    finally:
        sys.settrace(earlier)


def _package(module: str) -> str:
    """Return the package that is the outermost of a module, or the module, if it is in none."""
    return module.partition(".")[0]


def _compare(when: str, undisturbed: Any, found: Any) -> None:
    if found != undisturbed:
        raise LawBrokenError(f"{when} a reader sees {found!r}; undisturbed it sees {undisturbed!r}")


@contextmanager
def _folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="tidegate-sink-") as folder:
        yield Path(folder)
