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
from itertools import pairwise

from ingest.journal.redis_journal import RedisJournal
from ingest.replay.plan import Replay, plan_replay
from ordering.errors import RefusedError, SettingError
from ordering.ticks import DAY_US, INFINITY, NEVER, SECOND_US, format_tick
from query.config import Partition
from query.job import bind_plans
from query.plan.nodes import UNBOUNDED, Plan
from query.start.binding import query_text
from query.start.recount import Recount, plan_recount
from query.start.survey import survey_topics
from sinks.file_places import absolute_place
from tidegate.language.expressions.syntax.parse import parse_script
from tidegate.platform.checkpoint.output_start import BEGINNING, Start
from tidegate.platform.checkpoint.query_history import QueryRun, known_runs
from tidegate.platform.kafka.admin import Admin, Topic
from tidegate.platform.kafka.records import ALL_HEADERS
from tidegate.platform.settings.load import Settings
from tidegate.tools.compare.digest import ChannelDigest
from tidegate.tools.compare.sides import Side, complete_from_us, make_side
from tidegate.tools.verify.destinations import Destinations
from tidegate.tools.verify.file_rows import FilesCheck, list_files
from tidegate.tools.verify.ordered import ChannelId, OnRecords, OrderedCheck, OrderedVerifier, StandingTopic
from tidegate.tools.verify.recompute import OnRead, Recomputation
from tidegate.tools.verify.table_rows import TableCheck
from tidegate.tools.verify.topic_rows import TopicPartition

# The last step, doubled from a second on, by which a later instant is tried if results cannot be computed from an instant on.
_STEP_MAX_US = 40 * DAY_US


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
    """The verification of the outputs of one query."""

    name: str
    recount: Recount
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
            topics = {feed.topic for feed in stage.recount.plan.feeds if framed.get(feed.topic) == feed.payloads.headers} & unread.keys()
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
    runs = _runs_of(request, plans)
    own_from_us = runs[-1].from_us if len(runs) > 1 else None
    if own_from_us is not None and (until_us is None or until_us > own_from_us):
        since_us = max(own_from_us, NEVER if since_us is None else since_us)
    recount = _plan_recount(request, plans, since_us)
    is_split = own_from_us is not None and recount.from_us is not None
    if own_from_us is not None and not is_split:
        what = "an earlier query wrote the results before it, and the order between keys depends on where a run begins: only the present"
        destinations.notes.append(f"{what} query is computed")
    earlier_notes = list(_plan_earlier(request, name, runs, part, planned)) if is_split else []
    since_us = recount.from_us if since_us is None else max(since_us, NEVER if recount.from_us is None else recount.from_us)
    needed = _needed_part(recount, until_us)
    input_stages = [_plan(request, feed.input, not feed.is_result, needed, planned) for feed in recount.plan.feeds]
    files = {
        number: FilesCheck(output, plan.columns, listed[number], since_us, until_us)
        for number, (output, plan) in enumerate(zip(recount.plan.outputs, plans, strict=True))
        if output.files
    }
    if recount.from_us is not None:
        destinations.leave_out()
    topics = _topic_partitions(request.admin, recount, since_us, until_us)
    stage = QueryStage(name, recount, since_us, until_us, topics, files, destinations.checks, destinations.notes)
    stage.vouched_from_us = _vouched_us(input_stages, recount.plan.lookback_us)
    stage.notes += [*_query_notes(stage), *earlier_notes]
    return stage


def _runs_of(request: Request, plans: tuple[Plan, ...]) -> list[QueryRun]:
    """Return the runs into a query's first topic, the present one last; successive runs of one query count as one."""
    topics = survey_topics(request.settings, plans, request.admin)
    topic = topics.results.get(topics.outputs[0].topic or "")
    runs: list[QueryRun] = []
    if topic is not None:
        for run in known_runs(request.settings.redis, topics.folder, topic.name, topic.topic_id):
            if not runs or run.plan != runs[-1].plan:
                runs.append(run)
    # What else is said of the present query than that it is this one is no help.
    return runs if runs and runs[-1].plan == query_text(plans, (read.name for read in topics.ordered.values())) else []


def _plan_earlier(request: Request, name: str, runs: Sequence[QueryRun], part: Part, planned: _Planned) -> Iterator[str]:
    """Plan a stage for each earlier query that wrote results of *part*; yield notes on what is not checked."""
    for run, following in pairwise(runs):
        until_us = following.before_us
        if until_us is None or (part.since_us is not None and part.since_us >= until_us):
            continue
        if following.from_us != until_us:
            span = f"{format_tick(until_us)} to {format_tick(following.from_us or until_us)}"
            yield f"results from {span} are of two queries, and are not checked"
        plans = bind_plans(request.settings, parse_script(run.script, name), run.into, name) if run.script else ()
        reads = [read.name for read in survey_topics(request.settings, plans, request.admin).ordered.values()] if plans else []
        if query_text(plans, reads) != run.plan:
            what = f"the script that wrote the results before {format_tick(until_us)} means another query, or reads other topics, by now"
            yield f"{what}: they are not checked"
            continue
        since_us = run.from_us if part.since_us is None else max(part.since_us, NEVER if run.from_us is None else run.from_us)
        if since_us is not None and since_us >= until_us:
            continue
        start = BEGINNING if run.start_us is None else Start(format_tick(run.start_us), run.start_us)
        recount = plan_recount(request.settings, plans, request.admin, start, since_us, is_earlier=True)
        needed = _needed_part(recount, until_us)
        stages = [_plan(request, feed.input, not feed.is_result, needed, planned) for feed in recount.plan.feeds]
        topics = _topic_partitions(request.admin, recount, since_us, until_us)
        span = f"{name} before {format_tick(until_us)}"
        stage = QueryStage(span, recount, since_us, until_us, topics, {})
        stage.vouched_from_us = _vouched_us(stages, recount.plan.lookback_us)
        stage.notes.append("written by an earlier query, and computed by that")
        planned[span, False] = stage, Part(since_us, until_us)


def _needed_part(recount: Recount, until_us: int | None) -> Part:
    """Return the part of a recount's input that decides its results before an instant."""
    lookback_us, program = recount.plan.lookback_us, recount.plan.program()
    since_us = None if recount.from_us is None or lookback_us == UNBOUNDED else max(recount.from_us - lookback_us, 0)
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


def _plan_recount(request: Request, plans: tuple[Plan, ...], since_us: int | None) -> Recount:
    """Return the recount. If records of the topics that it reads or wrote are gone, it begins at a later instant."""
    refusal: RefusedError | None = None
    try:
        recount = plan_recount(request.settings, plans, request.admin, request.start, since_us)
        if all(complete_from_us(request.admin, recount.plan.kafka, topic) == NEVER for topic in _result_topics(recount)):
            return recount
    except RefusedError as error:
        if error.code != "TG-RETENTION":
            raise
        refusal = error
    return _plan_recount_of_rest(request, plans, since_us, refusal)


def _plan_recount_of_rest(request: Request, plans: tuple[Plan, ...], since_us: int | None, refusal: RefusedError | None) -> Recount:
    """
    Return the recount from the first instant on that can be computed and compared; *refusal* is the error of the recount from *since_us*
    on. Raises RefusedError (TG-RETENTION): there is no such instant.
    """
    admin, properties = request.admin, request.settings.kafka.client_properties()
    topics = survey_topics(request.settings, plans, admin)
    lookback_us = max(plan.lookback_us for plan in plans)
    input_from_us = max(complete_from_us(admin, properties, topic) for topic in topics.ordered.values())
    output_from_us = max((complete_from_us(admin, properties, topic) for topic in topics.results.values()), default=NEVER)
    if INFINITY in (input_from_us, output_from_us) or (refusal is not None and lookback_us == UNBOUNDED):
        raise refusal or RefusedError("retention has deleted what was to be verified", code="TG-RETENTION", where=plans[0].output)
    computable_from_us = input_from_us + lookback_us if input_from_us > NEVER else NEVER
    from_us = max(computable_from_us, output_from_us, NEVER if since_us is None else since_us)
    step_us = SECOND_US
    while True:
        try:
            return plan_recount(request.settings, plans, admin, request.start, from_us)
        except RefusedError as error:
            # Events ahead of the first CTI that is left (s >= c) may have been deleted: a later instant needs fewer of them.
            if error.code != "TG-RETENTION" or step_us > _STEP_MAX_US:
                raise
        from_us, step_us = from_us + step_us, 2 * step_us


def _result_topics(recount: Recount) -> list[Topic]:
    return [topic for output in recount.plan.outputs if (topic := recount.topics.results.get(output.topic or "")) is not None]


def _topic_partitions(admin: Admin, recount: Recount, since_us: int | None, until_us: int | None) -> dict[int, list[TopicPartition]]:
    """Return the partitions of each output's topic that is there, by the number of the output."""
    parts: dict[int, list[TopicPartition]] = {}
    for number, output in enumerate(recount.plan.outputs):
        topic = recount.topics.results.get(output.topic or "")
        if topic is None or topic.name != output.topic:
            continue
        side = make_side("A", admin, recount.plan.kafka, topic, recount.from_us)
        ends: Mapping[Partition, int] = recount.result_ends
        side = replace(
            side,
            ends=tuple(ends[topic.name, partition] for partition in range(topic.partitions)),
            has_own_numbers=recount.from_us is not None,
        )
        parts[number] = [TopicPartition(side, partition, since_us, until_us) for partition in range(topic.partitions)]
    return parts


def _compare(stage: QueryStage, on_records: OnRecords, readers: Mapping[str, OnRead]) -> None:
    """Compute the results of a query and compare them; *readers* get the records of its topics as they are read."""
    recomputation, records_reported = Recomputation(stage.recount, readers), 0
    for computed in recomputation.run(stage.until_us):
        if computed.results is not None and computed.output in stage.topics:
            stage.topics[computed.output][computed.bucket].accept_rows(computed.results)
        for table in stage.tables.get(computed.output, ()):
            table.accept(computed)
        if computed.sheets and computed.output in stage.files:
            stage.files[computed.output].accept_sheets(computed.bucket, computed.sheets)
        on_records(recomputation.records_read - records_reported)
        records_reported = recomputation.records_read
    for channels in stage.topics.values():
        for channel in channels:
            channel.finish()
    for number, files in stage.files.items():
        promised_us = {channel.partition: channel.c for channel in stage.topics.get(number, ())}
        files.finish(promised_us, is_partial=stage.since_us is not None or stage.until_us is not None)
    for table in (table for tables in stage.tables.values() for table in tables):
        table.finish()
        stage.notes += table.notes
    stage.left_out = recomputation.left_out
    if stage.left_out:
        stage.notes.append(f"{stage.left_out:,} rows became dead letters")


def _query_notes(stage: QueryStage) -> Iterator[str]:
    recount = stage.recount
    if not recount.has_checkpoint:
        yield "the job's checkpoint is not here: query and settings are taken as given"
    if recount.from_us is not None and stage.since_us is not None:
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
