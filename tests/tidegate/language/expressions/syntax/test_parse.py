"""Text becomes a tree, or an error that names its place; text meant to do harm is refused quickly."""

from __future__ import annotations

import contextlib
import importlib
import time

import pytest
from sqlglot import exp

from ordering.errors import QueryError
from tidegate.language.expressions.syntax.dialect import refuse_compiled
from tidegate.language.expressions.syntax.errors import offset_of
from tidegate.language.expressions.syntax.parse import parse_expression, parse_script


def test_timestamp_by_and_over_stand_with_their_input() -> None:
    """TIMESTAMP BY takes an expression, OVER a list, an alias may stand before or after."""
    for text in ("FROM i x TIMESTAMP BY a.b OVER k, PartitionId", "FROM i TIMESTAMP BY a.b OVER k, PartitionId x"):
        table = parse_script(f"SELECT 1 {text}").statements[0].args["from_"].this
        assert table.args["timestamp_by"].sql() == "a.b"
        assert [key.sql() for key in table.args["over"]] == ["k", "PartitionId"]
        assert table.alias == "x"


def test_a_function_before_over_is_no_window_function() -> None:
    """``TIMESTAMP BY System.Timestamp() OVER k`` names a key."""
    table = parse_script("SELECT 1 FROM i TIMESTAMP BY System.Timestamp() OVER k").statements[0].args["from_"].this
    assert [key.sql() for key in table.args["over"]] == ["k"]


def test_functions_keep_their_spelling() -> None:
    """Nothing is translated to another SQL's functions."""
    call = parse_script("SELECT LeN(x) FROM i").statements[0].expressions[0]
    assert isinstance(call, exp.Anonymous)
    assert call.name == "LeN"


def test_steps_and_several_statements_are_parsed() -> None:
    """What cannot be bound yet can be read."""
    assert len(parse_script("WITH s AS (SELECT a FROM i) SELECT a INTO x FROM s; SELECT b INTO y FROM i").statements) == 2


def test_offsets_point_at_the_first_word() -> None:
    """Offsets count characters from 0 through all lines."""
    text = "SELECT\n  a + LEN(b)\nFROM i"
    assert offset_of(parse_script(text).statements[0].expressions[0]) == text.index("a +")


def test_a_setting_is_one_expression() -> None:
    """The timestamp_by of an input is parsed like a script's, and named in errors by its setting."""
    source, tree = parse_expression("payload.at + 1", "inputs.i.timestamp_by")
    assert tree.sql() == "payload.at + 1"
    assert source.location(offset_of(tree)) == "inputs.i.timestamp_by:1:1"
    with pytest.raises(QueryError) as caught:
        parse_expression("a, b", "inputs.i.timestamp_by")
    assert caught.value.where == "inputs.i.timestamp_by"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT " + "a, " * 100_000 + "a FROM i",
        "SELECT " + "(" * 10_000 + "1" + ")" * 10_000 + " FROM i",
        "SELECT " + "NOT " * 10_000 + "a FROM i",
        "SELECT " + " + ".join(["1"] * 10_000) + " FROM i",
        "SELECT " + "CASE WHEN a THEN " * 5_000 + "1" + " END" * 5_000 + " FROM i",
        "SELECT " + "a." * 5_000 + "a FROM i",
        "SELECT * FROM i" + " JOIN i" * 9,
        "SELECT * FROM i" + " JOIN (SELECT * FROM i JOIN i)" * 4 + " JOIN (SELECT * FROM i" * 6,
    ],
    ids=["long", "brackets", "nots", "chain", "cases", "path", "joins", "joins in brackets"],
)
def test_monstrous_text_is_refused_within_a_second(text: str) -> None:
    """Size and depth are checked before the parser could drown."""
    started = time.process_time()
    with pytest.raises(QueryError) as caught:
        parse_script(text, "q.sql")
    assert caught.value.code == "TG-QUERY-SIZE"
    assert time.process_time() - started < 1


@pytest.mark.parametrize("word", ["bit", "struct", "date", "array", "f", "CASE WHEN a THEN ", "CAST", "(SELECT a FROM "])
def test_nested_calls_are_parsed_once(word: str) -> None:
    """sqlglot would read the names of types as types first, twice at each of 40 levels."""
    started = time.process_time()
    with contextlib.suppress(QueryError):
        parse_script("SELECT " + f"{word}(" * 40 + "a" + ")" * 40 + " FROM i")
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    "text",
    ["SELECT " + "a" * 200_000 + " FRM i", "SELECT k FRM " + "WHERE" * 40_000, "SELECT CAST(a AS " + "bigin" * 40_000 + ") FROM i"],
    ids=["before", "behind", "type"],
)
def test_a_long_word_is_compared_with_no_keyword(text: str) -> None:
    """Nor does the search for what stands before a mistake begin at each of its letters."""
    started = time.process_time()
    with contextlib.suppress(QueryError):
        parse_script(text)
    assert time.process_time() - started < 2


def test_what_sqlglot_does_not_expect_is_an_error_with_a_place() -> None:
    """A placeholder as an alias before AT: it raises ValueError."""
    with pytest.raises(QueryError, match="unexpected word near 'y'") as caught:
        parse_script("SELECT a FROM i :x AT y", "q.sql")
    assert (caught.value.code, caught.value.where) == ("TG-QUERY-SYNTAX", "q.sql:1:23")


def test_a_date_as_other_languages_write_it_is_shown_as_a_cast() -> None:
    """Here it would be a column with an alias."""
    for text in ("SELECT DATE '2024-01-01' AS x FROM i", "SELECT a FROM i WHERE t > timestamp '2024-01-01'"):
        with pytest.raises(QueryError) as caught:
            parse_script(text, "q.sql")
        assert caught.value.example == "CAST('2024-01-01' AS datetime)"


def test_the_compiled_sqlglot_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its classes cannot be derived from; the message says what to install."""
    monkeypatch.setattr(importlib.import_module("sqlglot.tokens"), "SQLGLOTC_INSTALLED", True, raising=False)
    with pytest.raises(QueryError) as caught:
        refuse_compiled()
    assert caught.value.code == "TG-QUERY-SQLGLOT"
    assert "sqlglotc" in caught.value.fix


def test_over_takes_its_clauses_in_any_order() -> None:
    """PARTITION BY, LIMIT DURATION and WHEN, each once; WHEN of a CASE is another."""
    for over in ("PARTITION BY k, j LIMIT DURATION(hour, 1) WHEN a > 1", "WHEN a > 1 LIMIT DURATION(hour, 1) PARTITION BY k, j"):
        case = parse_script(f"SELECT CASE WHEN LAG(x) OVER ({over}) > 1 THEN 1 END FROM i").statements[0].expressions[0]
        window = case.find(exp.Window)
        assert isinstance(window, exp.Window)
        assert [key.sql() for key in window.args["partition_by"]] == ["k", "j"]
        assert window.args["limit"].sql() == "DURATION(hour, 1)"
        assert window.args["when"].sql() == "a > 1"
    with pytest.raises(QueryError, match="PARTITION stands twice in OVER"):
        parse_script("SELECT LAG(x) OVER (PARTITION BY k PARTITION BY j) FROM i")


def test_a_mark_of_the_encoding_at_the_beginning_is_no_word() -> None:
    """As some editors write it; places are those of the file."""
    assert len(parse_script("\ufeffSELECT a INTO out FROM i").statements) == 1
    with pytest.raises(QueryError) as caught:
        parse_script("\ufeffSELECT a INTO out FROM i WHERE ) a")
    assert caught.value.where == "<script>:1:33"
