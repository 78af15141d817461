"""Which columns can be NULL: only what holds for all events counts."""

from __future__ import annotations

import pytest

from query.plan.never_null import columns_never_null
from query.sql.bind import bind_outputs
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script

A = InputSchema("a", "t", fields={"country": "nvarchar(max)"})
B = InputSchema("b", "t")


def never_null(sql: str) -> set[str]:
    """Bind a script over two inputs; return the columns of its one output that always have a value."""
    (plan,) = bind_outputs(parse_script(sql), [A, B], into="out")
    return set(columns_never_null(plan))


GROUPED = "SELECT country, COUNT(*) AS n, SUM(v) AS total, System.Timestamp() AS ends FROM a TIMESTAMP BY t {} GROUP BY country, {}"
MINUTE = "TumblingWindow(minute, 1)"


@pytest.mark.parametrize(
    ("sql", "always"),
    [
        (GROUPED.format("", MINUTE), {"n", "ends"}),
        (GROUPED.format("WHERE country IS NOT NULL", MINUTE), {"country", "n", "ends"}),
        (GROUPED.format("WHERE v > 1 AND country LIKE 'x%'", MINUTE), {"country", "n", "ends"}),
        (GROUPED.format("WHERE v > 1 OR country IS NOT NULL", MINUTE), {"n", "ends"}),
        (GROUPED.format("WHERE country IS NULL", MINUTE), {"n", "ends"}),
        (GROUPED.format("", MINUTE) + " HAVING country IS NOT NULL", {"country", "n", "ends"}),
        ("SELECT COALESCE(country, '') AS c, ISNULL(x, y) AS d, CAST(x AS bigint) AS e FROM a TIMESTAMP BY t", {"c"}),
        ("SELECT CAST(x AS bigint) AS e, TRY_CAST(x AS bigint) AS f FROM a TIMESTAMP BY t WHERE x = 1", {"e"}),
        ("SELECT CASE WHEN x = 1 THEN 'a' ELSE 'b' END AS c, CASE WHEN x = 1 THEN 'a' END AS d FROM a TIMESTAMP BY t", {"c"}),
        ("SELECT PartitionId AS p, 1 AS one, LAG(v) OVER (LIMIT DURATION(hour, 1)) AS before FROM a TIMESTAMP BY t", {"p", "one"}),
        ("WITH s AS (SELECT COUNT(*) AS n FROM a TIMESTAMP BY t GROUP BY " + MINUTE + ") SELECT n, n + 1 AS m FROM s", {"n"}),
        (
            "WITH s AS (SELECT x FROM a TIMESTAMP BY t) SELECT x FROM s WHERE x IS NOT NULL UNION SELECT 1 AS x FROM b TIMESTAMP BY t",
            {"x"},
        ),
        ("SELECT a.k AS l, 1 AS one FROM a TIMESTAMP BY t JOIN b TIMESTAMP BY t ON DATEDIFF(second, a, b) BETWEEN 0 AND 5", {"one"}),
    ],
)  # fmt: skip
def test_what_always_has_a_value(sql: str, always: set[str]) -> None:
    """Counts, times, literals, and what a condition excludes; nothing of a field or a sum."""
    assert never_null(sql) == always
