"""Every wrong script gets its exact message: code, place, what to write instead. The cases stand in wrong_scripts.txt."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordering.errors import QueryError
from query.sql.bind import bind_outputs, bind_script
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.functions.catalog import AGGREGATES, ANALYTICS, CALLABLE, NOT_YET, REFUSED, WINDOWS
from tidegate.language.expressions.syntax.counterparts import COUNTERPARTS
from tidegate.language.expressions.syntax.parse import parse_script

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


@pytest.mark.parametrize(
    "example", sorted({example for _, example in COUNTERPARTS.values() if example[0] != "F" and " ... " not in example})
)
def test_what_is_written_for_a_function_of_another_sql_can_be_written(example: str) -> None:
    """The example is a script's expression, or its GROUP BY."""
    chosen, grouping = ("COUNT(*) AS n", example) if example.startswith("GROUP BY") else (example, "")
    is_aggregate = any(word in example for word in ("COLLECT(", "STDEV(", "VAR(", "COUNT(", "PERCENTILE"))
    grouping = grouping or ("GROUP BY origin, TumblingWindow(hour, 1)" if is_aggregate else "")
    script = parse_script(f"SELECT {chosen} INTO out FROM arrivals {grouping}", "q.sql")
    assert bind_script(script, INPUTS).columns


def test_no_function_that_there_is_has_a_counterpart() -> None:
    """It would be hidden by what is written elsewhere."""
    assert not {*CALLABLE, *AGGREGATES, *ANALYTICS, *WINDOWS, *NOT_YET, *REFUSED} & set(COUNTERPARTS)


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


def test_into_beside_the_script_names_the_output_of_a_statement_without_one() -> None:
    """The other statements keep theirs; without it the output is called as in Stream Analytics."""
    script = parse_script("SELECT origin INTO first FROM arrivals; SELECT origin FROM arrivals", "q.sql")
    assert [plan.output for plan in bind_outputs(script, INPUTS, into="second")] == ["first", "second"]
    assert [plan.output for plan in bind_outputs(script, INPUTS)] == ["first", "output"]
