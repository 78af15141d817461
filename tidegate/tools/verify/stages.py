"""
The stages of a verification, raw topics first: ordered topics, then the queries that read them, up to the target.

Law: each stage is computed from its standing input and compared with its standing output. So if every stage is equal, the target follows
from the raw topics. Notes name a stage that cannot be checked, or the instant before which it cannot be.

All stages are planned first and then run at the same time, as none needs the result of another. An ordered topic is read only once: the
recomputation of a query that reads it hands the records to the comparison of the topic.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from ingest.journal.redis_journal import RedisJournal
from ingest.replay.plan import Replay, plan_replay
from ordering.errors import SettingError
from ordering.ticks import INFINITY, NEVER, format_tick
from query.config import Partition
from query.plan.nodes import UNBOUNDED, Plan
from query.start.recount import Recount
from sinks.file_places import absolute_place
from tidegate.platform.checkpoint.output_start import Start
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.kafka.records import ALL_HEADERS
from tidegate.platform.settings.load import Settings
from tidegate.platform.settings.tables.outputs import OutputSettings
from tidegate.tools.compare.digest import ChannelDigest
from tidegate.tools.compare.sides import Side, complete_from_us, make_side
from tidegate.tools.verify.destinations import Destinations
from tidegate.tools.verify.file_rows import FilesCheck, list_files
from tidegate.tools.verify.ordered import ChannelId, OnRecords, OrderedCheck, OrderedVerifier, StandingTopic
from tidegate.tools.verify.plain_rows import PlainTopicCheck
from tidegate.tools.verify.recompute import OnRead, Recomputation
from tidegate.tools.verify.rows import RowDifference
from tidegate.tools.verify.runs import RunPart, plan_runs
from tidegate.tools.verify.table_rows import TableCheck
from tidegate.tools.verify.topic_rows import TopicPartition


@dataclass
class OrderedStage:
    """The verification of an ordered topic; *notes* say what is not checked."""

    name: str
    topic: str
    replay: Replay
    since_us: int | None
    # None: the topic is taken as it stands.
    verifier: OrderedVerifier | None = None
    check: OrderedCheck | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        return self.check is None or self.check.is_equal

    @property
    def vouched_from_us(self) -> int | None:
        """The instant from which on its events follow from the raw topics, microseconds; None: not known, ``NEVER``: all do."""
        return None if self.verifier is None else NEVER if self.since_us is None else self.since_us


@dataclass
class QueryStage:
    """The verification of the outputs of one query, whose results are those of one run after the other."""

    name: str
    parts: Sequence[RunPart]
    since_us: int | None
    until_us: int | None
    # By the number of the output.
    topics: Mapping[int, list[TopicPartition]]
    files: Mapping[int, FilesCheck]
    tables: Mapping[int, list[TableCheck]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    left_out: int = 0
    # The instant from which on the rows follow from the raw topics, microseconds; None: not known, NEVER: all do.
    vouched_from_us: int | None = NEVER

    @property
    def recount(self) -> Recount:
        """That of the last run."""
        return self.parts[-1].recount

    def part_of(self, output: int, difference: RowDifference) -> RunPart:
        """Return the run that has written a row of a topic or table, or should have; *output* is its number."""
        seq = max(row.seq for row in (difference.stands, difference.should) if row is not None)
        limits = [part.limit(output, difference.partition) for part in self.parts]
        return next((part for part, limit in zip(self.parts, limits, strict=True) if limit is None or seq < limit), self.parts[-1])

    @property
    def is_equal(self) -> bool:
        channels = [channel for channels in self.topics.values() for channel in channels]
        checks: list[FilesCheck | TableCheck] = [*self.files.values(), *(table for tables in self.tables.values() for table in tables)]
        is_as_computed = not any(channel.difference or channel.summary.broken for channel in channels)
        has_strange_records = any(channel.summary.has_strange_records for channel in channels)
        return is_as_computed and not has_strange_records and not any(check.differences for check in checks)


Stage = OrderedStage | QueryStage


@dataclass
class Request:
    """The target of a verification, the part of it to verify, and the clients to use."""

    settings: Settings
    admin: Admin
    journal: RedisJournal
    # The plans of each script, by the names of its outputs.
    scripts: Mapping[str, tuple[Plan, ...]]
    since_us: int | None = None
    until_us: int | None = None
    start: Start | None = None
    # Called from several threads.
    on_records: OnRecords = lambda _: None
    # The output to verify. Tables and plain topics are compared only for it, not for the outputs before it in a chain.
    target: str = ""


def find_target(settings: Settings, target: str) -> tuple[str, bool]:
    """
    Return the name of the input or output that *target* means, and whether it is an input. *target* is its name, topic, folder or table.
    Raises SettingError (TG-VERIFY-TARGET): there is none.
    """
    for name, table in settings.inputs.items():
        if target in (name, table.ordered_topic) and target not in settings.outputs:
            return name, True
    place = absolute_place(target)
    for name, output in settings.outputs.items():
        tables = {getattr(store, store.named_by, None) for store in output.stores.values()}
        if target in {name, output.topic, output.plain_topic, *tables} or (output.files and absolute_place(output.files) == place):
            return name, False
    known = ", ".join([*settings.inputs, *settings.outputs])
    raise SettingError(
        f"{target} is no input, output, topic, folder or table of this configuration",
        code="TG-VERIFY-TARGET",
        where="TARGET",
        fix=f"name one of: {known}; or its topic, folder or table",
    )


def verify(request: Request, name: str, *, is_input: bool) -> list[Stage]:
    """Verify an input's ordered topic, or an output with the ordered topics that it is made from; return the stages, raw topics first."""
    planned: _Planned = {}
    _plan(replace(request, target=name), name, is_input, Part(request.since_us, request.until_us), planned)
    stages = [stage for stage, _ in planned.values()]
    # The objects made so far stay to the end: the garbage collector need not walk through them again and again.
    gc.freeze()
    try:
        _run(stages, request.on_records)
    finally:
        gc.unfreeze()
    return stages


def _run(stages: Sequence[Stage], on_records: OnRecords) -> None:
    """
    Compare all stages. Another thread orders the raw topics meanwhile; that is faster, because most of the work is done outside of Python's
    global lock.
    """
    replays: list[Future[dict[ChannelId, ChannelDigest]]] = []
    has_failed = threading.Event()

    def on_read(count: int) -> None:
        # An error on one side ends the other side too: nobody needs its result any more.
        for replay in replays:
            if replay.done():
                replay.result()
        if has_failed.is_set():
            raise CancelledError
        on_records(count)

    ordered = [(stage, stage.verifier) for stage in stages if isinstance(stage, OrderedStage) and stage.verifier is not None]
    standing = {stage.topic: StandingTopic(verifier.side, verifier.until_us, on_read) for stage, verifier in ordered}
    # Topics that no query hands over, with the headers that a query would have to read too.
    framed, unread = {stage.topic: verifier.side.framed for stage, verifier in ordered}, dict(standing)
    comparisons = []
    for stage in stages:
        if isinstance(stage, QueryStage):
            # Of several runs none reads all of a topic.
            feeds = stage.recount.plan.feeds if len(stage.parts) == 1 else ()
            topics = {feed.topic for feed in feeds if framed.get(feed.topic) == feed.payloads.headers} & unread.keys()
            comparisons.append(partial(_compare, stage, on_read, {topic: unread.pop(topic).add_records for topic in topics}))
    with ThreadPoolExecutor(max_workers=1) as pool:
        replays += [pool.submit(verifier.digest_replays, on_read) for _, verifier in ordered]
        try:
            summaries = {topic: walk.finish() for topic, walk in unread.items()}
            # In this thread, which has opened the databases of the tables.
            for compare in comparisons:
                compare()
            for (checked, verifier), replay in zip(ordered, replays, strict=True):
                checked.check = verifier.compare(replay.result(), summaries.get(checked.topic) or standing[checked.topic].finish())
        except BaseException:
            has_failed.set()
            raise


@dataclass(frozen=True, slots=True)
class Part:
    """The rows or events with since <= s < until, microseconds; None: no limit."""

    since_us: int | None
    until_us: int | None

    def covers(self, other: Part) -> bool:
        return self == self.union(other)

    def union(self, other: Part) -> Part:
        since = None if self.since_us is None or other.since_us is None else min(self.since_us, other.since_us)
        until = None if self.until_us is None or other.until_us is None else max(self.until_us, other.until_us)
        return Part(since, until)


# By name, and whether it is an input: the stage, and the part of it that is needed. A stage comes after those that it reads.
_Planned = dict[tuple[str, bool], tuple[Stage, Part]]


def _plan(request: Request, name: str, is_input: bool, part: Part, planned: _Planned) -> Stage:
    """Plan a stage and those that it reads, unless *planned* has them; add them to *planned*."""
    if (known := planned.get((name, is_input))) is not None:
        stage, known_part = known
        if known_part.covers(part):
            return stage
        # Two queries of a chain read different parts of one topic.
        part = part.union(known_part)
    stage = _plan_input(request, name, part) if is_input else _plan_output(request, name, part, planned)
    planned[name, is_input] = stage, part
    return stage


def _plan_input(request: Request, name: str, part: Part) -> OrderedStage:
    since_us = part.since_us
    replay = plan_replay(request.settings, name, request.admin, request.journal)
    stage = OrderedStage(name, replay.ordered.name, replay, since_us)
    stage.notes += _notes_of(replay)
    complete_us = replay.complete_from_us
    if complete_us is None:
        stage.notes.append(
            "records of the raw topic are gone, and any of them may count for later events: the ordered topic is taken as it stands"
        )
        return stage
    complete_us = max(complete_us, complete_from_us(request.admin, replay.plan.kafka, replay.ordered))
    if complete_us == INFINITY:
        stage.notes.append("retention has deleted so much of the ordered topic that nothing of it can be compared")
        return stage
    if complete_us > (NEVER if since_us is None else since_us):
        stage.since_us = since_us = complete_us
        stage.notes.append(f"records are gone: events before {format_tick(complete_us)} are taken as they stand")
    side = _side(request.admin, replay, since_us)
    starts = replay.positions(request.admin, request.journal, since_us)
    stage.verifier = OrderedVerifier(replay, side, starts, since_us, part.until_us)
    return stage


def _side(admin: Admin, replay: Replay, since_us: int | None) -> Side:
    # With `headers` ingest writes the raw record's headers and no others. Without it, headers that others add change no result.
    framed = ALL_HEADERS if replay.plan.settings.headers else ()
    side = make_side("A", admin, replay.plan.kafka, replay.ordered, since_us, framed)
    return replace(side, has_own_numbers=since_us is not None)


def _notes_of(replay: Replay) -> Iterator[str]:
    if not replay.is_known:
        yield "the journal does not know the topic: its settings are taken from the configuration, facts from its own CTIs"
    for partition, first in sorted(replay.gone.items()):
        yield f"{partition[0]}-{partition[1]} begins at offset {first:,}: retention has deleted earlier records"
    for skip in replay.plan.skips:
        if not skip.is_undone:
            yield f"skipped: {skip.describe()}"


def _plan_output(request: Request, name: str, part: Part, planned: _Planned) -> QueryStage:
    if name not in request.scripts:
        raise SettingError(
            f"it is not known which query writes INTO {name}",
            code="TG-VERIFY-QUERY",
            where="--query",
            fix=f"name its script, or set outputs.{name}.query",
            example=f"--query {name}=FILE.sql",
        )
    plans = request.scripts[name]
    # Files are listed before the ends of topics are read, so every result in them is made from records before these ends.
    folders = [request.settings.output(plan.output).files for plan in plans]
    listed = [list_files(folder) if folder else set() for folder in folders]
    since_us, until_us = part.since_us, part.until_us
    is_target = request.target in {plan.output for plan in plans}
    destinations = Destinations.read(request.settings, request.admin, plans) if is_target and part == Part(None, None) else Destinations()
    runs = plan_runs(request.settings, request.admin, plans, request.start, since_us, until_us)
    parts, since_us = runs.parts, runs.since_us
    input_stages = [
        _plan(request, feed.input, not feed.is_result, _needed_part(each.recount, each.until_us), planned)
        for each in parts
        for feed in each.recount.plan.feeds
    ]
    outputs = [_with_absolute_place(request.settings.output(plan.output)) for plan in plans]
    files = {
        number: FilesCheck(output, plan.columns, listed[number], _latest(since_us, runs.changed_places.get(number)), until_us)
        for number, (output, plan) in enumerate(zip(outputs, plans, strict=True))
        if output.files
    }
    if since_us is not None:
        destinations.leave_out()
    for number in runs.changed_places:
        destinations.leave_out_plain(number)
    topics = _topic_partitions(request.admin, parts, outputs, since_us, until_us)
    stage = QueryStage(name, parts, since_us, until_us, topics, files, destinations.checks, [*destinations.notes, *runs.notes])
    stage.vouched_from_us = _vouched_us(input_stages, max(each.recount.plan.lookback_us for each in parts))
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


def _vouched_us(input_stages: Sequence[Stage], lookback_us: int) -> int | None:
    """Return the instant from which on results follow from the raw topics if their input does; None: not known."""
    instants = [stage.vouched_from_us for stage in input_stages]
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


def _compare(stage: QueryStage, on_records: OnRecords, readers: Mapping[str, OnRead]) -> None:
    """Compute the results of a query and compare them; *readers* get the records of its topics as they are read."""
    for part in stage.parts:
        for number, channels in stage.topics.items():
            for channel in channels:
                channel.begin_run(part.limit(number, channel.partition), has_own_numbers=part.recount.from_us is not None)
        for number, files in stage.files.items():
            files.use_columns(part.columns(number) or ())
        _compare_part(stage, part, on_records, readers)
    for channels in stage.topics.values():
        for channel in channels:
            channel.finish()
    for number, files in stage.files.items():
        files.finish({channel.partition: channel.c for channel in stage.topics.get(number, ())})
    for table in (table for tables in stage.tables.values() for table in tables):
        table.finish()
        stage.notes += table.notes
    if stage.left_out:
        stage.notes.append(f"{stage.left_out:,} rows became dead letters")


def _compare_part(stage: QueryStage, part: RunPart, on_records: OnRecords, readers: Mapping[str, OnRead]) -> None:
    """Compute the results of one run and compare them."""
    recomputation, records_reported = Recomputation(part.recount, readers), 0
    for computed in recomputation.run(part.until_us):
        own = part.own(computed)
        if own is not None:
            if own.results is not None and own.output in stage.topics:
                stage.topics[own.output][own.bucket].accept_rows(own.results)
            for table in stage.tables.get(own.output, ()):
                taken = part.published(computed, table.span_us) if isinstance(table, PlainTopicCheck) else own
                if taken is not None:
                    table.accept(taken)
            if own.sheets and own.output in stage.files:
                stage.files[own.output].accept_sheets(own.bucket, own.sheets)
        on_records(recomputation.records_read - records_reported)
        records_reported = recomputation.records_read
    stage.left_out += recomputation.left_out


def _query_notes(stage: QueryStage) -> Iterator[str]:
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
