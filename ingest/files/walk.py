"""
The walk over a file, line by line: each partition has a time model, and events are written at the line that releases them.

Law: the lines that are written, and their order, depend on the file and the settings alone, not on how the file is cut into
blocks. At the end all held events are written in the order (system timestamp, partition, line).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import orjson

from ordering.arrays import Ints
from ordering.model.step import Batch, Counts, Model, Reason, Released
from ordering.policies import JUMP_WARN_US, Policies, Shape
from ordering.proof.explain import Explainer, Explanation, Verdict
from ordering.protocol.wire import Flag
from ordering.ticks import MILLISECOND_US, NEVER, SECOND_US
from tidegate.platform.observe.time_jumps import JumpsByCause, find_moved_events, find_time_jumps
from tidegate.records.files.blocks import Block
from tidegate.records.files.fields import FilePartition
from tidegate.records.files.flags import without_arrival
from tidegate.records.files.rows import FieldNames, OrderPlan, Rows
from tidegate.records.files.summary import add_counts

_POLICY_NAMES = {
    Flag.EARLY: b'"early"',
    Flag.LATE: b'"late"',
    Flag.OUT_OF_ORDER: b'"out_of_order"',
    Flag.CTI_VIOLATION: b'"cti_violation"',
    Flag.LIFTED_END: b'"lifted_end"',
}
_REPORTED_FLAGS = Flag.EARLY | Flag.LATE | Flag.OUT_OF_ORDER | Flag.CTI_VIOLATION | Flag.LIFTED_END
_POLICY_LISTS = [b", ".join(name for flag, name in _POLICY_NAMES.items() if flags & flag) for flags in range(_REPORTED_FLAGS + 1)]


@dataclass(slots=True)
class Outcome:
    """Lines of JSON with their line ends: events in order, and records that were dropped or unreadable."""

    ordered: list[bytes] = field(default_factory=list)
    dropped: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class Summary:
    """Counts so far, and line and text of the first unreadable record for each reason."""

    records: int = 0
    policies: Counts = field(default_factory=Counts)
    jumps: JumpsByCause = field(default_factory=JumpsByCause)
    unreadable: Counter[str] = field(default_factory=Counter)
    first_bad: dict[str, tuple[int, bytes]] = field(default_factory=dict)


class FileWalk:
    """The walk over one file, with its field names and a summary."""

    def __init__(self, plan: OrderPlan) -> None:
        self._plan = plan
        self._partitions: dict[FilePartition, _Partition] = {}
        self._next_line = 0
        self.names = FieldNames(plan)
        self.summary = Summary()

    @property
    def partitions(self) -> int:
        """How many partitions there are so far."""
        return len(self._partitions)

    def walk_block(self, block: Block) -> Outcome:
        """Walk the next records; return the lines to write."""
        if not self.names.is_resolved and (first_names := block.first_names()) is not None:
            self.names.resolve(first_names)
        rows = Rows(self.names, block)
        released: list[_ReleasedLines] = []
        rejected: list[tuple[int, bytes]] = []
        for partition, partition_rows in rows.by_partition():
            batch = rows.batch(partition_rows)
            partition_released, dropped = self._partition(partition).walk(batch)
            released.append(partition_released)
            rejected += [(int(rows.line[row]), text) for row, text in ((partition_rows[index], text) for index, text in dropped)]
        # After the walk, since an unreadable record may have gone through the model, which explains it.
        rejected += self._reject_unreadable(rows)
        self.summary.records += len(block)
        self._next_line = block.line[-1] + 1 if block.line else self._next_line
        return Outcome(_merge(released, [lines.released_by for lines in released]), [text for _, text in sorted(rejected)])

    def finish(self) -> Outcome:
        """Release all held events at the end of the file."""
        released = [self._partitions[partition].finish(self._next_line) for partition in sorted(self._partitions)]
        return Outcome(_merge(released, [lines.system_us for lines in released]))

    def _partition(self, partition: FilePartition) -> _Partition:
        state = self._partitions.get(partition)
        if state is None:
            policies, has_arrival = self._plan.policies, self.names.arrival is not None
            if not has_arrival:
                policies = without_arrival(policies, has_over=self._plan.over is not None)
            state = self._partitions[partition] = _Partition(partition, self._plan, policies, self.summary, has_arrival=has_arrival)
        return state

    def _reject_unreadable(self, rows: Rows) -> list[tuple[int, bytes]]:
        """Count the unreadable records; return (line, text) of each."""
        rejected = []
        for row in np.flatnonzero(rows.is_bad).tolist():
            line, reason, text, partition = rows.block.line[row], rows.reason[row], rows.block.text[row], rows.partition_at(row)
            self.summary.unreadable[reason] += 1
            self.summary.first_bad.setdefault(reason, (line, text))
            partition_json = partition.json if partition else b"null"
            explanation = self._explanation(partition, line) if self._plan.should_explain else None
            rejected.append((line, _dropped_line(partition_json, line, text, reason, explanation)))
        return rejected

    def _explanation(self, partition: FilePartition | None, line: int) -> Explanation:
        explanation = self._partitions[partition].explanations.pop(line, None) if partition in self._partitions else None
        return explanation or Explanation(partition.label if partition else None, line, Verdict.UNREADABLE, None, NEVER, NEVER)


@dataclass(slots=True)
class _ReleasedLines:
    """Events that left a partition, in order: the line that released each, its system timestamp and its text."""

    released_by: Ints
    system_us: Ints
    text: list[bytes]


def _merge(released: list[_ReleasedLines], sort_columns: list[Ints]) -> list[bytes]:
    """Merge the lines of several partitions by a column; among equal values the first partition comes first."""
    if len(released) == 1:
        return released[0].text
    texts = [text for lines in released for text in lines.text]
    return [texts[index] for index in np.argsort(np.concatenate(sort_columns), kind="stable").tolist()] if texts else []


class _Partition:
    """One partition's model; explanations and interval ends are kept by line until their events are written."""

    def __init__(self, name: FilePartition, plan: OrderPlan, policies: Policies, summary: Summary, *, has_arrival: bool) -> None:
        self._name, self._plan, self._has_arrival = name, plan, has_arrival
        self._counts, self._jumps = summary.policies, summary.jumps
        over = plan.over is not None
        self._model = Model(policies, over, 1, shape=plan.shape)
        self._state = self._model.new_state()
        self._explainer = Explainer(policies, over, partition=name.label) if plan.should_explain else None
        self.explanations: dict[int, Explanation] = {}
        self._ends: dict[int, int] = {}

    def walk(self, batch: Batch) -> tuple[_ReleasedLines, list[tuple[int, bytes]]]:
        """Walk a batch; return the released lines, and (row of the batch, text) of each event that a policy dropped."""
        if self._has_arrival:
            found = find_time_jumps(batch, self._model.policies, self._state.arrival_us, self._plan.clock_us, JUMP_WARN_US)
            self._jumps.add(str(self._name.label), found)
        step = self._model.step(self._state, batch)
        self._explain(batch)
        add_counts(self._counts, step.counts)
        if batch.end_us is not None:
            self._ends.update(zip(batch.offset[batch.readable].tolist(), batch.end_us[batch.readable].tolist(), strict=True))
            for line in step.dropped.offset.tolist():
                self._ends.pop(line, None)
        rows = np.searchsorted(batch.offset, step.dropped.offset).tolist()
        lines, reasons = step.dropped.offset.tolist(), [Reason(reason).name.lower() for reason in step.dropped.reason.tolist()]
        dropped = [
            (row, _dropped_line(self._name.json, line, batch.value[row], reason, self.explanations.pop(line, None)))
            for row, line, reason in zip(rows, lines, reasons, strict=True)
        ]
        return self._format_released(step.released, np.append(batch.offset, batch.end_offset)), dropped

    def finish(self, next_line: int) -> _ReleasedLines:
        end = self._model.time_only_batch(next_line, finish=True)
        step = self._model.step(self._state, end)
        self._explain(end)
        add_counts(self._counts, step.counts)
        return self._format_released(step.released, np.full(1, next_line, dtype=np.int64))

    def _explain(self, batch: Batch) -> None:
        if self._explainer:
            self.explanations |= {explanation.offset: explanation for explanation in self._explainer.walk(batch)}

    def _format_released(self, released: Released, lines: Ints) -> _ReleasedLines:
        if not self._has_arrival:
            self._jumps.add(str(self._name.label), find_moved_events(released, JUMP_WARN_US))
        offsets = released.offset.tolist()
        columns = [format_ticks(released.system_us)]
        pattern = b'{"system_timestamp": "%b", '
        if self._plan.shape is Shape.INTERVAL:
            pattern += b'"end": "%b", '
            columns.append(self._ends_after(released.system_us, offsets))
        # The partition's JSON goes into a pattern, where % must be doubled.
        pattern += b'"origin": [' + self._name.json.replace(b"%", b"%%") + b', %d], "policies": [%b], "event": %b'
        columns += [
            offsets,
            [_POLICY_LISTS[flags] for flags in (released.flags & np.uint16(_REPORTED_FLAGS)).tolist()],
            released.value.tolist(),
        ]
        if self._explainer:
            pattern += b', "explanation": %b'
            columns.append([orjson.dumps(self.explanations.pop(offset).as_dict()) for offset in offsets])
        pattern += b"}\n"
        text = [pattern % values for values in zip(*columns, strict=True)]
        return _ReleasedLines(lines[released.release_rows], released.system_us, text)

    def _ends_after(self, system_us: Ints, offsets: list[int]) -> list[bytes]:
        # An adjusted event may have a system timestamp above its end; an end lies after it.
        ends = np.array([self._ends.pop(offset) for offset in offsets], dtype=np.int64)
        return format_ticks(np.maximum(ends, system_us + 1))


def _dropped_line(partition: bytes, line: int, event: bytes, reason: str, explanation: Explanation | None) -> bytes:
    text = b'{"system_timestamp": null, "origin": [%b, %d], "policies": [], "event": %b, "reason": "%b"'
    end = b"}\n" if explanation is None else b', "explanation": ' + orjson.dumps(explanation.as_dict()) + b"}\n"
    return text % (partition, line, event, reason.encode()) + end


def format_ticks(time_us: Ints) -> list[bytes]:
    """Write times as :func:`ordering.ticks.format_tick` does, with 0, 3 or 6 digits after the second."""
    timestamps = time_us.astype("datetime64[us]")
    coarse, fine = time_us % SECOND_US == 0, time_us % MILLISECOND_US != 0
    # Three calls for whole columns; numpy writes all times of one call with the same unit.
    texts = np.empty(len(time_us), dtype="S32")
    texts[coarse] = np.char.encode(np.datetime_as_string(timestamps[coarse], unit="s"))
    texts[~coarse & ~fine] = np.char.encode(np.datetime_as_string(timestamps[~coarse & ~fine], unit="ms"))
    texts[fine] = np.char.encode(np.datetime_as_string(timestamps[fine], unit="us"))
    return [text + b"Z" for text in texts.tolist()]
