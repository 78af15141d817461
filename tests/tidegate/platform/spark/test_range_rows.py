"""Ranges as rows: what the planner writes is what the stage reads."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import IntegerType, LongType

from ingest.planned_range import RANGE_SCHEMA, IngestRange
from query.stage import planned_range
from query.stage.planned_range import QueryRange
from tidegate.platform.spark.range_rows import read_row, schema_of, write_row

_LONG = st.integers(-(2**63), 2**63 - 1)
_INT = st.integers(0, 2**31 - 1)
_PAIRS = st.lists(st.tuples(_LONG, _LONG), max_size=3).map(tuple)
INGEST = st.builds(
    IngestRange,
    label=_INT,
    number=_LONG,
    topic=st.text(),
    partition=_INT,
    start=_LONG,
    end=_LONG,
    marks=_PAIRS,
    imports=_PAIRS,
    planned_ms=_LONG,
    is_final=st.booleans(),
    spans=_PAIRS,
    clamped=_LONG,
)
QUERY = st.builds(QueryRange, _INT, _INT, _INT, _LONG, _LONG, st.booleans(), _INT)


def row_of(written: tuple[object, ...], names: list[str]) -> SimpleNamespace:
    """The row as a stage gets it: by name, numbers and lists as pandas holds them."""
    as_pandas = {int: np.int64, bool: np.bool_, list: lambda values: np.array(values, dtype=np.int64), str: str}
    return SimpleNamespace(**{name: as_pandas[type(value)](value) for name, value in zip(names, written, strict=True)})


@given(INGEST | QUERY)
def test_a_range_survives_the_way_to_the_stage(a_range: IngestRange | QueryRange) -> None:
    """Law of the hinge: read back it is the same, of plain Python types."""
    read = read_row(type(a_range), row_of(write_row(a_range), schema_of(type(a_range)).names))
    assert read == a_range
    assert [type(value) for value in write_row(read)] == [type(value) for value in write_row(a_range)]


def test_labels_are_of_the_type_by_which_tasks_were_chosen() -> None:
    """Spark hashes 32-bit and 64-bit integers differently; offsets need 64 bits."""
    for schema in (RANGE_SCHEMA, planned_range.RANGE_SCHEMA):
        assert (schema["label"].dataType, schema["start"].dataType) == (IntegerType(), LongType())
