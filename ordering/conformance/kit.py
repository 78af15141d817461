"""
The conformance kit checks whether another implementation of PROTOCOL.md, in any language, agrees with ours.

The questions are the files ``ordering/conformance/vectors/*.json``; the README beside them describes them. An implementation receives an
operation and its JSON input and answers in JSON. In Python it is a callable; another program reads questions from standard input and writes
answers to standard output, a line each (:mod:`ordering.conformance.command`).

Law: every expected answer comes from independent code (see the README). An unsupported operation is reported as unsupported, never as
passed. The run ends if the program ends or does not answer in time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Protocol

from ordering.conformance.program import EndedError

Json = dict[str, Any]


class Implementation(Protocol):
    """
    The implementation under test: returns the answer of an operation to its input *given*. It returns ``{"refused": true}`` if the input
    violates the protocol, and ``{"unsupported": true}`` for an operation that it does not support (a reader, for example, encodes nothing).
    """

    def __call__(self, operation: str, given: Json, /) -> Json:
        """Return the answer of *operation* to *given*."""


@dataclass(frozen=True)
class Question:
    """One question and the right answer; ``where`` names its file and case."""

    where: str
    operation: str
    given: Json
    expected: Json


@dataclass(frozen=True)
class Failure:
    """One wrong answer and its mistake."""

    question: Question
    problem: str

    def __str__(self) -> str:
        return f"{self.question.where}: {self.question.operation}: {self.problem}"


@dataclass
class Report:
    """The outcome of a run: right and unsupported answers by operation, and the wrong answers."""

    passed: Counter[str] = field(default_factory=Counter)
    unsupported: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    @property
    def is_ok(self) -> bool:
        return not self.failures and bool(self.passed)

    def __str__(self) -> str:
        failed = Counter(failure.question.operation for failure in self.failures)
        lines = [str(failure) for failure in self.failures]
        for operation in sorted({*self.passed, *self.unsupported, *failed}):
            not_offered = f", {self.unsupported[operation]} not offered" if self.unsupported[operation] else ""
            lines.append(f"{operation:>18}: {self.passed[operation]} right, {failed[operation]} wrong{not_offered}")
        return "\n".join(lines)


def run(implementation: Implementation, *operations: str) -> Report:
    """Ask *implementation* all questions, or only the questions of *operations*."""
    report = Report()
    for question, mistake in judge(implementation, *operations):
        if mistake is None:
            report.unsupported[question.operation] += 1
        elif mistake:
            report.failures.append(Failure(question, mistake))
        else:
            report.passed[question.operation] += 1
    return report


def judge(implementation: Implementation, *operations: str) -> Iterator[tuple[Question, str | None]]:
    """
    Like :func:`run`, but yield each question with the mistake in its answer: empty if right, None if unsupported. No further question is
    asked after the program has ended.
    """
    for question in questions():
        if operations and question.operation not in operations:
            continue
        try:
            answer = implementation(question.operation, question.given)
        except EndedError as error:
            yield question, f"{error}; nothing more was asked"
            return
        except Exception as error:
            yield question, f"raised {type(error).__name__}: {error}"
            continue
        try:
            mistake = None if answer.get("unsupported") else _difference(question, answer)
        except Exception as error:  # another program may answer anything
            mistake = f"the answer has a wrong form ({type(error).__name__}: {error})"
        yield question, mistake


def questions() -> Iterator[Question]:
    """Yield every question of the kit, file by file."""
    for name, ask in _ASKED.items():
        for case in load(name):
            for operation, given, expected in ask(case):
                yield Question(f"{name}.json: {case['name']}", operation, given, expected)


@cache
def load(name: str) -> list[Json]:
    """Return the cases of the vector file ``{name}.json``."""
    cases: list[Json] = json.loads((files("ordering.conformance") / "vectors" / f"{name}.json").read_text("utf-8"))["cases"]
    return cases


_Asked = Callable[[Json], list[tuple[str, Json, Json]]]


def _ask_one_way(operation: str) -> _Asked:
    return lambda case: [(operation, case["given"], case["expected"])]


def _ask_both_ways(kind: str) -> _Asked:
    return lambda case: [(f"encode_{kind}", case["fields"], case["bytes"]), (f"decode_{kind}", case["bytes"], case["fields"])]


_ASKED: dict[str, _Asked] = {
    "partitioner": _ask_one_way("partition"),
    "keys": _ask_one_way("key_bytes"),
    "events": _ask_both_ways("event"),
    "ctis": _ask_both_ways("cti"),
    "source_ctis": _ask_both_ways("source_cti"),
    "refused": lambda case: [(case["operation"], case["given"], {"refused": True})],
    "reader": _ask_one_way("read"),
    "substreams": _ask_one_way("substreams"),
    "writer": _ask_one_way("write"),
}
# A reader may ignore lists, and need not report the channels it waits for.
_MAY_BE_LEFT_OUT = {"listed", "rosters", "waiting", "missing", "valid", "held"}


def _difference(question: Question, answer: Json) -> str:
    expected = {name: value for name, value in question.expected.items() if name in answer or name not in _MAY_BE_LEFT_OUT}
    has_ctis = question.operation == "write" and "ctis" in answer
    if has_ctis:
        answer = {**answer, "last": {str(partition): promise for partition, *promise in answer["ctis"]}}
    for name, value in expected.items():
        if answer.get(name) != value:
            return f"{name}: {_first_difference(answer.get(name), value)}"
    return _broken_promise(expected["channels"], answer["ctis"]) if has_ctis else ""


def _first_difference(answered: object, expected: object, path: str = "") -> str:
    if isinstance(answered, dict) and isinstance(expected, dict) and answered.keys() == expected.keys():
        name = next(name for name in expected if answered[name] != expected[name])
        return _first_difference(answered[name], expected[name], f"{path}[{name}]")
    if isinstance(answered, list) and isinstance(expected, list) and len(answered) == len(expected):
        index = next(index for index, value in enumerate(expected) if answered[index] != value)
        return _first_difference(answered[index], expected[index], f"{path}[{index}]")
    return f"{path + ' is ' if path else ''}{_short(answered)} instead of {_short(expected)}"


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) < 400 else f"{text[:400]}..."


def _broken_promise(channels: dict[str, list[str]], ctis: list[list[int]]) -> str:
    """
    Return the first CTI that contradicts its channel, or an empty text. The number of CTIs is free, but each must hold for the true events,
    and the CTIs of a channel must rise.
    """
    times = {
        partition: [int.from_bytes(bytes.fromhex(header)[16:24], "little", signed=True) for header in channels[partition]]
        for partition in channels
    }
    before: dict[str, list[int]] = {}
    for number, c, n, ahead in ctis:
        partition = str(number)
        system_us = times.get(partition, [])
        if n > len(system_us) or any(time_us < c for time_us in system_us[n:]):
            return f"the CTI {[c, n, ahead]} of partition {partition} is belied by a later event"
        if ahead != sum(time_us >= c for time_us in system_us[:n]):
            return f"the CTI {[c, n, ahead]} of partition {partition} has another ahead"
        if partition in before and not (c >= before[partition][0] and n >= before[partition][1] and [c, n] != before[partition]):
            return f"the CTI {[c, n, ahead]} of partition {partition} does not rise"
        before[partition] = [c, n]
    return ""
