"""
The command line of the conformance kit, and the dialogue with a program under test::

    python -m ordering.conformance                    # checks this implementation
    python -m ordering.conformance ./my-reader        # checks a program, which must flush each line
    python -m ordering.conformance --list             # lists the questions
    python -m ordering.conformance --answer           # runs this implementation as a program under test
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from threading import TIMEOUT_MAX
from typing import TextIO

from ordering.conformance.kit import Implementation, questions, run
from ordering.conformance.own_answers import answer
from ordering.conformance.program import TIMEOUT_S, AnsweringProgram


def answer_lines(implementation: Implementation, asked: TextIO, answers: TextIO) -> None:
    """Answer each line of *asked* with one line of *answers*: the dialogue of a program under test."""
    for line in asked:
        question = json.loads(line)
        answers.write(json.dumps(implementation(question["operation"], question["given"])) + "\n")
        answers.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0 if every answer was right."""
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
            program = AnsweringProgram(options.command, options.timeout)
        except OSError as error:
            parser.error(f"cannot start {options.command[0]}: {error.strerror}")
        with program:
            report = run(program)
    else:
        report = run(answer)
    print(report)
    return 0 if report.is_ok else 1


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= TIMEOUT_MAX:
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds above 0")
    return seconds
