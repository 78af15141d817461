"""The arrows among the rooms of expressions: values at the bottom; functions and syntax above; then evaluation; then binding."""

from __future__ import annotations

import ast

import pytest
from support.repository import ROOT

MAY_IMPORT = {
    "": set(),
    "syntax": {""},
    "functions": {""},
    "evaluation": {"", "functions"},
    "binding": {"", "functions", "evaluation", "syntax"},
}
"""By room; the empty name is the folder itself: kinds, variants, trees, fields of JSON."""
PREFIX = "tidegate.language.expressions."


def room_of(module: str) -> str:
    """Return the room of a module's name below ``tidegate.language.expressions``."""
    room = module.removeprefix(PREFIX).split(".")[0]
    return room if room in MAY_IMPORT else ""


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_what_stands_below_it(room: str) -> None:
    """So a function can be added without knowledge of scripts, and a script be read without computing anything."""
    sources = (ROOT / "tidegate" / "language" / "expressions" / room).glob("*.py")
    wrong = [
        f"{source.relative_to(ROOT)}:{node.lineno} imports {node.module}"
        for source in sources
        for node in ast.walk(ast.parse(source.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PREFIX)
        if (target := room_of(node.module or "")) != room and target not in MAY_IMPORT[room]
    ]
    assert not wrong, "\n".join(wrong)
