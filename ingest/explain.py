"""
Explanations of records of a raw topic: what ingest decided about each one, and which other record caused it (spec section 7).
Law: an explanation agrees with what the job decided. :mod:`ordering.proof.explain` judges the same log and journaled facts by the same
rules, in code of its own, and tests compare the two. Any earlier record may have set a watermark, so the walk starts at the beginning of
the partition. Watermarks set by records that retention has deleted are unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import cast

from ingest.config import IngestPlan, Partition
from ingest.fields import FieldReader
from ingest.planner.arrival_stamps import PlanningTimes
from ingest.stage.processor import RangeMarks, RangeWalk, read_unskipped
from ordering.errors import RefusedError
from ordering.model.step import Batch
from ordering.proof.explain import Explainer, Explanation
from ordering.protocol.facts import Fact, FactKind
from ordering.ticks import MILLISECOND_US, TICK_MAX
from tidegate.dead_letter_reasons import IngestReason
from tidegate.kafka.ranges import RangeReader
from tidegate.kafka.records import Records
from tidegate.kafka.writer import GaplessProducer

CHUNK_RECORDS = 2_000


class ExplainingWalk(RangeWalk):
    """
    Walks an input partition as its stage did, but writes nothing. *facts* are the journal's, imports included; *offsets* are the records to
    explain. ``unusable`` gives the reason for each of them that is not an event, by offset.
    """

    def __init__(self, plan: IngestPlan, partition: Partition, facts: Iterable[Fact], offsets: frozenset[int]) -> None:
        model = plan.model(plan.partitions.index(partition))
        # Nothing is written, so no producer is needed.
        super().__init__(plan, model, model.new_state(), FieldReader.of(plan.settings, plan.payloads), cast(GaplessProducer, None))
        self._partition, self._offsets = partition, offsets
        by_kind: dict[int, list[tuple[int, int]]] = {}
        for fact in sorted(facts, key=lambda fact: fact.position):
            by_kind.setdefault(fact.kind, []).append((fact.position, fact.value))
        self._marks = RangeMarks(tuple(by_kind.get(FactKind.ESTIMATE, ())), tuple(by_kind.get(FactKind.IMPORT, ())))
        self._planning_times = self._planning_times_of(tuple(by_kind.get(plan.settings.planning_kind, ())))
        name = f"{partition[0]}-{partition[1]}"
        over = plan.settings.over is not None
        self._explainer = Explainer(model.policies, over, partition=name, joined_us=model.joined_us, offsets=offsets)
        self._explanations: list[Explanation] = []
        self.unusable: dict[int, str] = {}

    def _planning_times_of(self, spans: tuple[tuple[int, int], ...]) -> PlanningTimes:
        settings = self._plan.settings
        if not spans and settings.arrival == "ingest":
            what = "the journal does not know when the records arrived"
            fix = "tidegate journal rebuild brings back what the ordered topic holds"
            raise RefusedError(what, code="TG-JOURNAL-LOST", where=f"{self._partition[0]}-{self._partition[1]}", fix=fix)
        return PlanningTimes(settings.planning_kind, spans, TICK_MAX // MILLISECOND_US, self._plan.arrival_max_ahead_us)

    def explanations(self, start: int, end: int, on_records: Callable[[int], None]) -> Iterator[Explanation]:
        """
        Walk until *end*, or until all is explained; yield the explanations, also of events still held. *on_records* gets each piece's
        length.
        """
        open_offsets = set(self._offsets)
        self._state.next_offset = start
        with RangeReader(self._plan.kafka, *self._partition, headers=self._plan.settings.source_ctis) as reader:
            for records in read_unskipped(reader, start, end, self._plan.skipped_spans(self._partition), CHUNK_RECORDS):
                self._judge(*self._partition, records, self._marks)
                yield from self._pop_explanations(open_offsets)
                on_records(len(records))
                if not open_offsets - self.unusable.keys():
                    return
        marks = self._marks.between(self._state.next_offset, end)
        self._step(self._model.time_only_batch(end, marks.estimates, marks.imports))
        yield from self._pop_explanations(open_offsets)
        yield from self._explainer.held()

    def _pop_explanations(self, open_offsets: set[int]) -> Iterator[Explanation]:
        explanations, self._explanations = self._explanations, []
        open_offsets -= {explanation.offset for explanation in explanations}
        yield from explanations

    def _step(self, batch: Batch) -> None:
        self._explanations += self._explainer.walk(batch)
        self._state.next_offset = int(batch.end_offset)

    def _dead_letter(self, topic: str, partition: int, records: Records, row: int, reason: IngestReason) -> None:
        if int(records.offset[row]) in self._offsets:
            self.unusable[int(records.offset[row])] = reason
