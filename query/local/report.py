"""
Progress and summary of ``tidegate local``: counts of each input's records and of each output's results.

Law: the counts add up: every record of an input is in order, dropped by a policy, or cannot be used.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from query.local.inputs import ARRIVAL, PARTITION, FileInput
from query.local.run import LocalRun, RunStep
from tidegate.platform.observe.time_jumps import describe_file_jumps
from tidegate.records.files.blocks import OrderFileError
from tidegate.records.files.summary import Show, policy_numbers, print_summary, show_progress

if TYPE_CHECKING:
    from query.lint import Finding

_REASONS_SHOWN = 10
# Bytes that are shown of the first record of each reason.
_EXAMPLE_BYTES = 200


class LocalReport:
    """The report of one run; *mistakes* are findings of lint that would keep results away."""

    def __init__(self, script: str, outputs: Sequence[str], *, as_json: bool, mistakes: Sequence[Finding]) -> None:
        self._script, self._outputs, self._as_json, self._mistakes = script, outputs, as_json, mistakes
        self._results = [0] * len(outputs)
        self._reasons: Counter[str] = Counter()
        self._examples: dict[str, dict[str, Any]] = {}
        self._began_s = time.monotonic()

    @property
    def bad(self) -> int:
        """How many records could not be used."""
        return self._reasons.total()

    def add(self, step: RunStep) -> None:
        for number, results in enumerate(step.results):
            self._results[number] += len(results)
        self._reasons.update(bad.reason for bad in step.bad)
        for bad in step.bad:
            value = bad.value[:_EXAMPLE_BYTES].decode(errors="replace") + ("..." if len(bad.value) > _EXAMPLE_BYTES else "")
            self._examples.setdefault(bad.reason, {"input": bad.input, "line": bad.line, "value": value})

    def progress(self, run: LocalRun) -> AbstractContextManager[Show]:
        """Show the progress of reading; see :func:`tidegate.records.files.summary.show_progress`."""
        return show_progress([(source.name, source.records) for source in run.inputs], is_shown=not self._as_json)

    def print_summary(self, run: LocalRun) -> None:
        """Write the summary to standard error."""
        numbers = {
            "event": "end",
            "script": self._script,
            "inputs": {source.name: _input_numbers(source) for source in run.inputs},
            "outputs": dict(zip(self._outputs, self._results, strict=True)),
            "bad": dict(sorted(self._reasons.items())),
            "first_bad": dict(sorted(self._examples.items())),
            "warnings": [asdict(mistake) for mistake in self._mistakes],
            "seconds": round(time.monotonic() - self._began_s, 3),
        }
        print_summary(numbers, _sentences, as_json=self._as_json)

    def check(self, run: LocalRun) -> None:
        """Raise OrderFileError if an input has records and none of them could be used: its file is of another form."""
        for source in run.inputs:
            counts = source.counts
            if counts.records and counts.bad.total() == counts.records:
                reasons = {reason: example for reason, example in self._examples.items() if example["input"] == source.name}
                reason, example = min(reasons.items(), key=lambda item: item[1]["line"])
                what = (
                    f"none of the {counts.records:,} records of {source.name} can be used; the first for its {reason}: {example['value']}"
                )
                where = f"{source.file.path}:{example['line']}"
                raise OrderFileError(what, code="TG-ORDER-UNREADABLE", where=where, fix="correct the file, or what the script reads of it")


def _input_numbers(source: FileInput) -> dict[str, Any]:
    counts = source.counts.policies
    return {
        "file": source.file.path,
        "records": source.counts.records,
        "ordered": counts.released,
        "partitions": source.partitions,
        **policy_numbers(counts),
        "arrival_clamps": counts.arrival_clamps,
        "time_jumps": source.counts.jumps.as_dict(),
        "bad": source.counts.bad.total(),
        "has_arrival": source.has_arrival,
        "has_partition": source.has_partition,
    }


def _sentences(numbers: dict[str, Any]) -> Iterator[str]:
    yield f"{numbers['script']}: {numbers['seconds']:.1f} s"
    for name, figures in numbers["inputs"].items():
        ordered = f"{figures['ordered']:,} in order{_policy_counts(figures)}"
        yield f"  input {name}: {figures['records']:,} records of {figures['file']}, {ordered}"
        if not figures["has_arrival"]:
            yield f"    no {ARRIVAL}: nothing is early or late"
        if not figures["has_partition"]:
            yield f"    no {PARTITION}: all of partition 0"
        for sentence in describe_file_jumps(figures["time_jumps"]):
            yield f"    {sentence}"
    for name, count in numbers["outputs"].items():
        yield f"  output {name}: {count:,} results"
    reasons = sorted(numbers["bad"].items(), key=lambda item: (-item[1], item[0]))
    if reasons:
        yield f"  {sum(numbers['bad'].values()):,} records could not be used; with --output-dir dead.ndjson has each of them:"
        for reason, count in reasons[:_REASONS_SHOWN]:
            yield f"    {count:,} {reason}"
            yield f"      first: {_describe_example(numbers['first_bad'][reason])}"
        if len(reasons) > _REASONS_SHOWN:
            yield f"    and {len(reasons) - _REASONS_SHOWN} other reasons"
    for mistake in numbers["warnings"]:
        yield f"  {mistake['where']}: warning {mistake['code']}: {mistake['what']}"
        yield f"    {mistake['fix']}"


def _describe_example(example: dict[str, Any]) -> str:
    place = "between two steps" if example["input"] is None else f"{example['input']}, line {example['line']}"
    return f"{place}: {example['value']}"


def _policy_counts(figures: dict[str, Any]) -> str:
    adjusted = {f"{name.replace('_', ' ')} adjusted": figures[f"{name}_adjusted"] for name in ("early", "late", "out_of_order")}
    dropped = {f"{name.replace('_', ' ')} dropped": count for name, count in figures["dropped"].items()}
    parts = [f"{count:,} {name}" for name, count in (adjusted | dropped).items() if count]
    return f" ({', '.join(parts)})" if parts else ""
