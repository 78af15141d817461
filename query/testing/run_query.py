"""
A query run on rows in memory: rows in, results out, in this process, in milliseconds.

Law: results are those of a job over the same events, in the order in which it writes them; where batches end changes nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import orjson

from ordering.model.step import Reason
from query.testing.input_files import Rows
from query.testing.ordered_inputs import OrderedInputs
from query.testing.user_code import UserFunction
from query.testing.user_query import OpenQuery, QueryText, user_query
from query.testing.walk import Interruption, Walked, walk

Cuts = Literal["random"] | Sequence[int] | None
"""Where batches end: anywhere, with restarts; after these numbers of records; only at the end."""


@dataclass(frozen=True)
class Result:
    """A result: ``System.Timestamp`` in microseconds, its columns, and the bytes that a topic gets."""

    system_us: int
    row: dict[str, Any]
    key: bytes
    value: bytes


@dataclass(frozen=True)
class Fate:
    """
    What became of an event.

    Args:
        line: Its place in the input, from 1.
        kind: Whether it is in order unchanged, moved to another time by a policy, dropped by one, or a record that cannot be used.
        reason: The policy that dropped it, or why it cannot be used.
        system_us: Its ``System.Timestamp``, microseconds; None if it has none.
    """

    input: str
    line: int
    kind: Literal["in order", "adjusted", "dropped", "bad"]
    reason: str = ""
    system_us: int | None = None


@dataclass(frozen=True)
class QueryRun:
    """The results of each output, the fate of each event, and the reasons of rows that failed in the query."""

    results_by_output: Mapping[str, list[Result]]
    fates: list[Fate]
    dead: list[str]

    @property
    def results(self) -> list[Result]:
        """The results of a query with one output."""
        (results,) = self.results_by_output.values()
        return results

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The columns of the results of a query with one output."""
        return [result.row for result in self.results]


def run_query(
    query: QueryText,
    inputs: Mapping[str, Rows],
    policies: Mapping[str, str] | None = None,
    *,
    cuts: Cuts = "random",
    functions: Mapping[str, UserFunction] | None = None,
    references: Mapping[str, Rows] | None = None,
    config: Path | None = None,
    seed: int = 0,
) -> QueryRun:
    """
    Run a query to the end of its inputs.

    Args:
        query: SQL, a query of ``tidegate.query.api``, the path of a script, or the name of a query that an installed package offers.
        inputs: The events of each input in the order in which they come: rows, NDJSON, Arrow, or a file.
        policies: Time policies, named as the flags of ``tidegate local``: ``{"late": "5m"}``.
        cuts: Where batches end.
        functions: Functions, aggregates and operators that no installed package offers, by their names in scripts without ``udf.``.
        references: The tables that JOIN looks up, in the same forms.
        config: The path of a ``tidegate.toml`` that says more about inputs.
        seed: Draws random cuts.

    Raises:
        QueryError: The script is wrong, or an operator stopped the query.
        OrderFileError: An input cannot be read.
    """
    with user_query(query, functions, policies, config, references).open(inputs) as opened:
        ordered = opened.order(2**20 if cuts is None else 1)
        walked = walk(opened.bucket, ordered.pieces, len(opened.outputs), _interruptions(cuts, len(ordered.pieces), seed))
        return _as_run(opened, ordered, walked)


def ordered_topic(rows: Rows, policies: Mapping[str, str] | None = None, *, timestamp_by: str, over: str | None = None) -> list[Result]:
    """
    Return the events of an ordered topic: the rows in their order by *timestamp_by*, with the key that *over* names.

    Raises:
        OrderFileError: The rows cannot be read.
    """
    clause = f"TIMESTAMP BY {timestamp_by}" + (f" OVER {over}" if over else "")
    with user_query(f"SELECT * FROM rows {clause}", policies=policies).open({"rows": rows}) as opened:
        ordered = opened.order(1)
    events: list[Result] = []
    for _, decoded in ordered.pieces:
        columns = (decoded.events[name].to_pylist() for name in ("system_us", "key", "value"))
        events += [Result(us, orjson.loads(value), key or b"", value) for us, key, value in zip(*columns, strict=True)]
    return events


def _interruptions(cuts: Cuts, pieces: int, seed: int) -> list[Interruption]:
    if cuts is None:
        return []
    if cuts != "random":
        return [Interruption(int(after), "restart") for after in cuts]
    chance = random.Random(seed)
    return [Interruption(after, chance.choice(["cut", "restart"])) for after in range(pieces) if chance.random() < 0.3]


def _as_run(opened: OpenQuery, ordered: OrderedInputs, walked: Walked) -> QueryRun:
    if opened.script.has_over:
        # Substreams know nothing of each other's time: as in result files, their results are sorted by time and key.
        walked.results = [sorted(rows, key=itemgetter(0, 1)) for rows in walked.results]
    results = {
        output: [Result(us, orjson.loads(value), key, value) for us, key, value in rows]
        for output, rows in zip(opened.outputs, walked.results, strict=True)
    }
    return QueryRun(results, sorted(_fates(ordered), key=lambda fate: (fate.input, fate.line)), [reason for reason, _ in walked.dead])


def _fates(ordered: OrderedInputs) -> Iterator[Fate]:
    for log, step in ordered.steps:
        name, left, dropped = ordered.names[log], step.released, step.dropped
        for offset, system_us, event_us in zip(*(part.tolist() for part in (left.offset, left.system_us, left.event_time_us)), strict=True):
            yield Fate(name, offset, "in order" if system_us == event_us else "adjusted", "", system_us)
        for offset, reason in zip(dropped.offset.tolist(), dropped.reason.tolist(), strict=True):
            yield Fate(name, offset, "dropped", Reason(reason).name.lower())
    for bad in ordered.bad:
        yield Fate(bad.input or "", bad.line or 0, "bad", bad.reason)
