"""
One log of a query under test, and the runs over it: an undisturbed one, and others whose results must be the same bytes.

Law: a disturbance changes no result, so whatever differs is a fault of the query's own code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import orjson

from ordering.errors import TidegateError
from ordering.protocol.punctuation import Roster, Spread
from ordering.ticks import format_tick
from query.buckets.bucket import Bucket, BucketConfig, SourceTopic
from query.buckets.exchanged import ExchangedBucket
from query.engine.exchange import Exchange, Router
from query.plan.parallelism import decide_parallelism
from query.testing.disturbance import Disturbance
from query.testing.input_files import Row, Rows, read_rows
from query.testing.ordered_inputs import Piece, repeat_pieces, tear_pieces
from query.testing.other_interpreter import other_interpreter
from query.testing.user_query import OpenQuery, UserQuery
from query.testing.walk import Interruption, TimedValue, Walked, walk

_WORKERS = 2
_REPEATED = 3


def results_elsewhere(query: UserQuery, rows: Mapping[str, Rows]) -> Walked:
    """Return the results of the undisturbed run; called in another interpreter too."""
    with query.open(rows) as opened:
        return walk(opened.bucket, opened.order(1).pieces, len(opened.outputs))


@contextmanager
def open_trial(query: UserQuery, rows: Mapping[str, Rows]) -> Iterator[Trial]:
    """Open a query over a log."""
    with query.open(rows) as opened:
        yield Trial(query, opened, rows)


class Trial:
    """One log, and the runs over it."""

    def __init__(self, query: UserQuery, opened: OpenQuery, rows: Mapping[str, Rows]) -> None:
        self._query, self._opened, self._rows = query, opened, rows

    @cached_property
    def _pieces(self) -> list[Piece]:
        return self._opened.order(1).pieces

    @cached_property
    def _whole(self) -> Walked:
        return self._walk(self._pieces)

    def find_difference(self, interruptions: Sequence[Interruption], place: int) -> tuple[str, Disturbance] | None:
        """Try each kind of disturbance; return what differs, as a sentence, and the disturbance; None if nothing does."""
        # The other interpreter computes while this one does.
        other_interpreter().ask(results_elsewhere, self._query, dict(self._rows))
        ordered = tuple(sorted(set(interruptions)))
        # State that a restart clears shows only where the same worker goes on.
        cuts = tuple(Interruption(after, "cut") for after in range(1 + place % 2, len(self._pieces), 2))
        kinds: list[Disturbance] = [
            Disturbance("undisturbed"),
            Disturbance("interrupted", ordered),
            *([Disturbance("interrupted", cuts)] if cuts else []),
            Disturbance("torn" if place % 3 else "repeated", place=place),
            Disturbance("started", place=place),
            Disturbance("apart" if self._opened.script.has_over else "shared"),
        ]
        for disturbance in kinds:
            if (sentence := self.differ(disturbance)) is None:
                continue
            # Only now the single ones are tried: the sentence names one if one is enough.
            single = [Disturbance("again"), *(Disturbance("interrupted", (each,)) for each in disturbance.interruptions)]
            for less in single if disturbance.kind == "interrupted" else ():
                if (said := self.differ(less)) is not None:
                    return said, less
            return sentence, disturbance
        elsewhere = Disturbance("elsewhere")
        sentence = self._tell(elsewhere, lambda: self._differ(self._whole, other_interpreter().answer()))
        return None if sentence is None else (sentence, elsewhere)

    def differ(self, disturbance: Disturbance) -> str | None:
        """Return what differs in a disturbed run, as a sentence; None if nothing does."""
        return self._tell(disturbance, lambda: self._run(disturbance))

    def _tell(self, disturbance: Disturbance, run: Callable[[], str | None]) -> str | None:
        try:
            difference = run()
        except TidegateError as error:
            difference = f"the query stopped: {error}"
        return None if difference is None else f"{self._describe(disturbance)} {difference}"

    def _run(self, disturbance: Disturbance) -> str | None:
        match disturbance.kind:
            case "undisturbed":
                return self._differ(self._whole, self._whole)
            case "again":
                return self._differ(self._whole, self._walk(self._pieces))
            case "interrupted":
                return self._differ(self._whole, self._walk(self._pieces, disturbance.interruptions))
            case "repeated":
                return self._differ(self._whole, self._walk(repeat_pieces(self._pieces, self._repeat_end(disturbance), _REPEATED)))
            case "torn":
                return self._tear(disturbance)
            case "started":
                return self._start(disturbance)
            case "apart":
                return self._apart()
            case "shared":
                return self._share()
        return self._differ(self._whole, other_interpreter().call(results_elsewhere, self._query, dict(self._rows)))

    def _describe(self, disturbance: Disturbance) -> str:
        match disturbance.kind:
            case "undisturbed":
                return "in an undisturbed run"
            case "again":
                return "in a second run"
            case "interrupted":
                return ", then ".join(_describe(each) for each in disturbance.interruptions)
            case "repeated":
                return f"after the log's writer wrote the events before event {self._repeat_end(disturbance) + 1} twice"
            case "torn":
                return f"after the log's writer was torn off before event {self._repeat_end(disturbance) + 1} and began again"
            case "started":
                return f"in a run that starts at {format_tick(self._start_us(disturbance) or 0)}"
            case "apart":
                return "with the keys on several partitions"
            case "shared":
                return f"by {_WORKERS} workers that share the keys"
        return "in another interpreter (hash seed, time zone, clock)"

    def _repeat_end(self, disturbance: Disturbance) -> int:
        return 1 + disturbance.place % len(self._pieces)

    def _start_us(self, disturbance: Disturbance) -> int | None:
        times = sorted({us for rows in self._whole.results for us, _, _ in rows})
        return times[disturbance.place % len(times)] if times else None

    def _walk(self, pieces: Sequence[Piece], interruptions: Sequence[Interruption] = ()) -> Walked:
        return walk(self._opened.bucket, pieces, len(self._opened.outputs), interruptions)

    def _differ(self, whole: Walked, found: Walked) -> str | None:
        for name, expected, actual in zip(self._opened.outputs, whole.results, found.results, strict=True):
            if (difference := _first_difference(name, expected, actual)) is not None:
                return difference
        if sorted(whole.dead) != sorted(found.dead):
            return f"the dead letters are {_reasons(found)}; undisturbed they are {_reasons(whole)}"
        return None

    def _tear(self, disturbance: Disturbance) -> str | None:
        """With CTIs at other places substreams move at other records, so with OVER each key has its results by itself (level 3)."""
        whole, found = self._whole, self._walk(tear_pieces(self._pieces, self._repeat_end(disturbance), _REPEATED))
        if self._opened.script.has_over:
            whole = whole.copy()
            _sort_keys(whole)
            _sort_keys(found)
        return self._differ(whole, found)

    def _start(self, disturbance: Disturbance) -> str | None:
        start_us = self._start_us(disturbance)
        if start_us is None:
            return None
        later = Walked([[row for row in rows if row[0] >= start_us] for rows in self._whole.results])
        found = walk(lambda: self._opened.bucket(start_us), self._pieces, len(later.results))
        found.dead = []
        if self._opened.script.has_over:
            _sort_keys(found)
            _sort_keys(later)
        return self._differ(later, found)

    def _apart(self) -> str | None:
        """With OVER, run each key's events by themselves."""
        whole = self._whole
        overs = {scan.input: str(scan.over) for scan in self._opened.script.scans}
        groups: dict[str, dict[str, list[Row]]] = {}
        for name, rows in self._rows.items():
            fields = [part.split(".") for part in re.findall(r"[\w.]+", overs[name])]
            for row in read_rows(rows):
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

    def _share(self) -> str | None:
        """Without OVER, let several buckets share the keys, if the query has common ones."""
        whole = self._whole
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

            part = walk(make, self._pieces, len(whole.results))
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
