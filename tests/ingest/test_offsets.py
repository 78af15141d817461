"""The offset of the ingest source: Spark stores it as text and compares texts, so equal offsets must be equal texts."""

from __future__ import annotations

import json
import random

from hypothesis import given
from hypothesis import strategies as st

from ingest.offsets import IngestOffset, Partition, PartitionJoin, PlannedPosition

_LONG = st.integers(0, 2**62)
PARTITIONS = st.tuples(st.sampled_from(["flights", "flights.eu", "a-b_c", "0"]), st.integers(0, 12))
_MARKS = st.lists(st.tuples(_LONG, _LONG), max_size=3).map(tuple)
PLANNED = st.builds(PlannedPosition, _LONG, _LONG, _MARKS, _LONG, _LONG, _MARKS)


@st.composite
def offsets(draw: st.DrawFn) -> IngestOffset:
    """An offset some of whose partitions joined."""
    partitions = draw(st.dictionaries(PARTITIONS, PLANNED, max_size=6))
    joined = draw(st.lists(st.sampled_from(sorted(partitions)), unique=True)) if partitions else []
    first = len(partitions) - len(joined)
    return IngestOffset(
        partitions, draw(st.booleans()), {partition: PartitionJoin(first + place, draw(_LONG)) for place, partition in enumerate(joined)}
    )


OFFSETS = offsets()


def text_of(offset: IngestOffset) -> str:
    """The text that Spark logs."""
    return json.dumps(offset.to_json())


@given(OFFSETS)
def test_an_offset_survives_being_stored(offset: IngestOffset) -> None:
    """Level 1: read back from its text it is the same offset, of the same types, and writes the same text."""
    stored = json.loads(text_of(offset))
    again = IngestOffset.from_json(stored)
    assert again == offset
    assert text_of(again) == text_of(offset)


@given(OFFSETS, st.randoms(use_true_random=False))
def test_equal_offsets_are_equal_texts_of_integers(offset: IngestOffset, chance: random.Random) -> None:
    """The order in which partitions were planned does not show; keys stand sorted; nothing but integers is in it."""
    shuffled = list(offset.partitions.items())
    chance.shuffle(shuffled)
    assert text_of(IngestOffset(dict(shuffled), offset.is_final, dict(reversed(offset.joins.items())))) == text_of(offset)
    stored = offset.to_json()
    assert list(stored) == sorted(stored)
    assert all(list(planned) == sorted(planned) for planned in stored["partitions"].values())
    assert "." not in text_of(offset).replace("flights.eu", "")
    assert "true" not in text_of(offset)


@given(st.dictionaries(PARTITIONS, st.tuples(PLANNED, PLANNED), min_size=1, max_size=6))
def test_ranges_are_what_changed(pairs: dict[Partition, tuple[PlannedPosition, PlannedPosition]]) -> None:
    """Between two offsets lie the partitions that differ, in a fixed order, each with where it starts and ends."""
    here = IngestOffset({partition: start for partition, (start, _) in pairs.items()})
    there = IngestOffset({partition: end for partition, (_, end) in pairs.items()})
    expected = [(partition, start, end) for partition, (start, end) in sorted(pairs.items()) if start != end]
    assert list(here.ranges_to(there)) == expected
    assert list(here.ranges_to(here)) == []


@given(OFFSETS)
def test_the_end_of_the_input_concerns_every_partition(offset: IngestOffset) -> None:
    """The final offset starts a last batch in which each partition is closed, also those with nothing to read."""
    here, there = IngestOffset(offset.partitions), IngestOffset(offset.partitions, is_final=True)
    assert [partition for partition, _, _ in here.ranges_to(there)] == sorted(offset.partitions)


def test_an_estimate_alone_makes_a_range() -> None:
    """A raised frontier at the same position is a batch without data: that is how time moves in silence."""
    here, there = (
        IngestOffset({("f", 0): PlannedPosition(5), ("f", 1): PlannedPosition(9, 3)}),
        IngestOffset({("f", 0): PlannedPosition(5, 77), ("f", 1): PlannedPosition(9, 3)}),
    )
    assert list(here.ranges_to(there)) == [(("f", 0), PlannedPosition(5), PlannedPosition(5, 77))]


def test_an_offset_names_only_what_there_is() -> None:
    """Spark logs an offset with every batch: of a partition in which nothing special happened it is short."""
    offset = IngestOffset({("f", 0): PlannedPosition(5, 77, ((3, 70),), 9)})
    text = '{"final": 0, "joins": {}, "partitions": {"f/0": {"frontier_us": 77, "marks": [[3, 70]], "next_offset": 5, "planned_ms": 9}}}'
    assert text_of(offset) == text
    assert IngestOffset.from_json(json.loads(text)) == offset


def test_estimates_and_imports_are_kept_apart() -> None:
    """Both stand inside the range and at its end, each in its own list; in silence only what is in force travels on."""
    planned = PlannedPosition(5, 77, ((3, 70),), 9, 60, ((4, 50),))
    assert planned.marks_with_end() == ((3, 70), (5, 77))
    assert planned.imports_with_end() == ((4, 50), (5, 60))
    assert planned.raise_time(frontier_us=80) == PlannedPosition(5, 80, import_us=60)


def test_what_the_journal_had_to_do_with_a_range_stands_in_the_offset() -> None:
    """When its records were first planned, and whether the journal knows: for whoever drives the job next."""
    planned = PlannedPosition(9, spans=((3, 50), (7, 60)), is_unclosed=True, base_us=40, conflicts=2, clamped=1, losses=3)
    stored = planned.to_json()
    spans = [[3, 50], [7, 60]]
    assert stored == {"next_offset": 9, "spans": spans, "is_unclosed": 1, "base_us": 40, "conflicts": 2, "clamped": 1, "losses": 3}
    assert PlannedPosition.from_json(stored) == planned
    assert planned.raise_time(7) == PlannedPosition(9, 7)


def test_a_partition_that_joins_makes_a_range_where_it_ends() -> None:
    """A batch of its own: nothing is read, and its number follows on those of all others."""
    here = IngestOffset({("f", 1): PlannedPosition(5), ("f", 0): PlannedPosition(9)})
    there = IngestOffset({**here.partitions, ("a", 0): PlannedPosition(3)}, joins={("a", 0): PartitionJoin(2, 60)})
    assert list(here.ranges_to(there)) == [(("a", 0), PlannedPosition(3), PlannedPosition(3))]
    assert there.roster == (("f", 0), ("f", 1), ("a", 0))
    assert there.advance(there.partitions) == there
