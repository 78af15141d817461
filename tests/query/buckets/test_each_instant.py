"""
The law, without luck: buckets of every kind are cut at every record, begun at every instant with a result, and lose their state anywhere.

Whatever a bucket carries over, saves, looks back at or has promised is needed in one of these runs. The topics are small and always the
same; their writers crash and write again. Each cut has a second one two records later: what is saved twice is restored from two chunks.
"""

from __future__ import annotations

import os
import random
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter

import pytest
from support.bucket_runs import Channel, Row, dense, promise_of, run_bucket
from support.bucket_topics import Line, middle_of, settled_start
from support.query_plans import query_plan

from ordering.ticks import MILLISECOND_US
from query.buckets.make import new_bucket
from query.config import Feed, LogStart, Promise, QueryPlan, Substream
from query.engine.exchange import Exchange
from query.plan.common_keys import common_keys
from query.sql.bind import bind_outputs
from query.start.resumed_results import count_ahead_by_substream
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script

Lines = dict[int, list[Line]]
"""The records of each log."""
WINDOW = "SELECT k, COUNT(*) AS n, COLLECT(v) AS c FROM {a} GROUP BY k, HoppingWindow(ms, 6, 2)"
JOIN = "SELECT x.k AS k, x.v AS v, y.v AS u FROM {a} x LEFT JOIN {b} y ON DATEDIFF(ms, x, y) BETWEEN -1 AND 2 AND x.k = y.k"
UNITED = (
    "WITH u AS (SELECT k, v FROM {a} UNION SELECT k, v FROM {b}) "
    "SELECT k, COUNT(*) AS n, COLLECT(v) AS c FROM u GROUP BY k, HoppingWindow(ms, 6, 3)"
)
TWO_OUTPUTS = (
    "WITH s AS (SELECT k, v FROM {a}) SELECT k, COUNT(*) AS n INTO one FROM s GROUP BY k, TumblingWindow(ms, 4); "
    "SELECT k, v INTO two FROM shift(s, ms, 3)"
)


@dataclass(frozen=True)
class Case:
    """A query over one or two topics, of some seed; *buckets*: of an exchange; *pace*: it follows CTIs after so many events only."""

    sql: str
    seed: int
    over: bool = False
    buckets: int = 0
    is_result: bool = False
    pace: int | None = None

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
        over, time = " OVER k" if self.over else "", "System.Timestamp()" if self.is_result else "t"
        schemas = [
            InputSchema(name, is_result=True)
            if self.is_result
            else InputSchema(name, "t", "k" if self.over else None, {"k": "nvarchar(max)"})
            for name in self.inputs
        ]
        script = self.sql.format(**{name: f"{name} TIMESTAMP BY {time}{over}" for name in self.inputs})
        plans = bind_outputs(parse_script(script), schemas, into=None if "INTO" in script else "one")
        exchange = None
        if self.buckets:
            keys = common_keys(plans)
            assert not isinstance(keys, str)
            exchange = Exchange(keys, self.buckets)
        return query_plan(
            plans,
            [Feed(name, name, 2, is_result=self.is_result) for name in self.inputs],
            {plan.output: {"topic": plan.output, "cti_every_events": self.pace} for plan in plans},
            over=self.over,
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

    def run(self, plan: QueryPlan, number: int, logs: Lines, cut: int | None = None, *, end: bool = True) -> list[Channel]:
        """Return what one bucket says, cut at a place of :func:`offsets_of` or not."""
        read = {log: logs[log] for log in plan.logs_of(number)}
        cuts = None if cut is None else offsets_of(read)[cut : cut + 3 : 2]
        return run_bucket(lambda: new_bucket(plan, number), read, cuts=cuts, end=end).channels

    def in_order(self, rows: list[Row]) -> object:
        """Return results as the law orders them after a start: with OVER over several inputs, or over results, those of each key alone."""
        return sorted(rows, key=itemgetter(1)) if self.over and (self.is_result or len(self.inputs) > 1) else rows


def _place(lines: list[Line], offset: int) -> int:
    return bisect_left(lines, offset, key=itemgetter(0))


def offsets_of(logs: Mapping[int, list[Line]]) -> list[int]:
    """Return every offset before which some record stands, and some after it."""
    return sorted({offset for lines in logs.values() for offset, _ in lines})[1:]


CASES = {
    "merged": Case(TWO_OUTPUTS, 1),
    "merged_join": Case(JOIN, 2),
    "exchange": Case(WINDOW, 3, buckets=2),
    "exchange_of_a_join": Case(JOIN, 4, buckets=2),
    "over": Case(WINDOW, 5, over=True),
    "over_paced": Case(WINDOW, 12, over=True, pace=2),
    "over_two_inputs": Case(UNITED, 11, over=True),
    "over_results": Case(WINDOW, 11, over=True, is_result=True),
}
CUTS, CUTS_AFTER_A_START, LOSSES = (1, 1, 1) if os.environ.get("TIDEGATE_TEST_ALL_CASES") else (2, 11, 4)
"""Of the places where a log can be cut, and where a state can be lost, each so-manieth is tried."""
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@each_case
def test_no_cut_shows(case: Case) -> None:
    """Level 2: the sequence is that of one batch, and each CTI is kept."""
    for number in range(case.plan.buckets):
        whole = [channel.rows for channel in case.run(case.plan, number, case.logs)]
        assert any(whole)
        for cut in range(0, len(offsets_of({log: case.logs[log] for log in case.plan.logs_of(number)})), CUTS):
            said = case.run(case.plan, number, case.logs, cut)
            assert [channel.rows for channel in said] == whole, cut
            for channel in said:
                channel.check()


@each_case
def test_no_start_shows_and_no_cut_after_it(case: Case) -> None:
    """Levels 2 and 3: begun at S and cut anywhere, a bucket gives the results from S on of one run from the beginning."""
    for number in range(case.plan.buckets):
        whole = [channel.rows for channel in case.run(case.plan, number, case.logs)]
        for place, start_us in enumerate(sorted({row[0] for rows in whole for row in rows})):
            plan, logs = case.begin(replace(case.plan, start_us=start_us))
            # Only an exchange routes what it carries again: it is cut at every record, the others at some, in turns.
            step = 1 if case is CASES["exchange"] else CUTS_AFTER_A_START
            for cut in range(place % step, len(offsets_of({log: logs[log] for log in plan.logs_of(number)})), step):
                for channel, rows in zip(case.run(plan, number, logs, cut), whole, strict=True):
                    assert case.in_order(channel.rows) == case.in_order([row for row in rows if row[0] >= start_us]), (start_us, cut)
                    channel.check()


@each_case
@pytest.mark.parametrize("is_begun", [False, True])
def test_no_loss_of_a_state_shows_and_no_cut_after_it(case: Case, is_begun: bool) -> None:
    """Level 2: a bucket whose state is lost after any record goes on from the last CTIs of its channels, wherever it is cut then."""
    chance, first = random.Random(case.seed), case.plan
    if is_begun:
        instants = sorted({row[0] for channel in case.run(first, 0, case.logs) for row in channel.rows})
        first, _ = case.begin(replace(first, start_us=instants[len(instants) // 2]))
    wholes = [case.run(first, number, case.begin(first)[1]) for number in range(first.buckets)]
    for lost_at in offsets_of(case.logs)[is_begun::LOSSES]:
        read = {log: lines[: _place(lines, lost_at)] for log, lines in case.begin(first)[1].items()}
        found = [case.run(first, number, read, end=False) for number in range(first.buckets)]
        outputs = range(len(first.outputs))
        promises = [{at: _promise(case, each[output]) for at, each in enumerate(found) if each[output].ctis} for output in outputs]
        plan, logs = case.begin(replace(first, promises=tuple(promises)))
        for number, whole in enumerate(wholes):
            places = len(offsets_of({log: logs[log] for log in plan.logs_of(number)}))
            said = case.run(plan, number, logs, chance.randrange(places) if places else None)
            for output, channel in enumerate(said):
                written = found[number][output].rows if number in promises[output] else []
                channel.check(written)
                assert case.in_order(written + channel.rows) == case.in_order(whole[output].rows), lost_at


def test_each_log_is_read_from_where_its_order_is_settled() -> None:
    """Not from where the run needs it; a log that is nowhere settled by the normal rule."""
    plan = replace(CASES["over"].plan, start_us=9_000, log_starts={0: LogStart(5_000, 0), 1: LogStart(None, 0)})
    assert [new_bucket(plan, number).readers[number].start_us for number in range(2)] == [5_000, None]


def _promise(case: Case, channel: Channel) -> Promise:
    """What the last CTI of a channel promised, in which every result was written."""
    promise = promise_of(channel.ctis[-1][1])
    if not (case.over and (case.is_result or len(case.inputs) > 1)):
        return promise
    counted = count_ahead_by_substream(promise, {seq: (us, Substream(0, key)) for seq, (us, key, _) in enumerate(channel.rows)})
    assert counted is not None
    return counted
