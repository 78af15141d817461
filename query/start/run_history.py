"""
How a run of a query began, as the history of its topic keeps it (:mod:`tidegate.platform.checkpoint.query_history`).

Law, level 2: script, output start, promises, log starts and pace decide which results a run writes, with which numbers and in which order.
So whoever begins with the same computes the same, whatever the query is, and the numbers tell which run wrote a result: a run's results
are those from the number of its promise on, up to that of the next run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from confluent_kafka import KafkaException

from ordering.ticks import NEVER
from query.config import LogStart, Promise, QueryPlan
from query.javascript.declarations import record_functions
from query.start.binding import query_text
from sinks.file_places import absolute_place
from sinks.plain_topic import PlainTopicSink
from tidegate.platform.checkpoint.query_history import RecordedRun
from tidegate.platform.settings.tables.outputs import OutputSettings


def output_key(output: OutputSettings) -> str:
    """Return the name of an output in a history: an output that is renamed keeps its topic."""
    return output.topic or output.name


def written_places(output: OutputSettings) -> list[str | int | None]:
    """Return the settings that decide which file, or which transaction of a plain topic, a result belongs to."""
    return [output.files and absolute_place(output.files), output.file_format, output.file_span_us, output.file_folders, output.plain_topic]


def describe_run(plan: QueryPlan, script: str, into: str | None) -> RecordedRun:
    """Return the run that begins with *plan*, or goes on from its checkpoint."""
    outputs = plan.outputs
    pace = outputs[0].pace()
    promises = {
        output_key(output): {str(bucket): promise.save() for bucket, promise in by_bucket.items()}
        for output, by_bucket in zip(outputs, plan.promises, strict=True)
    }
    log_starts = {str(log): list(start) for log, start in plan.log_starts.items()}
    return RecordedRun(
        script,
        into,
        query_text(plan.plans, (feed.topic for feed in plan.feeds)),
        plan.start_us,
        # As they come back from where they are kept: a run that is started again is the same.
        json.loads(json.dumps(promises)),
        log_starts,
        [pace.every_events, pace.every_us, pace.delay_us],
        {output_key(output): written_places(output) for output in outputs},
        dict(_published(plan)),
        record_functions(plan.plans),
    )


def _published(plan: QueryPlan) -> Iterator[tuple[str, dict[str, int]]]:
    for output in plan.outputs:
        if output.plain_topic:
            sink = PlainTopicSink(plan.kafka, output.plain_topic, output.file_span_us)
            # Without an answer it stays unknown; no result depends on it.
            with suppress(KafkaException):
                first = sink.first_unpublished(range(plan.buckets))
                yield output_key(output), {str(bucket): span for bucket, span in first.items()}
            sink.close()


def promises_of(run: RecordedRun, output: str) -> dict[int, Promise]:
    """Return what earlier runs had promised in the channels of an output, by bucket."""
    return {int(bucket): Promise.restore(saved) for bucket, saved in (run.promises or {}).get(output, {}).items()}


def log_starts_of(run: RecordedRun) -> dict[int, LogStart]:
    """Return where a run began to read its logs."""
    return {int(log): LogStart(*start) for log, start in run.log_starts.items()}


def is_readable(run: RecordedRun) -> bool:
    """Tell whether a verification can begin with an entry. What others have written into a history is no premise."""
    try:
        numbers = [number for each in _all_promises(run) for number in (each.c, each.n, each.ahead, each.largest_us)]
        numbers += [start.offset for start in log_starts_of(run).values()]
        numbers += [span for by_bucket in run.published.values() for span in by_bucket.values()]
    except (AttributeError, TypeError, ValueError):
        return False
    return run.promises is not None and all(isinstance(number, int) for number in numbers)


def own_from_us(run: RecordedRun) -> int:
    """Return the instant, microseconds, from which on results are of this run or a later one; ``NEVER``: all are."""
    # With OVER earlier runs have also written results from their last CTI on, of substreams that were ahead of it.
    return max((max(each.c, each.largest_us + 1) if each.ahead else each.c for each in _all_promises(run)), default=NEVER)


def first_us(run: RecordedRun) -> int:
    """Return the instant, microseconds, before which this run has written nothing; ``NEVER``: there is none."""
    return min((each.c for each in _all_promises(run)), default=NEVER)


def _all_promises(run: RecordedRun) -> list[Promise]:
    return [promise for output in run.promises or {} for promise in promises_of(run, output).values()]


def with_pace(outputs: Sequence[OutputSettings], run: RecordedRun) -> tuple[OutputSettings, ...]:
    """Return outputs with the pace that a run had."""
    names = ("cti_every_events", "cti_every_us", "cti_delay_us")
    pace: Mapping[str, int | None] = dict(zip(names, run.pace, strict=False))
    return tuple(output.model_copy(update=pace) for output in outputs)
