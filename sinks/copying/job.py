"""
The job that copies the result topic of an output into its stores; ``tidegate sink`` runs it, and a query job beside its query.

::

    result topic --feed--> accepted results --copier--> batches --store--> rows and progress
                           one thread for each connection to each store
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ordering.errors import RefusedError, UnreachableError
from sinks.copying.copier import Copier, CopyPlan
from sinks.stores.base import StoreContext, Stream
from sinks.stores.registry import make_store
from tidegate.basics.access_rights import sink_rights
from tidegate.basics.secret_masking import scrub
from tidegate.platform.checkpoint.known_topics import KnownTopics
from tidegate.platform.checkpoint.refused_starts import refusals_noted
from tidegate.platform.kafka.admin import ANSWER_S, Admin
from tidegate.platform.kafka.dead_letters import DeadLetterWriter, ensure_dead_letter_topic
from tidegate.platform.metrics.job_metrics import StoreState
from tidegate.platform.observe.job_lag import UnreadAge
from tidegate.platform.observe.logs import get_logger
from tidegate.platform.observe.progress_store import ProgressPublisher, sink_key
from tidegate.platform.observe.recovery_report import CatchUpReport, Positions, Recovery, RecoveryKind
from tidegate.platform.observe.recovery_watch import RecoveryWatch
from tidegate.platform.settings.kinds import require_secrets
from tidegate.platform.settings.load import Settings
from tidegate.platform.settings.shown_table import show_table
from tidegate.platform.settings.tables.outputs import OutputSettings
from tidegate.platform.settings.tables.redis import RedisSettings
from tidegate.records.result_columns import Column

# How long an ending job waits for the batch under way.
_END_S = 30.0


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """The plan of the job: a :class:`~sinks.copying.copier.CopyPlan` for each store, by the name of its table, and where it begins."""

    output: str
    redis: RedisSettings
    kafka: Mapping[str, str] = field(repr=False)
    context: StoreContext
    copies: Mapping[str, CopyPlan]
    recovery: Recovery


def prepare(settings: Settings, output: str, columns: Sequence[Column], *, until_end: bool = False) -> SinkPlan:
    """
    Check topic and stores, and find the positions to begin at. With *until_end* the job ends once it has written the results that are in
    the topic now. Raises RefusedError: there is nothing to copy, or the topic is gone; StoreError: a store does not fit; SettingError: a
    secret of a store is not set; UnreachableError: Kafka does not answer. A store that does not answer is no error: the job waits for it.
    """
    with refusals_noted(settings.redis, sink_key(output)):
        return _prepare(settings, output, columns, until_end=until_end)


def _prepare(settings: Settings, output: str, columns: Sequence[Column], *, until_end: bool) -> SinkPlan:
    table = settings.output(output)
    if table.topic is None or not table.stores:
        fix = f'add a table such as [outputs.{output}.postgres] with url = "env:DATABASE_URL"'
        what = f"output {output} has no store into which its results could be copied"
        raise RefusedError(what, code="TG-STORE-NONE", where=f"outputs.{output}", fix=fix)
    for store in table.stores.values():
        require_secrets(store)
    kafka = settings.kafka.client_properties()
    admin = Admin.connect(settings.kafka)
    topic = admin.require(table.topic, fix=f"start the query that writes output {output}: it makes the topic")
    stream = Stream(topic.name, topic.topic_id, topic.partitions)
    letters = _prepare_dead_letters(admin, table, kafka)
    ends = admin.ends(topic.all_partitions)
    until = {partition: end for (_, partition), end in ends.items()} if until_end else None
    context = StoreContext(output, stream, tuple(columns), settings.redis)
    answering = Admin(kafka, ANSWER_S)
    copies = {
        kind: CopyPlan(kafka, stream, store, answering, letters if store.on_error == "dead_letter" else None, until)
        for kind, store in table.stores.items()
    }
    recovery = Recovery(RecoveryKind.STORE, _first_positions(copies, context, admin.starts(topic.all_partitions)), ends)
    return SinkPlan(output, settings.redis, kafka, context, copies, recovery)


def _prepare_dead_letters(admin: Admin, output: OutputSettings, kafka: Mapping[str, str]) -> partial[DeadLetterWriter] | None:
    """Check the rights at the brokers; return a function that makes a writer of dead letters, or None if no store needs one."""
    topic = output.dead_letter_topic if any(store.on_error == "dead_letter" for store in output.stores.values()) else None
    bytes_max = 0
    if topic is not None:
        retention_us, letter_bytes_max = output.dead_letter_retention_us, output.dead_letter_bytes_max
        bytes_max = ensure_dead_letter_topic(admin, topic, retention_us, letter_bytes_max, output.replication_factor)
    admin.check_rights(sink_rights(str(output.topic), topic))
    return None if topic is None else partial(DeadLetterWriter, kafka, topic, bytes_max)


def _first_positions(copies: Mapping[str, CopyPlan], context: StoreContext, starts: Positions) -> Positions:
    """Return the offset at which the slowest store goes on, by partition; a store that does not answer counts as empty."""
    partitions = range(context.stream.partitions)
    offsets: list[Mapping[int, int]] = []
    for kind, copy in copies.items():
        store = make_store(kind, copy.settings, context)
        try:
            store.prepare()
            offsets.append({partition: progress.offset for partition, progress in store.progress(partitions).items()})
        except UnreachableError:
            offsets.append({})
        finally:
            store.close()
    return {place: max(start, min(known.get(place[1], 0) for known in offsets)) for place, start in starts.items()}


class SinkJob:
    """The running job, as a context manager: it runs inside the context and has ended after it."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan, stream = plan, plan.context.stream
        self._copiers = {kind: list(_make_copiers(kind, copy, plan.context)) for kind, copy in plan.copies.items()}
        self._log = get_logger("sink", output=plan.output)
        self._admin = Admin(plan.kafka, ANSWER_S)
        self._ages = UnreadAge()
        topics = KnownTopics({stream.name: stream.id}, plan.output, "start the sink again: it says what can be done")
        self._publisher = ProgressPublisher(
            plan.redis,
            sink_key(plan.output),
            is_one_of_several=True,
            settings_shown={
                f"{kind}.{name}": scrub(text) for kind, copy in plan.copies.items() for name, text in show_table(copy.settings).items()
            },
            output=plan.output,
            reads=stream.name,
            stores=sorted(plan.copies),
        )
        self._watch = RecoveryWatch(
            plan.recovery, partial(topics.find_ends, self._admin), self._publisher, self._log, {"its stores": self._waits_for}
        )

    def __enter__(self) -> SinkJob:
        stream = self._plan.context.stream
        self._log.info("sink starts", reads=stream.name, partitions=stream.partitions, stores=", ".join(self._plan.copies))
        self._publisher.__enter__()
        self._watch.__enter__()
        for copier in self._all:
            copier.start()
        return self

    def __exit__(self, *error: Any) -> None:
        for copier in self._all:
            copier.ask_to_stop()
        for copier in self._all:
            copier.join(_END_S)
        self._watch.advance(self._positions())
        self._watch.__exit__(*error)
        self._publisher.__exit__(*error)

    @property
    def _all(self) -> list[Copier]:
        return [copier for copiers in self._copiers.values() for copier in copiers]

    @property
    def is_done(self) -> bool:
        """Whether all stores are complete: the topic has ended, or the end asked for is reached."""
        return all(copier.is_done for copier in self._all)

    @property
    def state(self) -> tuple[str, str]:
        """The state of the job, and a text that says what it waits for."""
        return self._watch.state, self._watch.waits_for

    @property
    def catching_up(self) -> CatchUpReport:
        return self._watch.catch_up

    def stores(self) -> dict[str, StoreState]:
        """Return the state of each store."""
        ends, states = self._watch.catch_up.ends, {}
        for kind, counts in self.counts().items():
            stored = self._stored(kind)
            lags = {place: max(end - stored.get(place, 0), 0) for place, end in ends.items()}
            waits = [wait for copier in self._copiers[kind] if (wait := copier.wait) is not None]
            longest = min(waits, key=lambda wait: wait.since_s, default=None)
            waiting_s = 0.0 if longest is None else time.monotonic() - longest.since_s
            states[kind] = StoreState(counts, lags, self._ages.age_s(stored), longest.reason if longest else "", waiting_s)
        return states

    def end_at_present(self) -> None:
        """End once the stores have the results that are in the topic now. Raises UnreachableError: the brokers do not answer."""
        ends = self._admin.ends(list(self._plan.recovery.starts))
        for copier in self._all:
            copier.end_at({partition: end for (_, partition), end in ends.items()})

    def poll(self) -> str:
        """Publish the progress; return it in a few words. Raises TidegateError: copying into a store cannot go on."""
        for copier in self._all:
            if copier.failure is not None:
                raise copier.failure
        self._watch.advance(self._positions())
        behind = self._watch.poll()
        self._ages.record(self._watch.catch_up.ends, {kind: self._stored(kind) for kind in self._copiers})
        counts = self.counts()
        rows = sum(count["rows"] for count in counts.values())
        refused = sum(count["refused"] for count in counts.values())
        return f"{rows:,} results written{f', {refused:,} refused' if refused else ''}  {behind}".rstrip()

    def counts(self) -> dict[str, Counter[str]]:
        """Return, by store, the numbers of results and batches written since the job began, of results refused, and of retries."""
        return {kind: sum((Counter(copier.counts) for copier in copiers), Counter()) for kind, copiers in self._copiers.items()}

    def summary(self) -> dict[str, Any]:
        """Return the state of the job for programs."""
        stores = {kind: state.as_dict() for kind, state in self.stores().items()}
        waits = {"waits_for": self._watch.waits_for} if self._watch.waits_for else {}
        return {"output": self._plan.output, "stores": stores, **waits, "recovery": self._watch.catch_up.as_dict()}

    def _positions(self) -> Positions:
        stored = [self._stored(kind) for kind in self._copiers]
        return {place: min(positions[place] for positions in stored) for place in self._plan.recovery.starts}

    def _stored(self, kind: str) -> Positions:
        """Return the next log offset of each partition that a store lacks."""
        name, offsets = self._plan.context.stream.name, {**self._plan.recovery.starts}
        for partition, offset in (item for copier in self._copiers[kind] for item in copier.positions.items()):
            # A copier whose store has not answered yet has the position 0: it counts from where the job began.
            offsets[name, partition] = max(offset, offsets[name, partition])
        return offsets

    def _waits_for(self) -> str:
        # If several copiers wait for the same store, the longest wait counts.
        since_by_reason: dict[str, str] = {}
        for since, reason in sorted((wait.since, wait.describe()) for copier in self._all if (wait := copier.wait) is not None):
            since_by_reason.setdefault(reason, since)
        return "; ".join(f"waiting since {since}: {reason}" for reason, since in since_by_reason.items())


def _make_copiers(kind: str, copy: CopyPlan, context: StoreContext) -> list[Copier]:
    shares = min(copy.settings.connections, context.stream.partitions)
    return [
        Copier(copy, make_store(kind, copy.settings, context), range(share, context.stream.partitions, shares)) for share in range(shares)
    ]
