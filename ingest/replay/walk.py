"""
Replays: walks an input partition as its stage does, in one process, without writing.

Law (level 1): from the log, the settings and the journal's facts a replay returns the events that the job has written into the ordered
topic, byte for byte; :class:`~ingest.stage.judging.RecordJudge` judges for both. Memory is that of a stage: one piece and the held events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from ingest.config import IngestPlan, Partition
from ingest.planned_range import RangeMarks
from ingest.planner.arrival_stamps import PlanningTimes
from ingest.skips import read_unskipped
from ingest.stage.judging import RecordJudge
from ordering.errors import RefusedError
from ordering.model.events import Released
from ordering.model.state import State
from ordering.model.step import Batch
from ordering.protocol.facts import Fact, FactKind
from ordering.ticks import MILLISECOND_US, TICK_MAX
from tidegate.basics.dead_letter_reasons import IngestReason
from tidegate.platform.kafka.ranges import CHUNK_EVENTS, RangeReader
from tidegate.platform.kafka.records import Records
from tidegate.records.fields import FieldReader


class ReplayingWalk(RecordJudge):
    """
    Walks an input partition as its stage did, from *state* on (None: from the beginning). *facts* are the journal's, imports included.
    ``unusable`` counts the records that are no events, by reason.
    """

    def __init__(self, plan: IngestPlan, partition: Partition, facts: Iterable[Fact], state: State | None = None) -> None:
        model = plan.model(plan.partitions.index(partition))
        super().__init__(plan, model, state or model.new_state(), FieldReader.of(plan.settings, plan.payloads))
        self._partition = partition
        by_kind: dict[int, list[tuple[int, int]]] = {}
        for fact in sorted(facts, key=lambda fact: fact.position):
            by_kind.setdefault(fact.kind, []).append((fact.position, fact.value))
        start = self._places.offset_of(self._state.next_offset)
        self._marks = RangeMarks(
            *(_in_force_from(start, by_kind.get(kind, [])) for kind in (FactKind.ESTIMATE, FactKind.IMPORT)),
        ).at(self._places)
        self._planning_times = self._planning_times_of(tuple(by_kind.get(plan.settings.planning_kind, ())))
        self._steps: list[Released] = []
        self.unusable: Counter[str] = Counter()

    @property
    def c(self) -> int:
        """No later event of this partition is below this, microseconds."""
        return self._state.c

    def _open_reader(self) -> RangeReader:
        settings = self._plan.settings
        return RangeReader(self._plan.kafka, *self._partition, settings.source_ctis, framed=settings.headers)

    def events(self, end: int, *, finish: bool = False) -> Iterator[tuple[int, Released]]:
        """Walk until *end*, and to the end of the input if *finish*; yield the records and the released events of each piece."""
        start, skips = self._places.offset_of(self._state.next_offset), self._plan.skipped_spans(self._partition)
        with self._open_reader() as reader:
            for records in read_unskipped(reader, start, end, skips, CHUNK_EVENTS):
                self.judge(*self._partition, records, self._marks)
                yield from self._pop_steps(len(records))
        end = max(self._places.place_of(end), self._state.next_offset)
        marks = self._marks.between(self._state.next_offset, end)
        self._step(self._model.time_only_batch(end, marks.estimates, marks.imports, finish))
        yield from self._pop_steps(0)

    def _planning_times_of(self, spans: tuple[tuple[int, int], ...]) -> PlanningTimes:
        settings = self._plan.settings
        if not spans and settings.arrival == "ingest":
            what = "the journal does not know when the records arrived"
            fix = "tidegate journal rebuild brings back what the ordered topic holds"
            raise RefusedError(what, code="TG-JOURNAL-LOST", where=f"{self._partition[0]}-{self._partition[1]}", fix=fix)
        return PlanningTimes(settings.planning_kind, spans, TICK_MAX // MILLISECOND_US, self._plan.arrival_max_ahead_us)

    def _pop_steps(self, records: int) -> Iterator[tuple[int, Released]]:
        steps, self._steps = self._steps, []
        for released in steps:
            yield records, released
            records = 0

    def _step(self, batch: Batch) -> None:
        step = self._model.step(self._state, batch)
        self._count(step.counts)
        self._steps.append(step.released)

    def _dead_letter(self, topic: str, partition: int, records: Records, row: int, reason: IngestReason) -> None:
        self.unusable[reason] += 1


def _in_force_from(start: int, marks: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the marks from a position on, preceded by the largest earlier value, which is in force at that position."""
    before = max((value for position, value in marks if position < start), default=None)
    later = tuple(mark for mark in marks if mark[0] >= start)
    return later if before is None else ((start, before), *later)
