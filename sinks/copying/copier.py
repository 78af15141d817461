"""
Copies some partitions of a result topic into one store, in a thread of its own.

Law: a copier goes by the store's progress, never by its own memory. When it begins, and whenever store or broker did not answer, it asks
the store for its progress and reads from there. So it may be killed at any moment, and several copiers may copy the same partitions. A
result that the store refuses is in the dead-letter topic before the progress passes it.

A copier that could not write waits until a write succeeds, or nothing is left to write: that the store answers, or that the topic can be
read, does not end the wait. Its beginning, the number of tries and the growing pause between them belong to the whole wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace

from confluent_kafka import KafkaException

from ordering.errors import RefusedError, TidegateError, UnreachableError
from ordering.ticks import SECOND_US
from sinks.copying.feed import PartitionFeed
from sinks.stores.base import Batch, Progress, Refusal, Rows, RowsRefused, Store, StoreError, Stream, TryLater
from tidegate.basics.dead_letter_reasons import StoreReason
from tidegate.basics.fault_points import pause_at
from tidegate.platform.checkpoint.binding import check_same_topics
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.kafka.dead_letters import DeadLetter, DeadLetterWriter
from tidegate.platform.kafka.ranges import SharedConnections, wait_for_any
from tidegate.platform.observe.logs import get_logger
from tidegate.platform.settings.tables.stores.base import StoreSettings

# How long a copier that has read everything waits for more before it asks for the ends again, seconds.
_IDLE_S = 0.1
_RETRY_S, _RETRY_MAX_S = 0.25, 10.0
# A batch is written when it has about so many bytes.
_BATCH_BYTES = 32 * 2**20
# The store's message in a dead letter is cut to this length.
_REASON_LENGTH_MAX = 500

_REASONS = {"TG-STORE-LOCKED": "locked", "TG-STORE-FULL": "full", "TG-KAFKA-UNREACHABLE": "kafka"}
_TAKE = "let the store take such results: its words say what is in the way"
# The way out that needs no change of the store. Another query would not help: the result stands in the topic.
_PASS_OVER = 'set on_error = "dead_letter": they then go to {}.dead, and the others are written. Then start again: it resumes from here'

_log = get_logger("sink")


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """The plan that the copiers of one store share."""

    # Librdkafka properties, secrets included.
    kafka: Mapping[str, str] = field(repr=False)
    stream: Stream
    settings: StoreSettings
    # Asks for starts and ends of the topic.
    admin: Admin
    # Makes the writer of the dead-letter topic; None: a refused row stops the job.
    letters: Callable[[], DeadLetterWriter] | None = None
    # By partition, the log offset at which to stop; None: go on for ever.
    until: Mapping[int, int] | None = None

    def starts(self, partitions: Sequence[int]) -> dict[int, int]:
        """Return the first log offset that retention has left in each partition."""
        return {partition: start for (_, partition), start in self.admin.starts(self._places(partitions)).items()}

    def ends(self, partitions: Sequence[int]) -> Mapping[int, int]:
        """Return the log offset up to which each partition is to be copied now."""
        if self.until is not None:
            return self.until
        return {partition: end for (_, partition), end in self.admin.ends(self._places(partitions)).items()}

    def _places(self, partitions: Sequence[int]) -> list[tuple[str, int]]:
        return [(self.stream.name, partition) for partition in partitions]


@dataclass(frozen=True, slots=True)
class Wait:
    """
    The wait of a copier: the last error, how many tries have failed since it began, and when that was, as text and in seconds of a clock
    that never goes back.
    """

    error: UnreachableError
    failures: int
    since: str
    since_s: float

    @property
    def reason(self) -> str:
        """What is in the way: ``locked``, ``full``, ``unreachable`` or ``kafka``."""
        return _REASONS.get(self.error.code, "unreachable")

    def describe(self) -> str:
        fix = f"; {self.error.fix}" if self.error.fix else ""
        return f"{self.error.what} ({self.error.where}){fix}"


@dataclass(slots=True)
class _Pending:
    """The results of one partition that are read and not yet written: at most a batch and a piece."""

    parts: list[Rows] = field(default_factory=list)
    # When the first of them was read, or the last batch was cut off; monotonic seconds.
    since_s: float = 0.0

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

    @property
    def first_offset(self) -> int:
        return int(self.parts[0].offset[0])

    def add(self, rows: Rows) -> None:
        if not self.parts:
            self.since_s = time.monotonic()
        self.parts.append(rows)

    def cut(self, count: int) -> Rows:
        """Remove and return the first *count* rows."""
        whole = Rows.concat(self.parts)
        rest = whole.slice(count, len(whole))
        self.parts = [rest] if len(rest) else []
        self.since_s = time.monotonic()
        return whole.slice(0, count)


class Copier(threading.Thread):
    """
    Copies *partitions* into *store*; :meth:`ask_to_stop` ends it after the batch under way. Other threads read ``positions`` (next log
    offset by partition), ``counts``, ``wait`` (None if it works) and ``failure``. ``rows`` of the counts are the results that the store has
    got since the copier began, those of a commit whose answer was lost among them.
    """

    def __init__(self, plan: CopyPlan, store: Store, partitions: Sequence[int]) -> None:
        super().__init__(name=f"copier-{partitions[0]}", daemon=True)
        self._plan, self._store, self._partitions = plan, store, partitions
        self._connections = SharedConnections()
        self._feeds = {number: PartitionFeed(plan.kafka, plan.stream, number, self._connections) for number in partitions}
        self._pending = {partition: _Pending() for partition in partitions}
        # By partition, the end that the next batch must have because it repeats one (:attr:`sinks.stores.base.Progress.end`).
        self._exact_ends: dict[int, int] = {}
        self._letters: DeadLetterWriter | None = None
        self._stopping = threading.Event()
        self.positions: Mapping[int, int] = dict.fromkeys(partitions, 0)
        self.counts = {"rows": 0, "batches": 0, "refused": 0, "retries": 0}
        # By partition: the last progress that the store has answered with, and the results at or above it that it has refused.
        self._known: dict[int, int] = {}
        self._refused: dict[int, set[int]] = {partition: set() for partition in partitions}
        self.wait: Wait | None = None
        # Whether the last call of the store's write failed: then only another one shows that it takes results again.
        self._write_failed = False
        self.failure: TidegateError | None = None
        self.is_done = False

    def end_at(self, ends: Mapping[int, int]) -> None:
        """End once these ends have been written, by partition."""
        self._plan = replace(self._plan, until=ends)

    def ask_to_stop(self) -> None:
        """End after the batch under way."""
        self._stopping.set()

    def run(self) -> None:
        """Copy until asked to stop, to the end asked for, or until an error that repeating does not mend."""
        try:
            self._run()
            self.is_done = True
        except TidegateError as error:
            self.failure = error
        except Exception as error:
            _log.exception("the copier has failed")
            self.failure = TidegateError(f"the copier has failed: {type(error).__name__}: {error}", code="TG-STORE", where=self._store.name)
        finally:
            self._close()

    def _run(self) -> None:
        knows_progress = False
        while not self._stopping.is_set():
            try:
                if not knows_progress:
                    self._seek()
                knows_progress = True
                is_idle = self._copy()
                if not self._write_failed or (is_idle and not any(pending.parts for pending in self._pending.values())):
                    self._end_wait()
                if self._is_finished():
                    return
                if is_idle:
                    self._wait_for_more()
            except (UnreachableError, KafkaException) as error:
                # Leaders move, brokers and stores restart: the copier reads again from the store's progress.
                knows_progress = False
                self._wait(error)
        if knows_progress:
            self._write_rest()

    def _write_rest(self) -> None:
        """Write the results that were read and waited for a full batch. If the store does not answer, the next start copies them."""
        with suppress(UnreachableError):
            for partition, feed in self._feeds.items():
                self._write_due(partition, feed)

    def _seek(self) -> None:
        """Continue from the store's progress."""
        known = self._store.progress(self._partitions)
        starts = self._plan.starts(self._partitions)
        for partition, start in starts.items():
            progress = known.get(partition, Progress(self._plan.stream.id, 0, 0))
            self._follow(partition, progress)
            if progress.offset < start:
                what = f"retention has deleted results from number {progress.position} on that the store does not have"
                fix = "give the topic a longer retention_time; to have the others without them, copy into another store from a new topic"
                where = f"{self._plan.stream.name}-{partition}@{progress.offset}"
                raise RefusedError(what, code="TG-RETENTION", where=where, fix=fix)

    def _follow(self, partition: int, progress: Progress) -> None:
        """Continue one partition from the store's progress. Raises RefusedError: it is the progress of an earlier topic of this name."""
        name, fix = self._plan.stream.name, "name another table; or delete what this one has of the old topic, and its progress"
        check_same_topics({name: progress.stream_id}, {name: self._plan.stream.id}, self._store.name, fix)
        self._pending[partition] = _Pending()
        self._note_progress(partition, progress)
        self._exact_ends.pop(partition, None)
        if progress.end is not None:
            self._exact_ends[partition] = progress.end
        self._feeds[partition].seek(progress)
        self._note_position(partition)

    def _copy(self) -> bool:
        """Read each partition to its end, and write the batches that are due; return whether there was nothing to read."""
        ends = self._plan.ends(self._partitions)
        is_idle = True
        for partition, feed in self._feeds.items():
            if self._stopping.is_set():
                return False
            pending = self._pending[partition]
            if feed.offset < ends[partition]:
                is_idle = False
                with closing(feed.read(ends[partition], self._plan.settings.batch_rows)) as pieces:
                    for rows in pieces:
                        pending.add(rows)
                        if self._stopping.is_set() or not self._write_due(partition, feed):
                            break
            self._write_due(partition, feed)
            self._note_position(partition)
        return is_idle

    def _wait_for_more(self) -> None:
        """Wait a while; meanwhile read results as they come, and write the batches that become due."""
        if self._plan.until is not None:
            self._stopping.wait(_IDLE_S)
            return
        until_s, interval_s = time.monotonic() + _IDLE_S, self._plan.settings.flush_interval_us / SECOND_US
        while not self._stopping.is_set() and time.monotonic() < until_s:
            has_come = False
            for partition, feed in self._feeds.items():
                rows = feed.read_on(self._plan.settings.batch_rows)
                has_come |= rows is not None
                if rows is not None and len(rows):
                    self._pending[partition].add(rows)
                if not self._write_due(partition, feed):
                    return
                self._note_position(partition)
            if not has_come:
                due_s = [pending.since_s + interval_s for pending in self._pending.values() if pending.parts]
                wait_s = max(min([until_s, *due_s]) - time.monotonic(), 0.0)
                wait_for_any([feed.source for feed in self._feeds.values()], int(wait_s * 1_000) + 1)

    def _write_due(self, partition: int, feed: PartitionFeed) -> bool:
        """Write full batches, and a smaller one if it is due; return False if the feed has jumped to the store's progress."""
        settings = self._plan.settings
        while True:
            pending = self._pending[partition]
            waiting, exact = len(pending), self._exact_ends.get(partition)
            if not waiting:
                return True
            if exact is not None:
                count = exact - int(pending.parts[0].position[0])
                is_due = waiting >= count
            else:
                count = min(waiting, settings.batch_rows)
                is_old = time.monotonic() - pending.since_s >= settings.flush_interval_us / SECOND_US
                is_last = self._plan.until is not None and feed.offset >= self._plan.until[partition]
                # After a failed write the next one is tried at once: it shows whether the store takes results again.
                is_last = is_last or feed.is_finished or self._stopping.is_set() or self._write_failed
                is_due = count == settings.batch_rows or pending.nbytes >= _BATCH_BYTES or is_old or is_last
            if not is_due:
                return True
            if not self._write(partition, pending.cut(count)):
                return False

    def _write(self, partition: int, rows: Rows) -> bool:
        """Write one batch; return whether the store's progress is at its end. If not, the feed jumps to that progress."""
        start, end = int(rows.position[0]), int(rows.position[-1]) + 1
        batch = Batch(self._plan.stream.id, partition, start, end, int(rows.offset[-1]) + 1, rows)
        pause_at("batch cut")
        self._write_failed = True
        progress = self._write_accepted(batch)
        self._end_wait()
        pause_at("batch written")
        self._exact_ends.pop(partition, None)
        if progress.position == end:
            self._note_progress(partition, progress)
            self.counts["batches"] += 1
            self._note_position(partition)
            return True
        _log.info("another job writes into this store too", store=self._store.name, partition=partition, position=progress.position)
        self._follow(partition, progress)
        return False

    def _write_accepted(self, batch: Batch) -> Progress:
        """Write the rows that the store takes; return its progress. Other rows become dead letters, or stop the job."""
        while True:
            try:
                return self._store.write(batch)
            except StoreError:
                # The store was changed while the job ran: its check says what has changed, and which statement mends it.
                self._store.close()
                self._store.check()
                raise
            except RowsRefused as refused:
                self._refuse(batch, refused.refusals, refused.fix)
                batch = batch.without({refusal.position for refusal in refused.refusals})

    def _refuse(self, batch: Batch, refusals: Sequence[Refusal], fix: str) -> None:
        """Write refused rows to the dead-letter topic. Raises RefusedError (TG-STORE-ROW), with the store's *fix*: there is none."""
        row_by_position = {int(position): row for row, position in enumerate(batch.rows.position)}
        first, name = refusals[0], f"{self._plan.stream.name}-{batch.partition}"
        row = row_by_position[first.position]
        if self._plan.letters is None:
            raise RefusedError(
                f"{self._store.name} does not take a result: {first.reason}",
                code="TG-STORE-ROW",
                where=f"{name}@{batch.rows.offset[row]}",
                fix=f"{fix or _TAKE}; or {_PASS_OVER.format(self._plan.stream.name)}",
                example='on_error = "dead_letter"',
            )
        self._letters = self._letters or self._plan.letters()
        for refusal in refusals:
            row = row_by_position[refusal.position]
            reason = StoreReason.REFUSED.format(refusal.reason[:_REASON_LENGTH_MAX])
            origin = f"{name}@{batch.rows.offset[row]}"
            self._letters.send(DeadLetter(reason, origin, batch.rows.key[row].as_py(), batch.rows.value[row].as_py()))
        self._letters.flush()
        positions = {refusal.position for refusal in refusals}
        # If the write fails after this, they are refused again.
        self.counts["refused"] += len(positions - self._refused[batch.partition])
        self._refused[batch.partition] |= positions
        _log.warning(
            "the store does not take results: they are dead letters", store=self._store.name, rows=len(refusals), first=first.reason
        )

    def _note_progress(self, partition: int, progress: Progress) -> None:
        """Count what the store has got since its last known progress, whether or not the answer to the write of it came."""
        before, refused = self._known.get(partition, progress.position), self._refused[partition]
        passed = {position for position in refused if position < progress.position}
        self.counts["rows"] += max(progress.position - before - len(passed), 0)
        self._known[partition] = progress.position
        refused -= passed

    def _note_position(self, partition: int) -> None:
        pending, feed = self._pending[partition], self._feeds[partition]
        # Other threads iterate over the mapping, so it is replaced, never changed.
        self.positions = {**self.positions, partition: pending.first_offset if pending.parts else feed.offset}

    def _is_finished(self) -> bool:
        if any(pending.parts for pending in self._pending.values()):
            return False
        until = self._plan.until
        return all(feed.is_finished or (until is not None and feed.offset >= until[feed.partition]) for feed in self._feeds.values())

    def _end_wait(self) -> None:
        self.wait, self._write_failed = None, False

    def _wait(self, error: UnreachableError | KafkaException) -> None:
        """Disconnect and wait, longer the more tries have failed in a row. Raises UnreachableError: they are more than ``max_retries``."""
        limit = self._plan.settings.max_retries
        if not isinstance(error, UnreachableError):
            error = UnreachableError(f"Kafka does not answer: {error}", code="TG-KAFKA-UNREACHABLE", where=self._plan.stream.name)
        failures = 1 if self.wait is None else self.wait.failures + 1
        if limit is not None and failures > limit:
            raise error
        self.counts["retries"] += 1
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()) if self.wait is None else self.wait.since
        since_s = time.monotonic() if self.wait is None else self.wait.since_s
        self.wait = Wait(error, failures, since, since_s)
        self._store.close()
        for feed in self._feeds.values():
            feed.close()
        asked_s = error.wait_s if isinstance(error, TryLater) else 0.0
        self._stopping.wait(max(min(_RETRY_S * 2 ** min(failures - 1, 10), _RETRY_MAX_S), asked_s))

    def _close(self) -> None:
        for feed in self._feeds.values():
            feed.close()
        self._connections.close()
        if self._letters is not None:
            self._letters.close()
        self._store.close()
