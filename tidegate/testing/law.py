"""
The law of a query, tried: the same bytes out, whatever happens to it on the way.

``law_of`` draws events that are late, tied or silent, runs the query over them in one batch, and then again

- cut into batches, with workers that restart or are killed, each with code that is loaded anew (levels 2 and 3),
- over a log that its writer wrote twice in part,
- from an output start in the middle: it gives the undisturbed run's results from there on,
- by several workers that share the keys (without OVER), or with the keys on several partitions (with OVER),
- in another interpreter, with another hash seed, time zone and clock.

Law of this module: what fails is made smaller for a bounded time, and told with the fewest events found by then. The draws are the same
on every run, so a test is not red by chance.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import orjson
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ordering.errors import TidegateError
from ordering.protocol.punctuation import Roster, Spread
from ordering.ticks import format_tick
from query.buckets.bucket import Bucket, BucketConfig, SourceTopic
from query.buckets.exchanged import ExchangedBucket
from query.engine.exchange import Exchange, Router
from query.plan.parallelism import decide_parallelism
from tidegate.testing.case_folder import write_case
from tidegate.testing.disorder import events
from tidegate.testing.input_files import Row
from tidegate.testing.law_broken import LawBrokenError
from tidegate.testing.ordered_inputs import Piece, repeat_pieces
from tidegate.testing.other_interpreter import other_interpreter
from tidegate.testing.sink_law import SinkUnderTest, law_of_sink
from tidegate.testing.user_code import UserFunction
from tidegate.testing.user_query import OpenQuery, QueryText, UserQuery, user_query
from tidegate.testing.walk import Interruption, TimedValue, Walked, walk

EXAMPLES = 8
"""How many logs are drawn; each is run about six times."""
POLICIES = {"late": "1h", "reorder": "1s"}
SHRINK_S = 20.0
"""For how long a failure is made smaller at most, seconds."""
_WORKERS = 2
Drawn = tuple[dict[str, list[dict[str, Any]]], list[Interruption], int]


def law_of(
    query: QueryText | SinkUnderTest,
    inputs: Mapping[str, Sequence[Row]] | None = None,
    *,
    policies: Mapping[str, str] | None = None,
    functions: Mapping[str, UserFunction] | None = None,
    config: Path | None = None,
    examples: int = EXAMPLES,
    case_folder: Path | None = None,
    shrink_s: float = SHRINK_S,
) -> None:
    """
    Check that a query, or a sink, keeps the law.

    Args:
        query: SQL, a script's path, a query of ``tidegate.query.api``, or a sink.
        inputs: For each input a few rows as examples of its fields; their times are replaced.
        policies: Time policies, named as the flags of ``tidegate local``.
        functions: Functions, aggregates and operators that no installed package offers, by their names in scripts.
        config: The path of a ``tidegate.toml`` that says more about inputs.
        examples: How many logs are drawn.
        shrink_s: For how long a failure is made smaller at most, seconds.
        case_folder: Where the case of a failure is written; by default a new folder for temporary files.

    Raises:
        LawBrokenError: It does not keep the law; the text says what differed, with the fewest events found that show it.
        QueryError: The script is wrong.
    """
    if isinstance(query, SinkUnderTest):
        law_of_sink(query)
        return
    given_rows = dict(inputs or {})
    tried = user_query(query, functions, policies or POLICIES, config)
    with tried.open(given_rows) as opened:
        strategy = _draws(opened, given_rows)

    failures: dict[str, tuple[str, Mapping[str, Sequence[Row]], Mapping[str, Sequence[bytes]]]] = {}
    shrink_until_s = [0.0]

    def check(drawn: Drawn) -> None:
        # What was found once is found again, even if the code is random; shrinking ends after a while.
        if (known := failures.get(repr(drawn))) is not None:
            raise _Found(*known)
        if failures and time.monotonic() > shrink_until_s[0]:
            return
        rows, interruptions, middle = drawn
        with tried.open(rows) as opened:
            trial = _Trial(tried, opened, rows)
            if (sentence := trial.find_difference(interruptions, middle)) is not None:
                if not failures:
                    shrink_until_s[0] = time.monotonic() + shrink_s
                failures[repr(drawn)] = (sentence, rows, trial.expected)
                raise _Found(*failures[repr(drawn)])

    phases = (Phase.generate, Phase.shrink)
    quiet = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=phases,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    try:
        quiet(given(strategy)(check))()
    except BaseException as error:
        found = _found_in(error)
        if found is None:
            raise
        folder = case_folder or Path(mkdtemp(prefix="tidegate-case-"))
        listing = write_case(folder, tried, found.rows, found.expected, found.sentence)
        raise LawBrokenError(found.sentence, folder, listing) from None


class _Found(Exception):
    def __init__(self, sentence: str, rows: Mapping[str, Sequence[Row]], expected: Mapping[str, Sequence[bytes]]) -> None:
        super().__init__(sentence)
        self.sentence, self.rows, self.expected = sentence, rows, expected


def _found_in(error: BaseException) -> _Found | None:
    """Return the failure that was shrunk; code that is random fails in another way each time, which is reported as a group."""
    if isinstance(error, _Found):
        return error
    nested = [*getattr(error, "exceptions", ()), error.__cause__, error.__context__]
    return next((found for inner in nested if inner is not None and (found := _found_in(inner)) is not None), None)


def _draws(opened: OpenQuery, examples: Mapping[str, Sequence[Row]]) -> st.SearchStrategy[Drawn]:
    logs = {scan.input: events(scan, examples[scan.input], opened.lookback_us) for scan in opened.script.scans}
    place = st.integers(1, 14)
    kinds = st.sampled_from(["restart", "restart", "cut", "kill"])
    interruption = st.builds(Interruption, place, kinds, st.integers(1, 3))
    return st.tuples(st.fixed_dictionaries(logs), st.lists(interruption, min_size=1, max_size=6), st.integers(0, 10))


def results_elsewhere(query: UserQuery, rows: Mapping[str, Sequence[Row]]) -> Walked:
    """Return the results of the undisturbed run; called in another interpreter too."""
    with query.open(rows) as opened:
        return walk(opened.bucket, opened.order(1).pieces, len(opened.outputs))


class _Trial:
    """One log, and the runs over it."""

    def __init__(self, query: UserQuery, opened: OpenQuery, rows: Mapping[str, Sequence[Row]]) -> None:
        self._query, self._opened, self._rows = query, opened, rows
        self.expected: dict[str, list[bytes]] = {}

    def find_difference(self, interruptions: Sequence[Interruption], middle: int) -> str | None:
        """Return what differs, as a sentence; None if nothing does."""
        pieces = self._opened.order(1).pieces
        try:
            whole = self._walk(pieces)
        except TidegateError as error:
            return f"the query stopped in an undisturbed run: {error}"
        self.expected = {name: [value for _, _, value in rows] for name, rows in zip(self._opened.outputs, whole.results, strict=True)}
        for what, run in self._runs(pieces, interruptions, middle, whole):
            try:
                difference = run()
            except TidegateError as error:
                return f"{what} the query stopped: {error}"
            if difference is not None:
                return f"{what} {difference}".lstrip()
        return None

    def _runs(
        self, pieces: Sequence[Piece], interruptions: Sequence[Interruption], middle: int, whole: Walked
    ) -> Iterator[tuple[str, Callable[[], str | None]]]:
        has_over = self._opened.script.has_over
        yield "", lambda: self._interrupt(pieces, interruptions, whole)
        end = 1 + middle % len(pieces)
        repeated = repeat_pieces(pieces, end, 3)
        yield f"after the log's writer wrote the events before event {end + 1} twice", lambda: self._differ(whole, self._walk(repeated))
        times = sorted({us for rows in whole.results for us, _, _ in rows})
        if times:
            start_us = times[middle % len(times)]
            later = Walked([[row for row in rows if row[0] >= start_us] for rows in whole.results])
            yield f"in a run that starts at {format_tick(start_us)}", lambda: self._start(pieces, start_us, later)
        if has_over:
            yield "with the keys on several partitions", lambda: self._apart(whole)
        else:
            yield f"by {_WORKERS} workers that share the keys", lambda: self._share(pieces, whole)
        yield "in another interpreter (hash seed, time zone, clock)", lambda: self._differ(whole, self._elsewhere())

    def _interrupt(self, pieces: Sequence[Piece], interruptions: Sequence[Interruption], whole: Walked) -> str | None:
        difference = self._differ(whole, self._walk(pieces, interruptions))
        if difference is None:
            return None
        # Only now the single ones are tried: the sentence names one if one is enough.
        if (second := self._differ(whole, self._walk(pieces))) is not None:
            return f"in a second run {second}"
        for each in sorted(set(interruptions)):
            if (single := self._differ(whole, self._walk(pieces, [each]))) is not None:
                return f"{_describe(each)} {single}"
        return f"{', then '.join(_describe(each) for each in sorted(set(interruptions)))} {difference}"

    def _walk(self, pieces: Sequence[Piece], interruptions: Sequence[Interruption] = ()) -> Walked:
        return walk(self._opened.bucket, pieces, len(self._opened.outputs), interruptions)

    def _differ(self, whole: Walked, found: Walked) -> str | None:
        for name, expected, actual in zip(self._opened.outputs, whole.results, found.results, strict=True):
            if (difference := _first_difference(name, expected, actual)) is not None:
                return difference
        if sorted(whole.dead) != sorted(found.dead):
            return f"the dead letters are {_reasons(found)}; undisturbed they are {_reasons(whole)}"
        return None

    def _elsewhere(self) -> Walked:
        walked: Walked = other_interpreter().call(results_elsewhere, self._query, dict(self._rows))
        return walked

    def _start(self, pieces: Sequence[Piece], start_us: int, later: Walked) -> str | None:
        found = walk(lambda: self._opened.bucket(start_us), pieces, len(later.results))
        found.dead = []
        if self._opened.script.has_over:
            _sort_keys(found)
            _sort_keys(later)
        return self._differ(later, found)

    def _apart(self, whole: Walked) -> str | None:
        """With OVER, run each key's events by themselves."""
        overs = {scan.input: str(scan.over) for scan in self._opened.script.scans}
        groups: dict[str, dict[str, list[Row]]] = {}
        for name, rows in self._rows.items():
            fields = [part.split(".") for part in re.findall(r"[\w.]+", overs[name])]
            for row in rows:
                key = orjson.dumps([_value(row, path) for path in fields]).decode()
                groups.setdefault(key, {other: [] for other in self._rows})[name].append(row)
        if len(groups) < 2 or any(not rows for group in groups.values() for rows in group.values()):
            return None
        merged = Walked.before_start(len(whole.results))
        for group in groups.values():
            part = results_elsewhere(self._query, group)
            for into, part_rows in zip(merged.results, part.results, strict=True):
                into += part_rows
        merged.dead, whole = list(whole.dead), whole.copy()
        _sort_keys(merged)
        _sort_keys(whole)
        return self._differ(whole, merged)

    def _share(self, pieces: Sequence[Piece], whole: Walked) -> str | None:
        """Without OVER, let several buckets share the keys, if the query has common ones."""
        script = self._opened.script
        names = [scan.input for scan in script.scans]
        keys = decide_parallelism(script.plans, dict.fromkeys(names), dict.fromkeys(names, _WORKERS)).keys
        if not keys:
            return None
        exchange = Exchange(keys, _WORKERS)
        merged = Walked.before_start(len(whole.results))
        for number in range(_WORKERS):

            def make(number: int = number) -> Bucket:
                sources = [SourceTopic(name, 1, {index: 0}) for index, name in enumerate(names)]
                config = BucketConfig(sources, number, Roster(1, _WORKERS, Spread.ONE, False))
                return ExchangedBucket(self._opened.program(), config, Router(exchange, {}))

            part = walk(make, pieces, len(whole.results))
            merged.dead += part.dead
            for into, rows in zip(merged.results, part.results, strict=True):
                into += rows
        expected = whole.copy()
        for each in (merged, expected):
            each.results = [sorted(rows) for rows in each.results]
        return self._differ(expected, merged)


def _describe(interruption: Interruption) -> str:
    between = f"between events {interruption.after} and {interruption.after + 1}"
    match interruption.kind:
        case "cut":
            return f"after a batch ended {between}"
        case "restart":
            return f"after a restart {between}"
    return f"after a kill {between} that went back {interruption.back} saves"


def _first_difference(output: str, expected: Sequence[TimedValue], actual: Sequence[TimedValue]) -> str | None:
    place = next((at for at, pair in enumerate(zip(expected, actual, strict=False)) if pair[0] != pair[1]), min(len(expected), len(actual)))
    if place == len(expected) == len(actual):
        return None
    shown = [_show(rows[place]) if place < len(rows) else "missing" for rows in (actual, expected)]
    return f"result {place + 1} of {output} is {shown[0]}; undisturbed it is {shown[1]}"


def _show(row: TimedValue) -> str:
    return f"{row[2].decode(errors='replace')} at {format_tick(row[0])}"


def _reasons(walked: Walked) -> str:
    return ", ".join(sorted(reason for reason, _ in walked.dead)) or "none"


def _sort_keys(walked: Walked) -> None:
    walked.results = [sorted(rows) for rows in walked.results]


def _value(row: Any, path: Sequence[str]) -> Any:
    for name in path:
        row = row.get(name) if isinstance(row, Mapping) else None
    return row
