"""
Logs of thousands of records made from a seed: what small drawn logs cannot reach, and what saved states are made of.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from dataclasses import replace
from itertools import pairwise

from support.strategies import Case, Range

from ordering.policies import Action, Policies, Shape
from ordering.testing import Record
from ordering.ticks import MINUTE_US, NEVER, SECOND_US


def long_log(seed: int, count: int, keys: int) -> tuple[Record, ...]:
    """Return a seeded log of realistic spread: bursts, silences, stragglers, an occasional broken record."""
    draw = random.Random(seed)
    records, offset, arrival_us = [], 0, 10**15
    for _ in range(count):
        arrival_us += draw.choice([0, 0, 1, 5, 40]) * SECOND_US if draw.random() < 0.97 else -30 * SECOND_US
        lateness_us = int(draw.gauss(20, 60) * SECOND_US) if draw.random() < 0.95 else draw.randint(-900, 1200) * SECOND_US
        event_time_us = None if draw.random() < 0.02 else arrival_us - lateness_us
        records.append(Record(offset, arrival_us, event_time_us, b"key %d" % draw.randrange(keys)))
        offset += 1 if draw.random() < 0.98 else 3
    return tuple(records)


def long_case(seed: int, records: tuple[Record, ...], over: bool) -> Case:
    """Return a case over a long log: seeded policies, estimates and batches of 0 to several hundred offsets, some crashing."""
    draw = random.Random(seed)
    end = records[-1].offset + 1
    edges = [0]
    while edges[-1] < end:
        edges.append(min(end, edges[-1] + draw.choice([0, 1, 7, 60, 400])))
    laid: dict[int, list[tuple[int, int]]] = {}
    heard: dict[int, int] = {}
    for at in draw.sample(range(len(edges) - 1), min(8, len(edges) - 1)):
        stands_us = records[min(bisect_left(records, edges[at + 1], key=lambda record: record.offset), len(records) - 1)].arrival_us
        frontier_us = stands_us + draw.randint(-90, 30) * SECOND_US
        laid[at] = [(edges[at + 1], frontier_us)]
        heard[edges[at + 1]] = max(frontier_us, heard.get(edges[at + 1], frontier_us))
    return Case(
        policies=Policies(
            early_us=draw.choice([None, 2 * MINUTE_US]),
            early_action=draw.choice(list(Action)),
            late_us=3 * MINUTE_US if over else draw.choice([None, 3 * MINUTE_US]),
            late_action=draw.choice(list(Action)),
            reorder_us=draw.choice([-1, 0, 45 * SECOND_US]),
            out_of_order_action=draw.choice(list(Action)),
        ),
        over=over,
        output_partitions=draw.choice([1, 3, 4]),
        number=2,
        records=records,
        estimates=heard,
        ranges=tuple(
            Range(low, high, tuple(laid.get(at, ())), restored=draw.random() < 0.3, torn=draw.random() < 0.2)
            for at, (low, high) in enumerate(pairwise(edges))
        ),
        finish=draw.random() < 0.5,
    )


def spans_log(seed: int, count: int, keys: int, shape: Shape) -> tuple[Record, ...]:
    """Return a long log of intervals or edges, with CTIs of the source; two of three end edges have a start edge before them."""
    draw = random.Random(seed)
    records: list[Record] = []
    for record in long_log(seed, count, keys):
        if record.event_time_us is None or draw.random() < 0.05:
            behind_us = record.arrival_us - draw.randint(0, 240) * SECOND_US
            records.append(replace(record, event_time_us=None, source_cti_us=None if draw.random() < 0.3 else behind_us))
        elif shape is Shape.INTERVAL:
            records.append(replace(record, end_us=record.event_time_us + draw.randint(-20, 300) * SECOND_US))
        else:
            records.append(_edge(draw, replace(record, raw_key=record.key), records))
    return tuple(records)


def _edge(draw: random.Random, record: Record, before: list[Record]) -> Record:
    assert record.event_time_us is not None
    starts = [start for start in before[-40:] if start.start_us == NEVER]
    if not starts or draw.random() < 0.5:
        return replace(record, start_us=NEVER)
    start = draw.choice(starts)
    stray_us = record.event_time_us - draw.randint(0, 60) * SECOND_US
    return replace(record, key=start.key, raw_key=start.raw_key, start_us=start.event_time_us if draw.random() < 0.7 else stray_us)


def crowd_log(seed: int) -> tuple[Record, ...]:
    """Return a log of a few keys that keep coming back, close to the floor, in a crowd of keys seen once."""
    draw = random.Random(seed)
    records, arrival_us = [], 10**15
    for offset in range(2_500):
        arrival_us += draw.choice([0, 0, 0, 1]) * SECOND_US
        regular = draw.random() < 0.5
        key = b"regular %d" % draw.randint(0, 30) if regular else b"passer-by %d" % offset
        lateness_us = draw.randint(-2 if regular else 6, 13) * SECOND_US
        records.append(Record(offset, arrival_us, arrival_us - lateness_us, key))
    return tuple(records)
