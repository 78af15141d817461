"""
Questions about a recording, one JSON object a line: what policies would do. ``tidegate tune --ask`` answers them, for sliders and programs.

Law: each line gets one line, in their order: the answer that ``tidegate tune --format json`` prints, or the error. A member that is left
out is as in the settings.

>>> read_question('{"late": "30s", "touch": 1, "window": ["1m"]}', Policies(), 0.001).policies.late_us
30000000
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ingest.tuning.recorded_file import check_share
from ingest.tuning.tuning import Tuner
from ordering.errors import SettingError, TidegateError
from ordering.policies import Action, Policies
from ordering.tuning.results import WindowShape
from tidegate.records.files.flags import parse_policies

TOLERANCES = ("early", "late", "reorder")
ACTIONS = ("early_action", "late_action", "out_of_order_action")
_EXAMPLE = '{"late": "30s", "reorder": "2s"}'


@dataclass(frozen=True, slots=True)
class Question:
    """Policies to try, the share that a proposal may touch, and the windows of which the changed ones are counted."""

    policies: Policies
    share: float
    shapes: tuple[WindowShape, ...] = ()


def policies_with(own: Policies, given: dict[str, str]) -> Policies:
    """Return *own* with the tolerances and actions that *given* names. SettingError: one is none."""
    tolerances = {name: given.get(name) or "0s" for name in TOLERANCES}
    parsed = parse_policies(tolerances["early"], Action.DROP, tolerances["late"], Action.ADJUST, tolerances["reorder"], Action.ADJUST)
    named: dict[str, Any] = {f"{name}_us": getattr(parsed, f"{name}_us") for name in TOLERANCES if given.get(name)}
    named |= {name: given[name] for name in ACTIONS if given.get(name)}
    return replace(own, **named)


def read_question(line: str, own: Policies, share: float) -> Question:
    """Return the question of a line. SettingError: it is none."""
    try:
        asked = json.loads(line)
    except ValueError:
        asked = None
    if not isinstance(asked, dict):
        raise SettingError("a question is a JSON object", code="TG-SETTING-VALUE", where="--ask", fix="write one a line", example=_EXAMPLE)
    known = {*TOLERANCES, *ACTIONS, "touch", "window"}
    if unknown := sorted(asked.keys() - known):
        fix = f"name one of: {', '.join(sorted(known))}"
        raise SettingError(f"no question has a member {unknown[0]}", code="TG-SETTING-NAME", where="--ask", fix=fix, example=_EXAMPLE)
    windows = asked.get("window") or []
    texts = {name: str(asked[name]) for name in (*TOLERANCES, *ACTIONS) if asked.get(name)}
    shapes = tuple(WindowShape.parse(str(each)) for each in (windows if isinstance(windows, list) else [windows]))
    touch = asked.get("touch")
    if touch is not None and (not isinstance(touch, int | float) or isinstance(touch, bool)):
        raise SettingError("touch is no number", code="TG-SETTING-VALUE", where="touch", fix="write percent", example='{"touch": 0.1}')
    return Question(policies_with(own, texts), share if touch is None else check_share(float(touch)), shapes)


def answer_questions(tuner: Tuner, own: Policies, share: float, lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the answer to each line, or its error."""

    for line in lines:
        if not line.strip():
            continue
        try:
            question = read_question(line, own, share)
            answer = tuner.tune(question.policies, question.share, question.shapes).to_json()
        except TidegateError as error:
            answer = {"error": error.as_dict()}
        yield answer
