"""What a script that is being written reads and gives, by its words alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from query.editor.scopes import ScriptScopes, SourceName, read_scopes
from query.editor.words import words_of


def scopes_of(text: str) -> ScriptScopes:
    """Read the scopes of a script."""
    return read_scopes(words_of(text), len(text))


@pytest.mark.parametrize(
    ("sql", "origins"),
    [
        ("SELECT a FROM taxis", [SourceName("taxis", "taxis")]),
        ("SELECT a FROM taxis t TIMESTAMP BY at", [SourceName("taxis", "t")]),
        ("SELECT a FROM taxis AS t TIMESTAMP BY at OVER car", [SourceName("taxis", "t")]),
        ("SELECT a FROM [my taxis] TIMESTAMP BY DATEADD(hour, 1, at) t WHERE b = 1", [SourceName("my taxis", "t")]),
        ("SELECT a FROM taxis TIMESTAMP BY p.at", [SourceName("taxis", "taxis")]),
        ("SELECT a FROM x LEFT JOIN y z ON x.k = z.k", [SourceName("x", "x"), SourceName("y", "z")]),
        ("SELECT a FROM x CROSS APPLY GetArrayElements(x.l) AS e", [SourceName("x", "x"), SourceName("", "e")]),
        ("SELECT a FROM x PARTITION BY k", [SourceName("x", "x")]),
        ("SELECT a FROM ", [SourceName("", "")]),
        ("SELECT a FROM x -- FROM y\n /* FROM z */ WHERE t = ' FROM w'", [SourceName("x", "x")]),
        ("SELECT LAG(a) OVER (LIMIT DURATION(hour, 1)) FROM x", [SourceName("x", "x")]),
        ("SELECT CASE WHEN a > 1 THEN b END AS c FROM x", [SourceName("x", "x")]),
    ],
)
def test_a_select_reads_what_from_and_join_name(sql: str, origins: list[SourceName]) -> None:
    """With the name by which it calls each."""
    assert scopes_of(sql).scopes[0].origins == origins


def test_steps_have_the_columns_that_they_name() -> None:
    """By AS, or by the last name of a path; a star passes on what is read."""
    sql = """WITH s AS (SELECT a.b.c, LAG(d, 1) OVER (LIMIT DURATION(hour, 1)) AS [was it], UPPER(e), *
        FROM taxis TIMESTAMP BY at), t AS (SELECT f FROM s)
        SELECT g INTO out FROM t; SELECT h FROM s"""
    scopes = scopes_of(sql)
    assert scopes.steps() == ["s", "t"]
    first, second = scopes.step("S"), scopes.step("t")
    assert first is not None
    assert second is not None
    assert (first.columns, first.has_star) == (["c", "was it"], True)
    assert second.columns == ["f"]
    assert [scope.columns for scope in scopes.scopes[2:]] == [["g"], ["h"]]


def test_the_innermost_select_around_a_place_counts() -> None:
    """Of a statement, of a step, of a subquery."""
    sql = "WITH s AS (SELECT a FROM x) SELECT b FROM (SELECT c FROM y) z"
    scopes = scopes_of(sql)
    for name, read in (("a", "x"), ("b", ""), ("c", "y")):
        scope = scopes.at(sql.index(f"SELECT {name}") + len("SELECT "))
        assert scope is not None
        assert scope.origins[0].name == read
    assert scopes.at(2) is None


def test_create_table_declares_columns() -> None:
    """With their types; a path is one column."""
    assert scopes_of("CREATE TABLE toll (id bigint, p.at datetime, [x y] nvarchar(max)); SELECT id FROM toll").tables == {
        "toll": {"id": "bigint", "p.at": "datetime", "x y": "nvarchar(max)"}
    }


WORDS = st.sampled_from(
    [
        "SELECT",
        "FROM",
        "JOIN",
        "WITH",
        "AS",
        "(",
        ")",
        ",",
        ".",
        "a",
        "[b c]",
        "TIMESTAMP",
        "BY",
        "UNION",
        ";",
        "*",
        "'t",
        "--",
        "CREATE",
        "TABLE",
    ]
)


@given(st.lists(WORDS, max_size=30).map(" ".join) | st.text(max_size=60))
def test_every_text_has_scopes(text: str) -> None:
    """However unfinished it is: each within the text, each at a SELECT."""
    scopes = scopes_of(text)
    assert len(scopes.scopes) <= text.upper().count("SELECT")
    assert all(0 <= scope.start <= scope.end <= len(text) for scope in scopes.scopes)


@given(st.text())
def test_words_are_the_text(text: str) -> None:
    """Together with the blanks between them."""
    words = words_of(text)
    rest = list(text)
    for word in words:
        assert text[word.start : word.end] == word.text
        rest[word.start : word.end] = " " * len(word.text)
    assert not "".join(rest).strip()
