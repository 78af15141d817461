"""
Plans the verification of a query's outputs: the runs that wrote them, what of its inputs these need, and what is compared.

Law: files and tables are looked at before the ends of topics, so every result in them is made from records before these ends. A note says
which destination is not compared, and from which instant on results are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ordering.ticks import INFINITY, NEVER, format_tick
from query.config import Feed, Partition
from query.plan.nodes import UNBOUNDED, Plan
from query.start.recount import Recount
from query.verify.destinations import Destinations
from query.verify.file_rows import FilesCheck, list_files
from query.verify.runs import RunPart, plan_runs
from query.verify.stage import VerifiedQuery
from query.verify.topic_rows import TopicPartition
from sinks.file_places import absolute_place
from tidegate.ordered_topic.compare.sides import make_side
from tidegate.platform.checkpoint.output_start import Start
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.settings.load import Settings
from tidegate.platform.settings.tables.outputs import OutputSettings


@dataclass(frozen=True, slots=True)
class Part:
    """The rows or events with a system timestamp in [since, until), microseconds; None: no limit."""

    since_us: int | None
    until_us: int | None

    def covers(self, other: Part) -> bool:
        return self == self.union(other)

    def union(self, other: Part) -> Part:
        since = None if self.since_us is None or other.since_us is None else min(self.since_us, other.since_us)
        until = None if self.until_us is None or other.until_us is None else max(self.until_us, other.until_us)
        return Part(since, until)


@dataclass(frozen=True)
class ResultsPlanner:
    """Plans the stages of queries."""

    settings: Settings
    admin: Admin
    # The ``--start`` of the job, if its checkpoint is not here.
    start: Start | None
    # Plans the verification of a part of an input, and returns the instant from which on that follows from the raw topics, microseconds;
    # None: not known, ``NEVER``: all of it does.
    plan_input: Callable[[Feed, Part], int | None]

    def plan(self, name: str, plans: tuple[Plan, ...], part: Part, *, has_tables: bool) -> VerifiedQuery:
        """Plan the verification of a part of a script's outputs; *has_tables*: that of its tables and plain topics too."""
        # Files are listed before the ends of topics are read, so every result in them is made from records before these ends.
        folders = [self.settings.output(plan.output).files for plan in plans]
        listed = [list_files(folder) if folder else set() for folder in folders]
        since_us, until_us = part.since_us, part.until_us
        destinations = Destinations.read(self.settings, self.admin, plans) if has_tables and part == Part(None, None) else Destinations()
        runs = plan_runs(self.settings, self.admin, plans, self.start, since_us, until_us)
        parts, since_us = runs.parts, runs.since_us
        vouched = [self.plan_input(feed, _needed_part(each.recount, each.until_us)) for each in parts for feed in each.recount.plan.feeds]
        outputs = [_with_absolute_place(self.settings.output(plan.output)) for plan in plans]
        files = {
            number: FilesCheck(output, plan.columns, listed[number], _latest(since_us, runs.changed_places.get(number)), until_us)
            for number, (output, plan) in enumerate(zip(outputs, plans, strict=True))
            if output.files
        }
        if since_us is not None:
            destinations.leave_out()
        for number in runs.changed_places:
            destinations.leave_out_plain(number)
        topics = _topic_partitions(self.admin, parts, outputs, since_us, until_us)
        stage = VerifiedQuery(name, parts, since_us, until_us, topics, files, destinations.checks, [*destinations.notes, *runs.notes])
        stage.vouched_from_us = _vouched_us(vouched, max(each.recount.plan.lookback_us for each in parts))
        stage.notes += _query_notes(stage)
        return stage


def _with_absolute_place(output: OutputSettings) -> OutputSettings:
    return output.model_copy(update={"files": absolute_place(output.files)}) if output.files else output


def _latest(*instants_us: int | None) -> int | None:
    return max((us for us in instants_us if us is not None), default=None)


def _needed_part(recount: Recount, until_us: int | None) -> Part:
    """Return the part of a recount's input that decides its results before an instant."""
    lookback_us, program = recount.plan.lookback_us, recount.plan.program()
    since_us = None if recount.from_us is None or lookback_us == UNBOUNDED else max(recount.from_us - lookback_us, 0)
    if any(recount.plan.promises) and recount.plan.read_from_us is not None:
        since_us = max(recount.plan.read_from_us, 0)
    # Some operators give results an earlier time than that of their events: for results before an instant later events are needed.
    earlier_us = -min(0, *(program.ahead_us(output) for output in range(len(recount.plan.outputs))))
    return Part(since_us, None if until_us is None else until_us + earlier_us)


def _vouched_us(instants: Sequence[int | None], lookback_us: int) -> int | None:
    """Return the instant from which on results follow from the raw topics if their input does; None: not known."""
    if None in instants:
        return None
    latest_us = max((us for us in instants if us is not None), default=NEVER)
    if latest_us == NEVER:
        return NEVER
    return None if lookback_us == UNBOUNDED else latest_us + lookback_us


def _topic_partitions(
    admin: Admin, parts: Sequence[RunPart], outputs: Sequence[OutputSettings], since_us: int | None, until_us: int | None
) -> dict[int, list[TopicPartition]]:
    """Return the partitions of each output's topic that is there, by the number of the output."""
    recount = parts[-1].recount
    ends: Mapping[Partition, int] = recount.result_ends
    # With OVER over several inputs, or over results, one run is computed from its beginning in any case.
    side_from_us = recount.from_us if len(parts) == 1 else since_us
    partitions: dict[int, list[TopicPartition]] = {}
    for number, output in enumerate(outputs):
        topic = recount.topics.results.get(output.topic or "")
        if topic is None or topic.name != output.topic:
            continue
        side = make_side("A", admin, recount.plan.kafka, topic, side_from_us)
        side = replace(side, ends=tuple(ends[topic.name, partition] for partition in range(topic.partitions)))
        partitions[number] = [TopicPartition(side, partition, since_us, until_us) for partition in range(topic.partitions)]
    return partitions


def _query_notes(stage: VerifiedQuery) -> Iterator[str]:
    recount = stage.recount
    if not recount.has_checkpoint:
        yield "the job's checkpoint is not here: query and settings are taken as given"
    if len(stage.parts) > 1:
        begins = ", ".join(format_tick(own_us) for part in stage.parts[1:] if (own_us := part.own_from_us) > NEVER) or "nothing"
        yield f"{len(stage.parts)} runs wrote the results, each is computed by its own query; the later ones went on at {begins}"
    if stage.since_us is not None and (recount.from_us is not None or len(stage.parts) > 1):
        yield f"results before {format_tick(stage.since_us)} are not checked"
    if recount.was_resumed:
        yield "the job has gone on without its checkpoint once (--start last-stopped)"
    if recount.records_after_end:
        yield f"the job has ended; {recount.records_after_end:,} records came to its input since then"
    if recount.plan.until_us < INFINITY:
        yield f"the job was to stop at {format_tick(recount.plan.until_us)} (--until)"
    if recount.plan.references:
        names = ", ".join(sorted(recount.plan.references))
        yield f"reference data ({names}): each version counts from its own instant on, as if it had come in time"
