"""
The law, without luck: buckets of every kind, begun at every instant that has a result, or again after any record, and then cut.

Whatever a bucket carries over, saves, looks back at or has promised is needed in one of these runs. The topics are small and always the
same; their writers crash and write again.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter

import pytest
from support.bucket_runs import Channel, Row, dense, promise_of, run_bucket
from support.bucket_topics import Line, middle_of, settled_start

from ordering.ticks import INFINITY, MILLISECOND_US
from query.buckets.make import new_bucket
from query.config import Feed, Promise, QueryPlan
from query.engine.exchange import Exchange
from query.plan.common_keys import common_keys
from query.sql.bind import bind_outputs
from query.start.resumed_results import count_ahead_by_key
from tidegate.expressions.binding.input_schema import InputSchema
from tidegate.expressions.syntax.parse import parse_script
from tidegate.settings.tables.outputs import OutputSettings

Lines = dict[int, list[Line]]
"""The records of each log."""
WINDOW = "SELECT k, COUNT(*) AS n, COLLECT(v) AS c FROM {a} GROUP BY k, HoppingWindow(ms, 6, 2)"
JOIN = "SELECT x.k AS k, x.v AS v, y.v AS u FROM {a} x LEFT JOIN {b} y ON DATEDIFF(ms, x, y) BETWEEN -1 AND 2 AND x.k = y.k"


@dataclass(frozen=True)
class Case:
    """A query over one or two topics, of some seed; *buckets*: of an exchange."""

    sql: str
    seed: int
    over: bool = False
    buckets: int = 0

    @property
    def inputs(self) -> list[str]:
        """The topics that it reads."""
        return [name for name in "ab" if f"{{{name}}}" in self.sql]

    @cached_property
    def logs(self) -> Lines:
        """All that brokers hold."""
        raws = [dense(self.seed + at, 4, tick_us=MILLISECOND_US) for at in range(len(self.inputs))]
        topics = [raw.topic(self.seed, 2, over=self.over, vouched=True) for raw in raws]
        return dict(enumerate(lines for topic in topics for lines in topic.partitions))

    @cached_property
    def plan(self) -> QueryPlan:
        """The job, from the beginning."""
        schemas = [InputSchema(name, "t", "k" if self.over else None, {"k": "nvarchar(max)"}) for name in self.inputs]
        read = {name: f"{name} TIMESTAMP BY t{' OVER k' if self.over else ''}" for name in self.inputs}
        plans = bind_outputs(parse_script(self.sql.format(**read)), schemas, into="out")
        exchange = None
        if self.buckets:
            keys = common_keys(plans)
            assert not isinstance(keys, str)
            exchange = Exchange(keys, self.buckets)
        return QueryPlan(
            plans,
            (OutputSettings.model_validate({"__name__": "out", "topic": "out"}),),
            {},
            tuple(Feed(name, name, 2) for name in self.inputs),
            over=self.over,
            by_partition=False,
            labels=(0,),
            starts={},
            start_us=None,
            promises=({},),
            until_us=INFINITY,
            until_end=False,
            events_per_batch=1,
            bytes_per_batch=1,
            join_pairs_max=1_000,
            shuffle_partitions=1,
            checkpoint="",
            exchange=exchange,
        )

    def begin(self, plan: QueryPlan) -> tuple[QueryPlan, Lines]:
        """Return a job, and the logs from where it begins to read them."""
        if plan.read_from_us is None:
            return plan, self.logs
        if not self.over:
            return plan, {log: middle_of(lines, plan.read_from_us, 0) for log, lines in self.logs.items()}
        starts = {log: settled_start(lines, plan.read_from_us, plan.logs[log][1], 2) for log, lines in self.logs.items()}
        return replace(plan, log_starts=starts), {log: lines[_place(lines, starts[log].offset) :] for log, lines in self.logs.items()}

    def run(self, plan: QueryPlan, number: int, logs: Lines, cut: int | None = None, *, end: bool = True) -> Channel:
        """Return what one bucket says, cut before an offset or not."""
        said = run_bucket(lambda: new_bucket(plan, number), {log: logs[log] for log in plan.logs_of(number)}, cuts=cut, end=end)
        (channel,) = said.channels
        return channel

    def in_order(self, rows: list[Row]) -> object:
        """Return results as the law orders them: with OVER over several inputs those of each key alone."""
        return sorted(rows, key=itemgetter(1)) if self.over and len(self.inputs) > 1 else rows


def _place(lines: list[Line], offset: int) -> int:
    return bisect_left(lines, offset, key=itemgetter(0))


CASES = {
    "merged": Case(WINDOW, 1),
    "merged join": Case(JOIN, 2),
    "exchange": Case(WINDOW, 3, buckets=2),
    "exchange of a join": Case(JOIN, 4, buckets=2),
    "over": Case(WINDOW, 5, over=True),
    "over a join": Case(JOIN, 6, over=True),
}
LOSSES = 1 if os.environ.get("TIDEGATE_TEST_ALL_CASES") else 3
"""The state is lost after each so many records."""
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def offsets_of(logs: Mapping[int, list[Line]]) -> Iterator[int]:
    """Every offset before which some record stands, and some after it."""
    yield from sorted({offset for lines in logs.values() for offset, _ in lines})[1:]


@each_case
def test_no_start_shows_and_no_cut_after_it(case: Case) -> None:
    """Levels 2 and 3: begun at S and cut anywhere, a bucket gives the results from S on of one run from the beginning."""
    for number in range(case.plan.buckets):
        whole = case.run(case.plan, number, case.logs).rows
        assert whole
        for place, start_us in enumerate(sorted({row[0] for row in whole})):
            plan, logs = case.begin(replace(case.plan, start_us=start_us))
            expected = [row for row in whole if row[0] >= start_us]
            # Only an exchange routes what it carries again: it is cut at every record, the others at each eleventh, in turns.
            step = 1 if case is CASES["exchange"] else 11
            for cut in list(offsets_of(logs))[place % step :: step]:
                said = case.run(plan, number, logs, cut)
                assert case.in_order(said.rows) == case.in_order(expected), (start_us, cut)
                said.check()


@each_case
def test_no_loss_of_a_state_shows_and_no_cut_after_it(case: Case) -> None:
    """Level 2: a bucket whose state is lost after any record goes on from the last CTI of its channel, wherever it is cut then."""
    wholes = [case.run(case.plan, number, case.logs) for number in range(case.plan.buckets)]
    for place, lost_at in enumerate(list(offsets_of(case.logs))[::LOSSES]):
        read = {log: lines[: _place(lines, lost_at)] for log, lines in case.logs.items()}
        found = [case.run(case.plan, number, read, end=False) for number in range(case.plan.buckets)]
        promises = {number: _promise(case, channel) for number, channel in enumerate(found) if channel.ctis}
        plan, logs = case.begin(replace(case.plan, promises=(promises,)))
        for number, whole in enumerate(wholes):
            written = found[number].rows if number in promises else []
            cuts = list(offsets_of(logs))
            cut = cuts[5 * place % len(cuts)] if cuts else None
            said = case.run(plan, number, logs, cut)
            said.check(written)
            assert case.in_order(written + said.rows) == case.in_order(whole.rows), (lost_at, cut)


def _promise(case: Case, channel: Channel) -> Promise:
    """What the last CTI of a channel promised, in which every result was written."""
    promise = promise_of(channel.ctis[-1][1])
    if not (case.over and len(case.inputs) > 1):
        return promise
    counted = count_ahead_by_key(promise, {seq: row[:2] for seq, row in enumerate(channel.rows)})
    assert counted is not None
    return counted
