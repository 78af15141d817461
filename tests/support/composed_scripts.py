"""
One script out of the scripts of many kinds of query (``kind_scripts``): an output for each, so that one job computes them all.

Steps are renamed, as every kind calls its own ``s``; nothing else of a script changes. ``asked`` adds questions that
``bucket_oracle`` answers in plain Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from support.bucket_oracle import Question
from support.query_kinds import INPUT, KINDS, script_of

_STEP = re.compile(r"(?:^WITH |\), )(\w+) AS \((?=SELECT)")


def compose_scripts(kinds: Iterable[str], *, over: bool, asked: Mapping[str, Question] | None = None, unit: str = "mcs") -> str:
    """
    Return one script that computes all of them.

    Args:
        kinds: Names of kinds; the outputs of one are called as :func:`outputs_of` says.
        over: Whether time advances substream by substream.
        asked: Questions by the names of their outputs; their times are microseconds.
        unit: Of the times that the scripts of kinds name.
    """
    steps, selects = [], []
    for kind in kinds:
        own, left = _split_script(kind, script_of(kind, over=over).replace("mcs", unit))
        steps += own
        selects += left
    selects += [_into(name, question.sql) for name, question in (asked or {}).items()]
    script = (f"WITH {', '.join(steps)} " if steps else "") + ";\n".join(selects)
    # Questions name their input themselves, and with it the substreams.
    script = re.sub(r"\b(keyed TIMESTAMP BY t OVER k|arrivals)\b", "{x}", script)
    return script.replace("{x}", f"{INPUT} TIMESTAMP BY t{' OVER k' if over else ''}")


def outputs_of(kind: str) -> list[str]:
    """Return what the outputs of a kind are called in a composed script, in the order of its own."""
    return [f"{kind}_{name}" for name in re.findall(r"INTO (\w+)", KINDS[kind])] or [kind]


def _split_script(kind: str, script: str) -> tuple[list[str], list[str]]:
    """Return the steps of a script and its SELECTs with their outputs, both renamed after the kind."""
    for name in _STEP.findall(script):
        script = re.sub(rf"\b(FROM |JOIN |shift\(){name}\b", rf"\1{kind}_{name}", script)
        script = re.sub(rf"(^WITH |\), ){name} AS \(", rf"\1{kind}_{name} AS (", script)
    steps, rest = "", script
    if script.startswith("WITH "):
        end = _end_of_steps(script)
        steps, rest = script[len("WITH ") : end], script[end:].strip()
    selects = [re.sub(r"\bINTO (\w+)", rf"INTO {kind}_\1", select.strip()) for select in rest.split(";")]
    return [steps] if steps else [], [select if "INTO" in select else _into(kind, select) for select in selects]


def _end_of_steps(script: str) -> int:
    """Return where the first SELECT begins that is no step."""
    return next(at for at, depth in enumerate(_depths(script)) if depth == 0 and script.startswith("SELECT ", at))


def _into(output: str, select: str) -> str:
    """Return a SELECT with its output named, before its first FROM that stands in no brackets."""
    place = next(at for at, depth in enumerate(_depths(select)) if depth == 0 and select.startswith("FROM ", at))
    return f"{select[:place]}INTO {output} {select[place:]}"


def _depths(text: str) -> list[int]:
    """Return how many brackets are open at each character."""
    depths, depth = [], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        depths.append(depth)
    return depths
