"""
Produce flights to Kafka in the order of their arrival, as fast as they go; the record timestamp is the arrival.

A flight's event time is its scheduled departure, its arrival that time plus its delay. Each airport's flights go to
one partition, as a producer that keys by airport would send them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
from confluent_kafka import Producer

from tidegate.ordering import output_partitions

Flight = tuple[int, int, str, str, int, int]
"""Arrival and scheduled departure in microseconds, origin, destination, delay in minutes, distance in miles."""


def flights(parquet: Path, limit: int | None = None) -> list[Flight]:
    """Return the flights of a file in arrival order; ties keep one fixed order."""
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    found = connection.execute(
        f"""SELECT epoch_us(date) + delay * 60000000, epoch_us(date), origin, destination, delay, distance
            FROM read_parquet(?) ORDER BY 1, 2, 3, 4, 5, 6 {"" if limit is None else f"LIMIT {limit}"}""",
        [str(parquet)],
    )
    return found.fetchall()


def payload(flight: Flight) -> bytes:
    """Return the event as it is produced."""
    _, scheduled_us, origin, destination, delay, distance = flight
    minutes = scheduled_us // 60_000_000
    days, minute = divmod(minutes, 1440)
    day = _day(days)
    return (
        f'{{"scheduled":"{day}T{minute // 60:02d}:{minute % 60:02d}:00Z","origin":"{origin}",'
        f'"destination":"{destination}","delay":{delay},"distance":{distance}}}'
    ).encode()


_days: dict[int, str] = {}


def _day(days: int) -> str:
    if days not in _days:
        _days[days] = (date(1970, 1, 1) + timedelta(days=days)).isoformat()
    return _days[days]


def partitions_of(chosen: list[Flight], partitions: int) -> dict[str, int]:
    """Return the partition of each airport."""
    airports = sorted({flight[2] for flight in chosen})
    return dict(zip(airports, output_partitions([airport.encode() for airport in airports], partitions).tolist(), strict=True))


def produce(
    properties: dict[str, Any], topic: str, chosen: list[Flight], partitions: int, progress: Callable[[int], None] = lambda sent: None
) -> None:
    """Send *chosen* in their order; *progress* is told how many are sent now and then."""
    producer = Producer(
        {**properties, "linger.ms": 20, "batch.size": 1_000_000, "compression.type": "lz4", "enable.idempotence": True, "log_level": 2}
    )
    partition_of = partitions_of(chosen, partitions)
    for sent, flight in enumerate(chosen, start=1):
        while True:
            try:
                producer.produce(topic, payload(flight), flight[2].encode(), partition_of[flight[2]], timestamp=flight[0] // 1000)
                break
            except BufferError:
                producer.poll(0.05)
        if sent % 5_000 == 0:
            producer.poll(0)
            progress(sent)
    while producer.flush(1.0):
        pass
    progress(len(chosen))
