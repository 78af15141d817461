"""Scripts whose plans print alike and compute something else have different fingerprints."""

from __future__ import annotations

from query.plan.nodes import Plan
from query.sql.bind import bind_outputs
from query.start.binding import types_and_case
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script

SQL = "SELECT k, COUNT(*) AS n FROM a TIMESTAMP BY at WHERE v > 1 AND s = 'x' GROUP BY k, TumblingWindow(second, 1)"


def plans_of(sql: str, **declared: str) -> tuple[Plan, ...]:
    """Bind a script over an input with some declared fields."""
    return bind_outputs(parse_script(sql), [InputSchema("a", "at", None, declared)], into="out")


def test_declared_types_and_case_are_not_printed_and_bound_all_the_same() -> None:
    """Each of them changes what is computed; types of fields that nobody reads do not."""
    plain, typed = plans_of(SQL), plans_of(SQL, v="bigint", k="nvarchar(max)", other="float")
    folded = plans_of(f"SET CASE_INSENSITIVE ON {SQL}")
    assert plain[0].root.describe() == folded[0].root.describe() == typed[0].root.describe()
    assert types_and_case(plain) == {"types": "", "case": "distinguished"}
    assert types_and_case(typed) == {"types": "k nvarchar(max), v bigint", "case": "distinguished"}
    assert types_and_case(folded) == {"types": "", "case": "ignored"}


def test_what_is_written_otherwise_and_computes_the_same_is_the_same() -> None:
    """Layout, comments and the case of keywords."""
    other = f"-- counted\n{SQL.replace('SELECT', 'select').replace(' FROM', chr(10) + 'from')}"
    assert types_and_case(plans_of(other)) == types_and_case(plans_of(SQL))
    assert plans_of(other)[0].explain() == plans_of(SQL)[0].explain()
