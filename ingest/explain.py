"""
Explanations of records of a raw topic: what ingest decided about each one, and which other record caused it
(docs/operate/watching.md#explain-an-event). Law: an explanation agrees with what the job decided. :mod:`ordering.proof.explain` judges the
same log and journaled facts by the same rules, in code of its own, and tests compare the two. Any earlier record may have set a watermark,
so the walk starts at the beginning of the partition. Watermarks set by records that retention has deleted are unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ingest.config import IngestPlan, Partition
from ingest.replay.walk import ReplayingWalk
from ingest.skips import read_unskipped
from ingest.unusable_place import UnusablePlace, find_unusable_place
from ordering.model.step import Batch
from ordering.proof.explain import Explainer, Explanation
from ordering.protocol.facts import Fact
from tidegate.basics.dead_letter_reasons import IngestReason
from tidegate.platform.kafka.records import Records

CHUNK_RECORDS = 2_000


class ExplainingWalk(ReplayingWalk):
    """
    A replay that explains its decisions. *facts* are the journal's, imports included; *offsets* are the records to explain, by their places
    (:mod:`ordering.protocol.elements`). ``unusable_offsets`` has the reason for each of them that is no event, and its place there.
    """

    def __init__(self, plan: IngestPlan, partition: Partition, facts: Iterable[Fact], offsets: frozenset[int]) -> None:
        super().__init__(plan, partition, facts)
        self._offsets = offsets
        model, name = self._model, f"{partition[0]}-{partition[1]}"
        self._explainer = Explainer(model.policies, model.over, partition=name, joined_us=model.joined_us, offsets=offsets)
        self._explanations: list[Explanation] = []
        self.unusable_offsets: dict[int, UnusablePlace] = {}

    def explanations(self, start: int, end: int, on_records: Callable[[int], None]) -> Iterator[Explanation]:
        """
        Walk until *end*, or until all records are explained; yield the explanations, also of events that are still held. *on_records* is
        called with the number of records of each piece.
        """
        open_offsets = set(self._offsets)
        self._state.next_offset = self._places.place_of(start)
        with self._open_reader() as reader:
            for records in read_unskipped(reader, start, end, self._plan.skipped_spans(self._partition), CHUNK_RECORDS):
                self.judge(*self._partition, records, self._marks)
                yield from self._pop_explanations(open_offsets)
                on_records(len(records))
                if not open_offsets - self.unusable_offsets.keys():
                    return
        end = self._places.place_of(end)
        marks = self._marks.between(self._state.next_offset, end)
        self._step(self._model.time_only_batch(end, marks.estimates, marks.imports))
        yield from self._pop_explanations(open_offsets)
        yield from map(self._show, self._explainer.held())

    def _pop_explanations(self, open_offsets: set[int]) -> Iterator[Explanation]:
        explanations, self._explanations = self._explanations, []
        open_offsets -= {explanation.offset for explanation in explanations}
        yield from map(self._show, explanations)

    def _show(self, explanation: Explanation) -> Explanation:
        return explanation.with_places() if self._places.bits else explanation

    def _step(self, batch: Batch) -> None:
        self._explanations += self._explainer.walk(batch)
        self._state.next_offset = int(batch.end_offset)

    def _dead_letter(self, topic: str, partition: int, records: Records, row: int, reason: IngestReason) -> None:
        if int(records.offset[row]) in self._offsets:
            settings = self._plan.settings
            path = (settings.end if reason == IngestReason.END else settings.timestamp_by) or ""
            place = find_unusable_place(reason, records.payload(row), path.rpartition(".")[2], is_json=self._plan.payloads.name == "json")
            self.unusable_offsets[int(records.offset[row])] = place
