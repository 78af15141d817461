"""
Raw topics to measure on: made events, and real flights from a file.

Law: the same arguments give the same records, whatever filled the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ordering.protocol.partitioner import output_partitions
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.kafka.writer import Columns, GaplessProducer

FIRST_ARRIVAL_MS = 1_700_000_000_000
DEVICES = 1_000
_PIECE = 100_000
Progress = Callable[[int], None]


def fill(bootstrap: str, topic: str, events: int, partitions: int, progress: Progress, seed: int = 1) -> None:
    """Have *topic* hold JSON events of about 60 bytes: 1,000 devices, one event a millisecond, lateness exponential with mean 2 s."""
    if is_new(bootstrap, topic, events, partitions):
        pieces = (made(start, min(_PIECE, events - start), partitions, seed) for start in range(0, events, _PIECE))
        write(bootstrap, topic, pieces, progress)


def is_new(bootstrap: str, topic: str, events: int, partitions: int) -> bool:
    """Make a topic that takes records of any age; return whether it does not hold its events yet."""
    admin = Admin({"bootstrap.servers": bootstrap})
    admin.create(topic, partitions, {"retention.ms": "-1"})
    return sum(admin.ends([(topic, partition) for partition in range(partitions)]).values()) != events


def write(bootstrap: str, topic: str, pieces: Iterator[Columns], progress: Progress) -> None:
    """Send all pieces."""
    producer, sent = GaplessProducer({"bootstrap.servers": bootstrap}), 0
    for piece in pieces:
        producer.send_columns(topic, piece)
        sent += len(piece.value)
        progress(sent)
    producer.flush(topic)
    producer.discard()


def made(start: int, count: int, partitions: int, seed: int = 1) -> Columns:
    """Return the events *start* to *start* + *count*."""
    rng, arrival_ms, stamp_ms = _times(start, count, seed)
    device, value = rng.integers(0, DEVICES, count), rng.integers(0, 1_000_000, count)
    name = pc.binary_join_element_wise("dev-", _text(device), "")
    digits = pc.utf8_lpad(_text(value), 6, "0")
    payload = pc.binary_join_element_wise('{"device":"', name, '","ts":', _text(stamp_ms), ',"value":0.', digits, "}", "")
    return Columns(payload.cast(pa.binary()), name.cast(pa.binary()), (device % partitions).astype(np.int32), arrival_ms, "", None)


def happened_until(moment_ms: int, events: int, seed: int = 1) -> int:
    """Return how many of so many events :func:`fill` makes happen until a moment, itself included."""
    starts = range(0, events, _PIECE)
    return sum(int(np.count_nonzero(_times(start, min(_PIECE, events - start), seed)[2] <= moment_ms)) for start in starts)


def _times(start: int, count: int, seed: int) -> tuple[np.random.Generator, NDArray[np.int64], NDArray[np.int64]]:
    """Return when events arrive and when they happened, and what draws the rest of them."""
    rng = np.random.default_rng(start if seed == 1 else [seed, start])
    arrival_ms = FIRST_ARRIVAL_MS + start + np.arange(count)
    return rng, arrival_ms, arrival_ms - rng.exponential(2000, count).astype(np.int64)


def _text(numbers: NDArray[np.int64]) -> pa.Array:
    return pa.array(numbers).cast(pa.string())


def fill_with_flights(bootstrap: str, topic: str, file: Path, partitions: int, progress: Progress) -> int:
    """
    Have *topic* hold the flights of a file in the order of their arrival; return how many.

    Args:
        bootstrap: Kafka's address.
        topic: Topic name.
        file: Parquet with the columns date (scheduled departure), delay in minutes, distance, origin and destination.
        partitions: Partitions; an airport's flights go to one.
        progress: Is told how many are sent.
    """
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")
    count: int = connection.execute("SELECT count(*) FROM read_parquet(?)", [str(file)]).fetchall()[0][0]
    if not is_new(bootstrap, topic, count, partitions):
        return count
    rows = connection.sql(
        """SELECT epoch_ms(date) + delay * 60000 AS arrival_ms, encode(origin) AS origin, encode(format(
               '{{"scheduled":"{}","origin":"{}","destination":"{}","delay":{},"distance":{}}}',
               strftime(date, '%Y-%m-%dT%H:%M:%SZ'), origin, destination, delay, distance)) AS payload
           FROM read_parquet(?) ORDER BY arrival_ms, date, origin, destination, delay, distance""",
        params=[str(file)],
    )
    write(bootstrap, topic, (_flights(batch, partitions) for batch in rows.to_arrow_reader(_PIECE)), progress)
    return count


def _flights(batch: pa.RecordBatch, partitions: int) -> Columns:
    airports = batch["origin"].dictionary_encode()
    partition = output_partitions(airports.dictionary.to_pylist(), partitions)[airports.indices.to_numpy()]
    return Columns(batch["payload"], batch["origin"], partition.astype(np.int32), batch["arrival_ms"].to_numpy(), "", None)
