"""Scripts laid out: the same words, comments and meaning, and never another layout on a second run."""

from __future__ import annotations

import json
from functools import cache

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from support.repository import ROOT
from typer.testing import CliRunner

from ordering.errors import QueryError
from query.commands.fmt import fmt
from query.formatting.format import format_script
from tidegate.language.expressions.syntax.dialect import Asa
from tidegate.language.expressions.syntax.parse import parse_script
from tidegate.platform.observe.console import report_errors

APP = typer.Typer(pretty_exceptions_enable=False)
APP.command()(report_errors(fmt))


@cache
def scripts() -> tuple[str, ...]:
    """Return every script of the repository that is SQL of this dialect."""
    texts = [path.read_text("utf-8") for folder in ("examples", "tests/cases") for path in sorted((ROOT / folder).rglob("*.sql"))]
    return tuple(text for text in texts if _is_valid(text))


def short_scripts() -> tuple[str, ...]:
    """Return those that are parsed in milliseconds."""
    return tuple(text for text in scripts() if len(text) < 500)


def _is_valid(text: str) -> bool:
    try:
        parse_script(text)
    except QueryError:
        return False
    return True


def shape(text: str) -> object:
    """Return the trees of a script, names in their case, without places and comments."""
    script = parse_script(text)
    for tree in script.statements:
        for node in tree.walk():
            node.comments = None
    declared = [(each.name, [field[:2] for field in each.fields]) for each in script.declarations]
    return [json.dumps(_plain(tree)) for tree in script.statements], declared, script.source.ignores_case


def _plain(value: object) -> object:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if hasattr(value, "args"):
        return [type(value).__name__, {name: _plain(each) for name, each in value.args.items()}]
    return repr(value)


@st.composite
def disfigured_scripts(draw: st.DrawFn) -> str:
    """Draw a script with other white space, comments and letters of keywords."""
    text = draw(st.sampled_from(short_scripts()))
    tokens = Asa().tokenize(text)
    pieces = []
    for token in tokens:
        word = text[token.start : token.end + 1]
        if word.upper() in ("SELECT", "FROM", "WHERE", "INTO", "AND", "WITH", "ON"):
            word = draw(st.sampled_from((word, word.lower(), word.capitalize())))
        pieces += [draw(st.sampled_from((" ", "\n", "  ", "\n\n", " -- a\n", "\n-- b\n", " /* c */ ", "\n/* d\n  e */\n", "\t"))), word]
    return "".join(pieces) + draw(st.sampled_from(("", "\n", " -- end", "\n\n-- end\n")))


def test_each_script_of_the_repository_means_the_same_and_stays() -> None:
    """The laid-out script has the tree of the script, and is not changed again."""
    for text in scripts():
        laid_out = format_script(text)
        assert shape(laid_out) == shape(text)
        assert format_script(laid_out) == laid_out


@settings(max_examples=25, deadline=None)
@given(disfigured_scripts())
def test_white_space_comments_and_letters_change_no_meaning(disfigured: str) -> None:
    """However a script is spaced and commented: one layout, its tree, and all comments."""
    laid_out = format_script(disfigured)
    assert shape(laid_out) == shape(disfigured)
    assert format_script(laid_out) == laid_out
    for sign in ("-- a", "-- b", "/* c */", "/* d\n  e */", "-- end"):
        assert laid_out.count(sign) == disfigured.count(sign)


def test_clauses_lists_and_conditions_break_where_they_are_too_long() -> None:
    """A clause begins a line; a list that is too long has an item a line, with the comment behind its comma."""
    text = """-- Head.

with s as (select * from a timestamp by at over k), t as (select v from s)
select k, -- the key
case when v>1 and v  between 2 and - 3 then 'x' else null end as c,count (*) as n into out from s
left outer join b timestamp by at on s.k=b.k and datediff(minute,s,b) between 0 and 10 where a in(1,2) or not left(k,1)='c';
select 1 as one into o from t -- last
"""
    assert format_script(text) == (
        """-- Head.

WITH s AS (
    SELECT *
    FROM a TIMESTAMP BY at OVER k
),
t AS (
    SELECT v
    FROM s
)
SELECT
    k, -- the key
    CASE WHEN v > 1 AND v BETWEEN 2 AND -3 THEN 'x' ELSE NULL END AS c,
    count(*) AS n
INTO out
FROM s
LEFT OUTER JOIN b TIMESTAMP BY at ON s.k = b.k AND datediff(minute, s, b) BETWEEN 0 AND 10
WHERE a IN (1, 2) OR NOT left(k, 1) = 'c';

SELECT 1 AS one
INTO o
FROM t -- last
"""
    )


def test_the_command_writes_checks_and_reads_standard_input(tmp_path) -> None:
    """A folder's scripts are written again; --check only says which would be, with exit code 1; - goes to standard output."""
    script, other = tmp_path / "a.sql", tmp_path / "below" / "b.asaql"
    other.parent.mkdir()
    script.write_text("select v into out from a", "utf-8")
    other.write_text("SELECT v\nINTO out\nFROM a\n", "utf-8")
    run = CliRunner()
    checked = run.invoke(APP, ["--check", str(tmp_path)])
    assert (checked.exit_code, checked.output) == (1, f"{script}: would change\n")
    assert script.read_text("utf-8") == "select v into out from a"
    written = run.invoke(APP, [str(tmp_path)])
    assert (written.exit_code, written.output) == (0, f"{script}: laid out\n")
    assert script.read_text("utf-8") == other.read_text("utf-8")
    assert run.invoke(APP, ["--check", str(tmp_path)]).exit_code == 0
    piped = run.invoke(APP, ["-"], input="select v into out from a")
    assert (piped.exit_code, piped.output) == (0, other.read_text("utf-8"))


def test_if_one_script_is_wrong_none_is_written(tmp_path) -> None:
    """The error of a wrong script leaves all files as they are."""
    good, wrong = tmp_path / "a.sql", tmp_path / "b.sql"
    good.write_text("select v into out from a", "utf-8")
    wrong.write_text("select v, into out from a", "utf-8")
    ended = CliRunner().invoke(APP, [str(tmp_path)])
    assert ended.exit_code == 2
    assert good.read_text("utf-8") == "select v into out from a"


@pytest.mark.parametrize("text", ["SELECT - -1 AS v INTO o FROM a", "SELECT a.*, .5 AS h INTO o FROM a", "select(v)as x into o from a"])
def test_signs_stay_apart(text: str) -> None:
    """No two signs become one, and no word is glued to the next."""
    assert shape(format_script(text)) == shape(text)


def test_a_pattern_has_its_clauses_on_lines_and_its_quantifiers_behind_names() -> None:
    """MATCH_RECOGNIZE: a clause a line; measures and definitions break as lists do."""
    text = """select * into o from a timestamp by t match_recognize (limit duration(minute, 1) partition by k measures last(B.v) as v
after match skip to next row pattern (A * B {2,} (C|D) ) define A as A.v=1, B as B.v=2,
C as C.v=3, D as D.v > A.v and D.w is not null and D.w <> 'x') as m"""
    assert format_script(text) == (
        """SELECT *
INTO o
FROM a
    TIMESTAMP BY t match_recognize(
        LIMIT duration(minute, 1)
        PARTITION BY k
        measures last(B.v) AS v
        after match skip to next row
        pattern(A* B{2,} (C | D))
        define
            A AS A.v = 1,
            B AS B.v = 2,
            C AS C.v = 3,
            D AS D.v > A.v AND D.w IS NOT NULL AND D.w <> 'x'
    ) AS m
"""
    )
