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
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from ingest.journal.redis_journal import RedisJournal
from ingest.verify.because import explain_events
from ingest.verify.ordered import ChannelId, StandingTopic
from ingest.verify.plan import plan_stage
from ingest.verify.stage import OrderedStage, raw_place
from ordering.errors import SettingError
from query.config import Feed
from query.plan.nodes import Plan
from query.verify.because import explain_rows
from query.verify.compare import compare_results
from query.verify.plan import Part, ResultsPlanner
from query.verify.stage import VerifiedQuery
from sinks.file_places import absolute_place
from tidegate.ordered_topic.compare.digest import ChannelDigest
from tidegate.platform.checkpoint.output_start import Start
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.settings.load import Settings

Stage = OrderedStage | VerifiedQuery


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
    # Called with the number of records just read, from several threads.
    on_records: Callable[[int], None] = lambda _: None
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


def _run(stages: Sequence[Stage], on_records: Callable[[int], None]) -> None:
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
        if isinstance(stage, VerifiedQuery):
            # Of several runs none reads all of a topic.
            feeds = stage.recount.plan.feeds if len(stage.parts) == 1 else ()
            topics = {feed.topic for feed in feeds if framed.get(feed.topic) == feed.payloads.headers} & unread.keys()
            comparisons.append(partial(compare_results, stage, on_read, {topic: unread.pop(topic).add_records for topic in topics}))
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
    if is_input:
        stage = plan_stage(request.settings, name, request.admin, request.journal, part.since_us, part.until_us)
    else:
        stage = _plan_output(request, name, part, planned)
    planned[name, is_input] = stage, part
    return stage


def _plan_output(request: Request, name: str, part: Part, planned: _Planned) -> VerifiedQuery:
    def plan_input(feed: Feed, needed: Part) -> int | None:
        return _plan(request, feed.input, not feed.is_result, needed, planned).vouched_from_us

    if name not in request.scripts:
        raise SettingError(
            f"it is not known which query writes INTO {name}",
            code="TG-VERIFY-QUERY",
            where="--query",
            fix=f"name its script, or set outputs.{name}.query",
            example=f"--query {name}=FILE.sql",
        )
    plans = request.scripts[name]
    has_tables = request.target in {plan.output for plan in plans}
    return ResultsPlanner(request.settings, request.admin, request.start, plan_input).plan(name, plans, part, has_tables=has_tables)


def explain_stages(stages: Sequence[Stage], admin: Admin) -> dict[int, list[str]]:
    """Return lines that explain the first differences of each stage, by the stage's index."""
    raw_places = {stage.name: partial(raw_place, stage) for stage in stages if isinstance(stage, OrderedStage)}
    lines = {
        index: list(explain_events(stage, admin) if isinstance(stage, OrderedStage) else explain_rows(stage, admin, raw_places))
        for index, stage in enumerate(stages)
    }
    return {index: explained for index, explained in lines.items() if explained}
