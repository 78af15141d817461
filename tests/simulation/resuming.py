"""
Going on without what was kept: a lost checkpoint, and input partitions that join.

A lost checkpoint is made anew from the last valid CTI of each channel: the raw log is walked again from a
position before which nothing can have a time that is not promised yet. A partition that joins gets its moment J, which no
channel has passed.
"""

from __future__ import annotations

from simulation.checkpoint import Checkpoint, Offset, Planned
from simulation.reading import log_of
from simulation.world import World, journal_key

from ingest.start.read_positions import first_position
from ordering.policies import Shape
from ordering.protocol.punctuation import Cti
from ordering.protocol.resume import last_promises
from ordering.ticks import INFINITY, TICK_MIN

Promises = dict[int, dict[int, Cti]]


def promises_of(world: World) -> Promises:
    """Return the last valid CTI of each channel: by input partition, then by output partition."""
    promises: Promises = {}
    count = world.settings.output_partitions
    for partition, log in enumerate(world.topic):
        for number, cti in last_promises(log_of(log, 0, partition), partition, count).items():
            promises.setdefault(number, {})[partition] = cti
    return promises


def resumed(world: World) -> Checkpoint:
    """Return the checkpoint with which a job begins whose own is lost."""
    promises = promises_of(world)
    starts = tuple(_start(world, number, promises.get(number, {})) for number in range(len(world.raw)))
    return Checkpoint(Offset(starts), promises=promises)


def _start(world: World, number: int, channels: dict[int, Cti]) -> Planned:
    settings, key = world.settings, journal_key(number)
    estimates = world.journal.facts.estimates(key, 0, INFINITY)
    imports = world.journal.facts.imports(key, 0, INFINITY)
    early_us, outputs = settings.policies.early_us, settings.output_partitions if settings.over else 1
    # A CTI of the source before the position would be unknown: nobody journals those.
    source_ctis = any(record.header is not None for record in world.raw[number].records)
    position = 0
    if early_us is not None and len(channels) == outputs and not source_ctis:
        # An end edge may be lifted by one tick.
        least_us = min(cti.c for cti in channels.values()) - (settings.shape is Shape.EDGE)
        indexed = world.raw[number].first_since(least_us - early_us)
        position = first_position(indexed, least_us, early_us, tuple(estimates), tuple(imports))

    def largest(marks: list[tuple[int, int]]) -> int:
        return max((us for at, us in marks if at <= position), default=0)

    return Planned(position, largest(estimates), import_us=largest(imports))


def moment_of_joining(world: World) -> int:
    """Return J for a partition that joins now: no channel has passed it."""
    said = [cti.c for channels in promises_of(world).values() for cti in channels.values()]
    return max([TICK_MIN, *said])
