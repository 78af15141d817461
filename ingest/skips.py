"""
Skips: offsets of an input partition that are not read, because a user has skipped them (``tidegate skip``) or Kafka has lost them.

Law (level 1): a skipped record is as if it had never been in the log: no event, no dead letter, no arrival. A skip takes effect at a start
of the job, and only if nothing at or after its first offset has been judged for good; from then on it is a fact of the journal, carried in
the CTIs, and every replay repeats it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ordering.protocol.facts import Fact, FactKind

if TYPE_CHECKING:  # the planner must start fast, and reads no records
    from tidegate.platform.kafka.ranges import RangeReader
    from tidegate.platform.kafka.records import Records

# (first offset skipped, first offset read again); equal: a skip that was undone.
Spans = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Skip:
    """The offsets start <= offset < end of an input partition are not read."""

    topic: str
    partition: int
    start: int
    end: int
    # Why the user asked for it, who that was, and when (ISO-8601); empty after the journal was rebuilt, as CTIs carry only the offsets.
    why: str = ""
    by: str = ""
    at: str = ""
    # Events may have been written while the skip was in force: a replay of its range compares them.
    is_undone: bool = False

    @property
    def is_valid(self) -> bool:
        """Whether the members are of their kinds, as they are unless others have written the notes."""
        offsets, texts = (self.partition, self.start, self.end), (self.topic, self.why, self.by, self.at)
        return all(type(each) is int and each >= 0 for each in offsets) and all(isinstance(each, str) for each in texts)

    @property
    def input_partition(self) -> tuple[str, int]:
        return self.topic, self.partition

    @property
    def place(self) -> str:
        """The first offset as ``topic-partition@offset``; it identifies the skip."""
        return f"{self.topic}-{self.partition}@{self.start}"

    @property
    def fact(self) -> Fact:
        return Fact(FactKind.SKIP, self.start, self.end)

    @property
    def span(self) -> tuple[int, int]:
        return self.start, self.start if self.is_undone else self.end

    def describe(self) -> str:
        """Return a text with the skipped offsets, and who skipped them, when and why."""
        more = f" and {self.end - self.start - 1:,} more" if self.end - self.start > 1 else ""
        whose = ", ".join(text for text in (self.by, self.at) if text)
        return f"{self.place}{more}: {self.why or 'why is not known'}{f' ({whose})' if whose else ''}"


def skip_at(skips: Iterable[Skip], partition: tuple[str, int], offset: int) -> Skip | None:
    """Return the skip that passes over an offset, if one does."""
    return next((skip for skip in skips if skip.input_partition == partition and skip.span[0] <= offset < skip.span[1]), None)


def first_read(position: int, spans: Iterable[tuple[int, int]]) -> int:
    """Return the first offset from *position* on that is read."""
    for start, end in sorted(spans):
        if start <= position:
            position = max(position, end)
    return position


def spans_within(spans: Iterable[tuple[int, int]], start: int, end: int) -> Spans:
    """Return the spans that touch a range, sorted, whole."""
    return tuple(span for span in sorted(spans) if span[0] < end and (span[1] > start or span[0] >= start))


def read_parts(start: int, end: int, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the parts (half-open) of a range that are read."""
    for skipped, resumed in sorted(spans):
        if start < min(skipped, end):
            yield start, min(skipped, end)
        start = max(start, resumed)
    if start < end:
        yield start, end


def read_unskipped(reader: RangeReader, start: int, end: int, skips: Spans, chunk: int) -> Iterator[Records]:
    """Yield the records of a range in pieces. The reader seeks over skipped offsets, because reading on would fetch them."""
    for first, last in read_parts(start, end, skips):
        if first > start:
            reader.seek(first)
        yield from reader.read(first, last, chunk)
        start = last
    if start < end:
        reader.seek(end)
