"""
Finds records of a raw topic by what is in them: a condition over the payload, in the language of queries, or a key.

Law: a record is found if the condition is true of it, by the rules by which a query reads the payload; a record that cannot be read is not
found. The key is that of the substream where the input has OVER, else the record's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.config import IngestPlan, Partition
from ingest.skips import read_unskipped
from ingest.stage.exploding import explode
from ordering.arrays import Mask
from tidegate.language.expressions.tree import Expr
from tidegate.platform.kafka.ranges import CHUNK_EVENTS, RangeReader
from tidegate.platform.kafka.records import Records
from tidegate.records.fields import FieldReader
from tidegate.records.payloads.conditions import is_true


@dataclass(frozen=True, slots=True)
class SearchedContent:
    """What is looked for: records of which *condition* is true (None: any), and that have the *key* (None: any)."""

    condition: Expr | None = None
    key: bytes | None = None


def find_offsets(
    plan: IngestPlan, partition: Partition, start: int, end: int, wanted: SearchedContent, on_records: Callable[[int], None]
) -> Iterator[int]:
    """Yield the places of the events of a range that are wanted; *on_records* is called with the number of records of each piece."""
    fields = FieldReader.of(plan.settings, plan.payloads) if wanted.key is not None and plan.settings.over is not None else None
    with RangeReader(plan.kafka, *partition) as reader:
        for read in read_unskipped(reader, start, end, plan.skipped_spans(partition), CHUNK_EVENTS):
            for records in _events_of(read, plan):
                is_wanted = np.ones(len(records), dtype=np.bool_)
                if wanted.key is not None:
                    is_wanted &= _has_key(records, fields, wanted.key)
                if wanted.condition is not None and is_wanted.any():
                    is_wanted &= is_true(wanted.condition, records.value, plan.payloads)
                yield from records.offset[is_wanted].tolist()
            on_records(len(read))


def _events_of(records: Records, plan: IngestPlan) -> Iterator[Records]:
    """Yield the records, or the elements of those that are arrays, by their places."""
    if plan.settings.explode is None:
        yield records
        return
    for elements in explode(records, np.ones(len(records), dtype=np.bool_)):
        yield elements.records.select(~elements.is_empty)


def _has_key(records: Records, fields: FieldReader | None, key: bytes) -> Mask:
    keys = records.key if fields is None else fields.read(records.value).substream
    assert keys is not None, "an input with OVER has substreams"
    keys = keys.dictionary_decode() if isinstance(keys, pa.DictionaryArray) else keys
    found: Mask = pc.equal(keys.cast(pa.binary()), pa.scalar(key, pa.binary())).fill_null(False).to_numpy(zero_copy_only=False)
    return found
