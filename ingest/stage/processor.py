"""
The stateful stage: walks the ranges of one task, saves their states in Spark's store, and then writes their CTIs. It is a thin adapter:
``ordering.model.step`` decides everything, and :mod:`ingest.stage.range_walk` feeds it from Kafka.
Law: a repeated batch writes the same bytes with the same numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ingest.config import IngestPlan
from ingest.planned_range import IngestRange
from ingest.stage.letters import drop_letter_writers, letter_writers
from ingest.stage.memory import JobMemory
from ingest.stage.open_batch import OpenBatch, OpenRange
from ingest.stage.range_output import write_ctis
from ingest.stage.range_walk import RangeWalk
from ordering.model.state import State
from ordering.protocol.punctuation import Cti
from tidegate.basics.fault_points import pause_at
from tidegate.platform.checkpoint.between_batches import LeftWork
from tidegate.platform.checkpoint.open_batches import write_report
from tidegate.platform.checkpoint.spilling import spill
from tidegate.platform.kafka.worker import WORKER
from tidegate.platform.observe.detail_requests import DetailQuestion
from tidegate.platform.observe.logs import bind_fields, configure_worker
from tidegate.platform.observe.reports import BrokenPolicies, IngestReport
from tidegate.platform.spark.privates import batch_of_task
from tidegate.platform.spark.range_rows import read_row
from tidegate.platform.spark.state_store import StateStore, forget_value
from tidegate.records.fields import FieldReader


class IngestStage:
    """
    The stateful stage of one ingest job, in one task. Spark commits a task's state only after :meth:`complete` has returned. All ranges of
    a task wait together for acknowledgements, as each wait costs a request to every output partition.
    """

    def __init__(self, plan: IngestPlan) -> None:
        self._plan = plan
        self._fields = FieldReader.of(plan.settings, plan.payloads)
        self._question = DetailQuestion(Path(plan.checkpoint))
        self._ctis: list[Cti] = []
        # The ranges of an open batch that were walked so far; once all were, the batch.
        self._opened: list[OpenRange] = []
        self._batch: OpenBatch | None = None
        self._left = WORKER.memory(plan.checkpoint, LeftWork[RangeWalk])
        self._left.end()
        configure_worker()

    def reports(self, rows: list[Any], store: StateStore[State]) -> Iterator[str]:
        """Yield a report for each range; of a batch that stays open the last range yields all."""
        for row in rows:
            planned = read_row(IngestRange, row)
            place = {"topic": planned.topic, "partition": planned.partition, "offset": planned.start, "until": planned.end}
            with bind_fields(input=self._plan.settings.name, **place, **batch_of_task()):
                opened = self._open(planned, store)
            if not planned.open_ranges:
                yield self._close(opened).to_json()
                continue
            self._opened.append(opened)
            if len(self._opened) == planned.open_ranges:
                with bind_fields(input=self._plan.settings.name, **batch_of_task()):
                    reports = self._stay_open()
                yield from (report.to_json() for report in reports)

    def _open(self, planned: IngestRange, store: StateStore[State]) -> OpenRange:
        """Walk the planned range."""
        roster = replace(self._plan.roster, version=planned.roster_version, inputs=planned.inputs)
        model = self._plan.model(planned.number, roster, planned.joined_us)
        gone_on = self._left.pop(planned.number)
        state = store.load(planned.number, lambda: self._plan.first_state(model), model.restore)
        tally = gone_on.tally if gone_on is not None and gone_on.is_of(state) else None
        producer = WORKER.producer(self._plan.kafka)

        def save() -> None:
            if planned.open_ranges > 1:
                store.select()
            self._save(planned.number, state, store)

        walk = RangeWalk(self._plan, model, state, self._fields, producer, save, tally)
        with self._forgotten_on_failure(planned):
            walk.walk(planned)
        return OpenRange(planned, walk, save)

    def _close(self, opened: OpenRange) -> IngestReport:
        """Save the state of a range; leave its last CTIs for :meth:`complete`."""
        with self._forgotten_on_failure(opened.planned):
            report = opened.walk.finish(self._question.substreams())
        self._ctis += opened.walk.ctis
        opened.save()
        return report

    def _stay_open(self) -> list[IngestReport]:
        """Keep the ranges of this task open; return their reports."""
        ranges = self._opened
        settings, batch = self._plan.settings, batch_of_task().get("batch", 0)

        def publish(ctis: list[Cti]) -> None:
            write_ctis(WORKER.producer(self._plan.kafka), settings.ordered_topic, ctis)

        with self._forgotten_on_failure(*(opened.planned for opened in ranges)):
            self._batch = OpenBatch(self._plan, ranges, batch, publish, lambda opened: self._tell(opened, batch), self._question.is_watched)
            self._batch.run()
        return [opened.report(self._close(opened), batch) for opened in ranges]

    def _tell(self, opened: OpenRange, batch: int) -> None:
        # Costs, breaks and jumps are those of a whole batch: the report at its end has them.
        told = opened.report(opened.walk.report(self._question.substreams()), batch)
        report = replace(told, seconds={}, breaks=BrokenPolicies(), jump=None)
        with suppress(OSError):
            write_report(Path(self._plan.checkpoint), report.number, report.to_json())

    @contextmanager
    def _forgotten_on_failure(self, *ranges: IngestRange) -> Iterator[None]:
        try:
            yield
        except BaseException:
            # The producer's queue and the readers' positions are unknown now: none may be used again.
            self._drop_producers()
            settings = self._plan.settings
            for planned in ranges:
                WORKER.drop_reader(self._plan.kafka, planned.topic, planned.partition, settings.source_ctis, settings.headers)
            raise

    def _save(self, number: int, state: State, store: StateStore[State]) -> None:
        delta = state.save()
        spill(state, self._plan.settings.held_bytes_max)
        store.save(number, state, delta)

    def complete(self) -> None:
        """Wait for the events of all ranges of this task, write the CTIs above them, and let an open batch go on until the next begins."""
        start_s = time.perf_counter()
        with bind_fields(input=self._plan.settings.name, **batch_of_task()):
            try:
                for letters in letter_writers(self._plan):
                    letters.flush()
                write_ctis(WORKER.producer(self._plan.kafka), self._plan.settings.ordered_topic, self._ctis)
            except BaseException:
                self._drop_producers()
                raise
        pause_at("walked")
        JobMemory.of(self._plan).keep_wait(time.perf_counter() - start_s)
        if self._batch is not None and self._batch.may_go_on:
            walks = {opened.planned.number: opened.walk for opened in self._opened}
            job = self._plan.checkpoint
            self._left.go_on(Path(job), walks, partial(self._go_on, self._batch), partial(forget_value, job))

    def _go_on(self, batch: OpenBatch, is_over: Callable[[], bool]) -> None:
        for opened in self._opened:
            opened.walk.save_no_more()
            opened.walk.tally.count_anew()
        planned = [opened.planned for opened in self._opened]
        with bind_fields(input=self._plan.settings.name), self._forgotten_on_failure(*planned):
            batch.go_on(is_over)

    def _drop_producers(self) -> None:
        WORKER.drop_producer(self._plan.kafka)
        drop_letter_writers(self._plan)
