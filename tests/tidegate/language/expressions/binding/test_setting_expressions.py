"""What timestamp_by may hold: paths at a glance, expressions as a query reads them, and what is refused with its column."""

from __future__ import annotations

import pytest

from ordering.errors import QueryError
from query.sql.bind import bind_script
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.binding.setting_expressions import (
    bind_event_time,
    canonical_text,
    event_time_problem,
    field_paths,
    path_of,
)
from tidegate.language.expressions.syntax.parse import parse_script
from tidegate.language.expressions.syntax.plain_path import plain_path

WHERE = "inputs.flights.timestamp_by"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("at", ("at",)),
        ("payload.at", ("payload", "at")),
        ("order", ("order",)),
        ("zeit_é", ("zeit_é",)),
        ("event time", None),
        ("a.", None),
        ("1st", None),
    ],
)
def test_a_plain_path_is_known_at_a_glance(text: str, path: tuple[str, ...] | None) -> None:
    """Names and dots only; a word that means something to SQL is a name too."""
    assert plain_path(text) == path


def test_a_name_in_brackets_is_a_path() -> None:
    """It is read on the same road as one without: no expression is evaluated."""
    assert path_of(bind_event_time("[event time].[at]", WHERE, InputSchema("flights"))) == ("event time", "at")


def test_an_expression_tells_the_fields_it_reads() -> None:
    """These, and no others, are taken out of payloads."""
    bound = bind_event_time("DATEADD(second, payload.offset, payload.base)", WHERE, InputSchema("flights"))
    assert path_of(bound) is None
    assert field_paths(bound) == (("payload", "offset"), ("payload", "base"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("DATEAD(second, 1, a)", "column 1: there is no function DATEAD; did you mean DATEADD?"),
        ("a + DATEADD(secnd, 1, a)", "column 13: DATEADD has no unit secnd; did you mean second?"),
        ("1 + PartitionId", "column 5: PartitionId is no part of the payload; name a field of the payload"),
        ("42", "42 names no field: all events would have one time; name a field"),
        ("a +", "column 3: an operand is missing near '+'; correct the script at this place"),
        ("a, b", "'a, b' is not one expression; give a field path or an expression"),
        ("a FROM b", "'a FROM b' is not one expression; give a field path or an expression"),
        ("MAX(a)", "column 1: TIMESTAMP BY works on single events, so MAX(a) cannot stand there; name the aggregate in SELECT"),
        ("[a", "column 1: [ is never closed; close every quote and bracket"),
        ("payload.at", ""),
        ("CAST(ts AS bigint) * 1000", ""),
    ],
)
def test_what_is_wrong_is_told_with_its_column(text: str, problem: str) -> None:
    """Columns count from the first character of the setting."""
    assert event_time_problem(text) == problem


def test_a_conflict_of_types_is_found_where_fields_are_declared() -> None:
    """A record has no next second, and the setting's key and column say so."""
    with pytest.raises(QueryError) as caught:
        bind_event_time("DATEADD(second, 1, r)", WHERE, InputSchema("flights", fields={"r": "record"}))
    assert (caught.value.code, caught.value.where) == ("TG-QUERY-TYPE", f"{WHERE}:1:1")


def test_spellings_of_one_meaning_have_one_text() -> None:
    """It is what a checkpoint remembers; a declared type is part of an expression, not of a path."""
    typed = InputSchema("flights", fields={"ts": "bigint"})
    assert canonical_text("[payload].[at]", WHERE, typed) == canonical_text("payload.at", WHERE, typed) == "payload.at"
    assert canonical_text("cast(ts as BIGINT)*1000", WHERE, typed) == canonical_text("CAST([ts] AS bigint) * 1000", WHERE, typed)
    assert canonical_text("ts * 1000", WHERE, typed) != canonical_text("ts * 1000", WHERE, InputSchema("flights"))
    assert canonical_text("[a.b]", WHERE, typed) != canonical_text("a.b", WHERE, typed)
    assert canonical_text("event-time", WHERE, typed) != canonical_text("[event-time]", WHERE, typed) == "event-time"


@pytest.mark.parametrize("written", ["CAST( TS as bigint ) * 1000", "cast([ts] AS BIGINT)*1000"])
def test_a_query_may_spell_the_event_time_of_its_input_in_its_own_way(written: str) -> None:
    """What is compared is what was parsed."""
    flights = InputSchema("flights", timestamp_by="CAST(ts AS bigint) * 1000")
    assert bind_script(parse_script(f"SELECT ts INTO o FROM flights TIMESTAMP BY {written}"), [flights])


def test_a_query_with_another_event_time_than_its_input_is_refused() -> None:
    """The message shows what the input is ordered by."""
    flights = InputSchema("flights", timestamp_by="CAST(ts AS bigint) * 1000")
    with pytest.raises(QueryError) as caught:
        bind_script(parse_script("SELECT ts INTO o FROM flights TIMESTAMP BY ts * 1000"), [flights])
    assert caught.value.code == "TG-QUERY-TIMESTAMP"
    assert caught.value.example == "FROM flights TIMESTAMP BY CAST(ts AS bigint) * 1000"


@pytest.mark.parametrize("path", ["end", "it's", "a b"])
def test_an_odd_name_of_the_substream_key_is_written_in_brackets(path: str) -> None:
    """The setting holds the bare path; the query needs brackets where SQL does."""
    flights = InputSchema("flights", timestamp_by="at", over=path)
    sql = f"SELECT COUNT(*) AS n INTO o FROM flights TIMESTAMP BY at OVER [{path}] GROUP BY [{path}], TumblingWindow(hour, 1)"
    assert bind_script(parse_script(sql), [flights]).over is not None
