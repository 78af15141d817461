"""
The conformance kit: does another implementation of PROTOCOL.md, in any language, agree with ours?

The vectors are files, ``ordering/conformance/vectors/*.json``, described in the README beside them. An implementation answers
questions: an operation and what it is given, both JSON, give an answer in JSON. In Python it is a callable; a program in any
language answers lines on its standard input with lines on its standard output::

    python -m ordering.conformance                    # checks ours
    python -m ordering.conformance ./my-reader        # checks a program, which flushes each line
    python -m ordering.conformance --list             # what would be asked
    python -m ordering.conformance --answer           # is such a program: ours

Law: every answer is compared with what independent code told (see the README); an operation that an implementation does not
offer is reported as such, never as passed. A program that ends, or keeps the kit waiting, ends the run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from threading import TIMEOUT_MAX
from typing import Any, Protocol, TextIO

from ordering.conformance.program import TIMEOUT_S, EndedError, Program

Json = dict[str, Any]


class Implementation(Protocol):
    """
    What is checked: answers one question.

    It answers ``{"refused": true}`` where what is given breaks the protocol, and ``{"unsupported": true}`` to an operation
    that it does not offer, as a mere reader does not offer to encode.
    """

    def __call__(self, operation: str, given: Json, /) -> Json:
        """Return the answer of *operation* to what is *given*."""


@dataclass(frozen=True)
class Question:
    """One question with what must be answered. ``where`` names its file and case."""

    where: str
    operation: str
    given: Json
    expected: Json


@dataclass(frozen=True)
class Failure:
    """One wrong answer, and what is wrong with it."""

    question: Question
    problem: str

    def __str__(self) -> str:
        return f"{self.question.where}: {self.question.operation}: {self.problem}"


@dataclass
class Report:
    """What a run found: for each operation how many answers were right, the wrong ones, and what was not offered."""

    passed: Counter[str] = field(default_factory=Counter)
    unsupported: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    @property
    def is_ok(self) -> bool:
        """Whether nothing is wrong, and something was offered."""
        return not self.failures and bool(self.passed)

    def __str__(self) -> str:
        failed = Counter(failure.question.operation for failure in self.failures)
        lines = [str(failure) for failure in self.failures]
        for operation in sorted({*self.passed, *self.unsupported, *failed}):
            told = f"{self.passed[operation]} right, {failed[operation]} wrong"
            lines.append(
                f"{operation:>18}: {told}" + (f", {self.unsupported[operation]} not offered" if self.unsupported[operation] else "")
            )
        return "\n".join(lines)


def run(implementation: Implementation, *operations: str) -> Report:
    """Ask *implementation* everything, or only what belongs to some *operations*."""
    report = Report()
    for question, wrong in judge(implementation, *operations):
        if wrong is None:
            report.unsupported[question.operation] += 1
        elif wrong:
            report.failures.append(Failure(question, wrong))
        else:
            report.passed[question.operation] += 1
    return report


def judge(implementation: Implementation, *operations: str) -> Iterator[tuple[Question, str | None]]:
    """
    Ask as :func:`run` does; yield each question with what is wrong with the answer: nothing if it is right, None if not offered.

    A program that answers no more is asked no more.
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
        yield question, None if answer.get("unsupported") else _difference(question, answer)


def questions() -> Iterator[Question]:
    """Yield every question of the kit, file by file."""
    for name, asked in _ASKED.items():
        for case in load(name):
            for operation, given, expected in asked(case):
                yield Question(f"{name}.json: {case['name']}", operation, given, expected)


@cache
def load(name: str) -> list[Json]:
    """Return the cases of one file of vectors, by its name without ``.json``."""
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
    "writer": _ask_one_way("write"),
}
_MAY_BE_LEFT_OUT = {"listed", "rosters", "waiting", "missing", "valid", "held"}
"""A reader may ignore lists, and need not tell what it waits for."""


def _difference(question: Question, answer: Json) -> str:
    """Return what is wrong with an answer, or nothing."""
    expected = {name: value for name, value in question.expected.items() if name in answer or name not in _MAY_BE_LEFT_OUT}
    if "ctis" in answer:
        answer = {**answer, "last": _last_promises(answer["ctis"])}
    for name, value in expected.items():
        if answer.get(name) != value:
            return f"{name}: {_first_difference(answer.get(name), value)}"
    return _broken_promise(expected["channels"], answer["ctis"]) if "ctis" in answer else ""


def _first_difference(answered: object, expected: object, at: str = "") -> str:
    """Say where two JSON values differ first."""
    if isinstance(answered, dict) and isinstance(expected, dict) and answered.keys() == expected.keys():
        name = next(name for name in expected if answered[name] != expected[name])
        return _first_difference(answered[name], expected[name], f"{at}[{name}]")
    if isinstance(answered, list) and isinstance(expected, list) and len(answered) == len(expected):
        index = next(index for index, value in enumerate(expected) if answered[index] != value)
        return _first_difference(answered[index], expected[index], f"{at}[{index}]")
    return f"{at + ' is ' if at else ''}{_short(answered)} instead of {_short(expected)}"


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) < 400 else f"{text[:400]}..."


def _last_promises(ctis: list[list[int]]) -> dict[str, list[int]]:
    """Return the last (c, n, ahead) of each output partition."""
    return {str(partition): promise for partition, *promise in ctis}


def _broken_promise(channels: dict[str, list[str]], ctis: list[list[int]]) -> str:
    """
    Return which CTI belies its channel, or nothing.

    How many CTIs there are is free; what they say must hold for the true events, and only rise.
    """
    times = {
        partition: [int.from_bytes(bytes.fromhex(header)[16:24], "little", signed=True) for header in channels[partition]]
        for partition in channels
    }
    before: dict[str, list[int]] = {}
    for number, c, n, ahead in ctis:
        partition = str(number)
        system_us = times.get(partition, [])
        if n > len(system_us) or any(each < c for each in system_us[n:]):
            return f"the CTI {[c, n, ahead]} of partition {partition} is belied by a later event"
        if ahead != sum(each >= c for each in system_us[:n]):
            return f"the CTI {[c, n, ahead]} of partition {partition} has another ahead"
        if partition in before and not (c >= before[partition][0] and n >= before[partition][1] and [c, n] != before[partition]):
            return f"the CTI {[c, n, ahead]} of partition {partition} does not rise"
        before[partition] = [c, n]
    return ""


def answer_lines(implementation: Implementation, asked: TextIO, answers: TextIO) -> None:
    """Be such a program: answer each line of *asked* with a line of *answers*, until there are no more."""
    for line in asked:
        question = json.loads(line)
        answers.write(json.dumps(implementation(question["operation"], question["given"])) + "\n")
        answers.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0 if everything was answered rightly."""
    from ordering.conformance.own_answers import answer

    parser = argparse.ArgumentParser(prog="python -m ordering.conformance", description="Checks an implementation of PROTOCOL.md.")
    parser.add_argument("--list", action="store_true", help="list the questions instead of asking them")
    parser.add_argument("--answer", action="store_true", help="answer questions on standard input, as a program under test does")
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help="how long a program may take for one answer (default: %(default)g)",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the program under test; without one, this implementation")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(f"{question.operation:>18}  {question.where}" for question in questions()))
        return 0
    if options.answer:
        answer_lines(answer, sys.stdin, sys.stdout)
        return 0
    if options.command:
        try:
            program = Program(options.command, options.timeout)
        except OSError as error:
            parser.error(f"cannot start {options.command[0]}: {error.strerror}")
        with program:
            report = run(program)
    else:
        report = run(answer)
    print(report)
    return 0 if report.is_ok else 1


def _seconds(text: str) -> float:
    """Read a timeout; argparse reports what is none."""
    seconds = float(text)
    if not 0 < seconds <= TIMEOUT_MAX:
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds above 0")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
