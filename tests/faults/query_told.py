"""
What query jobs must write, told without Kafka and Spark, and what stands in their result topics held against it.

- With OVER, level 2: each bucket's results are the sequence that one uncut walk over its log gives.
- Without OVER, level 3: they are what one uncut walk gives over *another* topic, which other writers made of the same raw
  logs into another number of partitions; the whole sequence where there is one bucket, else each bucket in its order.
- Questions (``bucket_oracle``) are told by plain Python, one record at a time, which shares nothing with the engine.
- From S on, level 3: the results with s >= S, and no others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from support.bucket_oracle import Question, Walk, merged
from support.bucket_runs import Raw, Row, bucket_of, run_bucket, works_of
from support.bucket_topics import Topic, to_oracle
from support.law_breaches import demand
from support.query_kinds import FUNCTION_TABLES, INPUT, read_kinds, reference_from, schema_of
from support.stack.topics import Ordered, check_promises

from ordering.ticks import INFINITY
from query.engine.program import Program
from query.sql.bind import bind_outputs

Dead = tuple[bytes, str]
"""Payload and reason of a row that no query could evaluate."""


@dataclass(frozen=True)
class Told:
    """
    What one job must write.

    Attributes:
        results: For each output the results of each bucket; of all buckets in one where that is what is known.
        in_buckets: Whether the results of each bucket are known one by one.
        dead: What must be dead-lettered, each once or more often.
    """

    results: Mapping[str, list[list[Row]]]
    in_buckets: bool
    dead: set[Dead]

    @property
    def instants_us(self) -> list[int]:
        """Every instant at which there are results, in order."""
        return sorted({row[0] for buckets in self.results.values() for rows in buckets for row in rows})

    @property
    def count(self) -> int:
        """How many results there are."""
        return sum(len(rows) for buckets in self.results.values() for rows in buckets)

    def since(self, start_us: int) -> Told:
        """Return what a job must write that starts at S."""
        later = {name: [[row for row in rows if row[0] >= start_us] for rows in buckets] for name, buckets in self.results.items()}
        return Told(later, self.in_buckets, self.dead)


def told(
    script: str, raw: Raw, topic: Topic, asked: Mapping[str, Question], *, over: bool, typed: bool, second_us: int, other: int
) -> Told:
    """
    Tell what a job must write.

    Args:
        script: What it computes.
        raw: What its topic was made of.
        topic: The topic.
        asked: The questions among its outputs.
        over: Whether its time advances substream by substream.
        typed: Whether the key is declared as text.
        second_us: From when on the second version of the reference data is valid, microseconds.
        other: Draws the other topic that is made of the same raw logs.
    """
    reference = reference_from(second_us)
    plans = bind_outputs(read_kinds(script, "many.sql"), [schema_of(typed=typed), reference.schema])
    read = topic if over else raw.topic(other, 1 + other % 4, over=topic.over)
    works = works_of(read, over=over)
    said = [
        run_bucket(
            lambda work=work: bucket_of(Program(plans, references={"r": reference}), read, work, over=over),
            {at: read.partitions[at] for at in work},
        )
        for work in works
    ]
    results = {plan.output: [each.rows[at] for each in said] for at, plan in enumerate(plans)}
    for name, question in asked.items():
        asked_for = _answered(question, topic)
        demand(asked_for == results[name], "oracle", f"{name}: the engine in one piece does not say what plain Python says")
    return Told(results, over, {(value, reason) for each in said for _, value, reason in each.bad})


def _answered(question: Question, topic: Topic) -> list[list[Row]]:
    if not question.over:
        return [merged(question, topic.truth, INFINITY)]
    found = []
    for lines in topic.partitions:
        walk = Walk(question)
        for _, record in lines:
            walk.accept_record(to_oracle(record))
        walk.end()
        found.append(walk.results)
    return found


def rows_of(found: Ordered) -> list[list[Row]]:
    """Return the accepted results of each bucket of a result topic."""
    rows = []
    for partition in sorted(found.arrived):
        events = found.events.get((partition, partition), [])
        demand([event.seq for event in events] == list(range(len(events))), "numbers", f"bucket {partition} leaves numbers out")
        rows.append([(event.system_us, event.key or b"", event.value or b"") for event in events])
    demand(all(number == partition for number, partition in found.events), "channels", f"{sorted(found.events)}")
    return rows


def check_results(name: str, found: Ordered, expected: Told, *, whole: bool, from_start: bool = False) -> int:
    """
    Hold one result topic against what is told; return how many results were compared.

    Args:
        name: The output.
        found: What its topic holds.
        expected: What the job must write.
        whole: Whether nothing may be missing.
        from_start: Whether a job with OVER began at S: then the order of substreams among each other is another.

    Raises:
        BrokenLawError: It is something else.
    """
    check_promises(found, killed=True)
    rows, must = rows_of(found), expected.results[name]
    if expected.in_buckets and from_start:
        for bucket, (one, other) in enumerate(zip(rows, must, strict=True)):
            demand(Counter(one) == Counter(other), "suffix", f"{name}, bucket {bucket}: {_first_apart(sorted(one), sorted(other))}")
    elif expected.in_buckets or len(rows) == 1:
        for bucket, (one, other) in enumerate(zip(rows, must, strict=True)):
            demand(one == other[: len(one)], "same bytes", f"{name}, bucket {bucket}: {_first_apart(one, other)}")
    else:
        for bucket, one in enumerate(rows):
            demand(is_part(one, must[0]), "same bytes", f"{name}, bucket {bucket} of {len(rows)} is no part of what one bucket gives")
    count = sum(map(len, rows))
    if whole:
        demand(Counter(row for one in rows for row in one) == Counter(row for one in must for row in one), "nothing is lost", name)
        demand({found.c(channel) for channel in found.ctis} == {INFINITY}, "the end is told", name)
    return count


def is_part(rows: Sequence[Row], whole: Sequence[Row]) -> bool:
    """Tell whether rows stand in *whole* in their order."""
    rest = iter(whole)
    return all(row in rest for row in rows)


def _first_apart(one: Sequence[Row], other: Sequence[Row]) -> str:
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return f"at {place}: {left}, not {right}"
    return f"{len(one)} results, not {len(other)}"


def input_table(topic: str, *, over: bool, typed: bool) -> str:
    """Return the table of the input, whose ordered topic alone is there, and those of the functions that scripts call."""
    lines = [f"[inputs.{INPUT}]", f'topic = "{topic}.raw"', f'ordered_topic = "{topic}"', 'timestamp_by = "t"']
    lines += ['over = "k"'] * over + ['fields = { k = "nvarchar(max)" }'] * typed
    return "\n".join([*lines, FUNCTION_TABLES])
