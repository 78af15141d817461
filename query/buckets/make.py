"""Makes the buckets of a job, and orders the reads of a bucket's logs; the stage and ``tidegate verify`` do both in the same way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow.compute as pc

from ordering.ticks import NEVER
from query import extensions
from query.buckets.bucket import Bucket, BucketConfig, SourceTopic
from query.buckets.exchanged import ExchangedBucket
from query.buckets.keyed import KeyedBucket
from query.buckets.merged import MergedBucket
from query.buckets.substreams import SubstreamBucket
from query.columns.decoded_range import DecodedRange
from query.config import QueryPlan
from query.engine.exchange import Router
from query.javascript.functions import register


def new_bucket(plan: QueryPlan, number: int) -> Bucket:
    """Return a bucket before its first record."""
    extensions.load()
    for function in plan.functions:
        register(function)
    spans_us = [output.file_span_us if output.writes_sheets else None for output in plan.outputs]
    logs_read = plan.logs_of(number)
    logs = [
        {log: partition for log, (feed_index, partition) in enumerate(plan.logs) if feed_index == feed and log in logs_read}
        for feed in range(len(plan.feeds))
    ]
    sources = [
        SourceTopic(feed.input, feed.partitions, feed_logs, feed.is_result) for feed, feed_logs in zip(plan.feeds, logs, strict=True)
    ]
    config = BucketConfig(
        sources=sources,
        number=number,
        roster=plan.roster,
        start_us=plan.first_us(number),
        read_from_us=plan.read_from_us,
        log_starts_us={log: start.read_from_us for log, start in plan.log_starts.items()},
        spans_us=spans_us,
        pace=plan.outputs[0].pace(),
        promises=[promises.get(number) for promises in plan.promises],
        until_us=plan.until_us,
        result_bytes_max=plan.result_bytes_max,
    )
    if plan.exchange is not None:
        return ExchangedBucket(plan.program(), config, Router(plan.exchange, {feed.input: feed.payloads for feed in plan.feeds}))
    if plan.over and (len(plan.feeds) > 1 or plan.feeds[0].is_result):
        return KeyedBucket(plan.program(), config, plan.result_keys)
    return SubstreamBucket(plan.program(), config) if plan.over else MergedBucket(plan.program(), config)


def read_in_time_order(pieces: Mapping[int, Iterator[DecodedRange]]) -> Iterator[tuple[int, DecodedRange]]:
    """Yield the pieces of several logs, each with the number of its log; the next piece is that of the log farthest behind in time."""
    unread = dict(pieces)
    reached_us = dict.fromkeys(unread, NEVER)
    while unread:
        log = min(unread, key=reached_us.__getitem__)
        piece = next(unread[log], None)
        if piece is None:
            del unread[log]
            continue
        if piece.events.num_rows:
            reached_us[log] = max(reached_us[log], int(pc.max(piece.events["system_us"]).as_py()))
        yield log, piece
