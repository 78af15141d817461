"""Patterns from reference data: each row is matched by those of the valid version, and a bad one is refused with its record."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.query_oracle import Event
from support.script_runs import answers_of

from ordering.errors import RefusedError
from ordering.ticks import NEVER
from query.operators.joins.reference_patterns import check_patterns
from query.reference.tables import ReferenceTable, Version
from query.sql.bind import bind_outputs
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script

SECOND = 1_000_000
JOIN = "SELECT a.n AS n, r.id AS id FROM a JOIN rules r ON REGEXMATCH(a.t, r.p) > 0"


def rules(*versions: tuple[int, list[Any]]) -> ReferenceTable:
    """A table of patterns, numbered, in versions (effective from, patterns)."""
    made = []
    for begins, patterns in versions:
        records = [json.dumps({"id": number, "p": pattern}).encode() for number, pattern in enumerate(patterns)]
        made.append(Version(begins, pa.array(records, pa.binary())))
    return ReferenceTable(InputSchema("rules", is_reference=True), tuple(made))


def found(sql: str, texts: list[str], table: ReferenceTable, cuts: tuple[int, ...] = ()) -> list[list[Any]]:
    """The results for texts that come a second apart."""
    events = [Event(0, (number + 1) * SECOND, {"t": text, "n": number}) for number, text in enumerate(texts)]
    answers = answers_of(sql, {"a": events}, cuts, references=[table])
    assert answers.reasons == []
    return [list(json.loads(value).values()) for value in answers.values()]


def check(sql: str, table: ReferenceTable) -> None:
    """What a start asks before it looks anything up."""
    check_patterns(bind_outputs(parse_script(sql, "q.sql"), [InputSchema("a"), table.schema], into="out"), {"rules": table})


@given(
    st.lists(st.text("abcé", max_size=4), max_size=6),
    st.lists(st.sampled_from(["a", "b+", "^c", "[ab]c$", "é", ""]), max_size=4),
    st.lists(st.sampled_from(["a", "c"]), max_size=2),
    st.integers(0, 7),
)
def test_a_row_matches_the_patterns_of_its_version(texts: list[str], first: list[str], second: list[str], cut: int) -> None:
    """Level 3: whatever the cuts; a table's later version begins with the fourth row."""
    expected = [
        [number, at]
        for number, text in enumerate(texts)
        for at, pattern in enumerate(first if number < 3 else second)
        if re.search(pattern, text, re.IGNORECASE)
    ]
    assert found(JOIN, texts, rules((NEVER, first), (4 * SECOND, second)), (cut * SECOND,)) == expected


@pytest.mark.parametrize(
    ("sql", "patterns", "told"),
    [
        (JOIN, ["a", "["], "record 2 of rules has no pattern for REGEXMATCH: it is not understood: missing ]: ["),
        (JOIN, ["a", "x" * 1_001], "record 2 of rules has no pattern for REGEXMATCH: it has 1001 characters, more than 1000"),
        (JOIN, ["a", None, 7], "record 3 of rules has no pattern for REGEXMATCH: a nvarchar(max) is needed, not bigint"),
        (JOIN.replace("> 0", "> 0 AND a.t LIKE CONCAT(r.p, '%')"), ["(a"], "record 1 of rules has no pattern for REGEXMATCH: it is not"),
    ],
)
def test_a_bad_pattern_is_refused_with_its_record(sql: str, patterns: list[Any], told: str) -> None:
    """Before rows are looked up: otherwise the record would match nothing, and nobody would know."""
    with pytest.raises(RefusedError, match=re.escape(told)) as error:
        check(sql, rules((NEVER, ["fine"]), (SECOND, patterns)))
    assert error.value.code == "TG-REFERENCE-RECORD"


def test_what_is_no_pattern_of_a_record_alone_is_not_refused() -> None:
    """A record that the query leaves out, one whose pattern is made of a row too, and a pattern that is used as a text."""
    table = rules((NEVER, ["a", "["]))
    check(f"{JOIN} AND r.id < 1", table)
    check(JOIN.replace("r.p)", "CONCAT(a.t, r.p))"), table)
    check("SELECT r.p AS p FROM a JOIN rules r ON a.t = r.p", table)
