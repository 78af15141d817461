"""Every wrong script gets its exact message: code, place, what to write instead. The cases stand in wrong_scripts.txt."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordering.errors import QueryError
from query.sql.bind import bind_script
from tidegate.expressions.binding.input_schema import InputSchema
from tidegate.expressions.syntax.parse import parse_script

INPUTS = [
    InputSchema("flights", timestamp_by="scheduled", over="origin", fields={"delay": "bigint", "note": "record"}),
    InputSchema("arrivals"),
    InputSchema("airports", is_reference=True),
    InputSchema("departures", is_result=True, is_closed=True, fields={"origin": "any", "window_end": "datetime", "departures": "bigint"}),
]


def cases() -> list[tuple[str, str, str]]:
    """Name, script and message of each case in the file."""
    text = (Path(__file__).parent / "wrong_scripts.txt").read_text()
    found = []
    for block in text.removeprefix("# ").split("\n\n# "):
        name, _, rest = block.partition("\n")
        script, _, message = rest.partition("\n----\n")
        found.append((name, script, message.strip("\n")))
    return found


@pytest.mark.parametrize(("script", "message"), [case[1:] for case in cases()], ids=[case[0] for case in cases()])
def test_a_wrong_script_is_told_what_is_wrong_and_where(script: str, message: str) -> None:
    """The whole message is pinned."""
    with pytest.raises(QueryError) as caught:
        bind_script(parse_script(script, "q.sql"), INPUTS)
    assert str(caught.value) == message


def test_there_are_at_least_forty() -> None:
    """The file is read whole."""
    assert len(cases()) >= 40


def test_into_beside_the_script_must_agree() -> None:
    """INTO and --into may both be given when they say the same."""
    script = parse_script("SELECT origin INTO out FROM arrivals", "q.sql")
    assert bind_script(script, INPUTS, into="out").output == "out"
    with pytest.raises(QueryError) as caught:
        bind_script(script, INPUTS, into="other")
    assert caught.value.as_dict() == {
        "code": "TG-QUERY-OUTPUT",
        "what": "INTO out contradicts --into other",
        "where": "q.sql:1:20",
        "fix": "give the name once",
    }
