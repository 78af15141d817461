"""
Exchange: which bucket evaluates an event, if rows are split by the values of keys (:mod:`query.plan.parallelism`).

The bucket is ``murmur2(key bytes) mod N``, exactly as Kafka's Java partitioner chooses a partition. The key bytes are those of a result's
key (:mod:`query.columns.encode`), so a query that groups by the keys of its exchange writes a topic that is partitioned by its records'
keys. Law: the bucket follows from the event and N alone, and events whose keys count as equal share one.

An event whose keys cannot be computed goes to bucket 0 and becomes a dead letter there, once. If the rows of an input meet no others, its
events are spread by their records' keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ordering.columns.key_table import Keys as KeyBytes
from ordering.protocol.partitioner import partitions_of
from query.columns.encode import encode_keys
from query.columns.events import for_operators
from query.columns.large_tables import combine_column
from query.operators.rows.event_fields import EventFields
from query.operators.rows.row_stage import RowStage
from query.plan.common_keys import Keys
from tidegate.language.expressions.tree import Expr
from tidegate.records.payloads.formats import JSON, PayloadFormat

BucketNumbers = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Exchange:
    """How rows are routed to buckets by their keys."""

    # The keys of each input whose rows meet, in one order; none for others.
    keys: Keys
    # N: how many buckets there are; results depend on it.
    buckets: int


class Router:
    """Computes the buckets of events; the payloads of inputs without an entry in *payloads* are JSON."""

    def __init__(self, exchange: Exchange, payloads: Mapping[str, PayloadFormat]) -> None:
        self._buckets = exchange.buckets
        self._stages = {name: RowStage((), keys, EventFields(payloads.get(name, JSON))) for name, keys in exchange.keys.items()}

    def buckets_of(self, input: str, events: pa.Table) -> BucketNumbers:
        """Return the bucket of each event of an input (``DECODED_SCHEMA``)."""
        if not events.num_rows:
            return np.empty(0, dtype=np.int32)
        if input not in self._stages:
            return self._hash_keys(pc.fill_null(combine_column(events["key"]), b""))
        kept, keys, _ = self._stages[input].apply(for_operators(events))
        buckets = np.zeros(events.num_rows, dtype=np.int32)
        buckets[kept["position"].to_numpy()] = self._hash_keys(encode_keys(keys, kept.num_rows))
        return buckets

    def _hash_keys(self, keys: pa.Array) -> BucketNumbers:
        return partitions_of(KeyBytes.of(keys), self._buckets)


def key_bytes(keys: Sequence[Expr], events: pa.Table) -> pa.Array:
    """Return the bytes of the keys of each event (``DECODED_SCHEMA``), whose payload is JSON; NULL if they cannot be computed."""
    kept, columns, _ = RowStage((), tuple(keys)).apply(for_operators(events))
    encoded = encode_keys(columns, kept.num_rows)
    if kept.num_rows == events.num_rows:
        return encoded
    row_of = np.full(events.num_rows, -1, dtype=np.int64)
    row_of[kept["position"].to_numpy()] = np.arange(kept.num_rows)
    return encoded.take(pa.array(row_of, mask=row_of < 0))
