"""What each expression means, one value at a time: arithmetic, conversions, functions, and which rows fail."""

from __future__ import annotations

import json

import pytest
from support.query_runs import reasons, values

from tidegate.language.expressions.binding.input_schema import InputSchema

ROW = {
    "i": 7,
    "j": 2,
    "f": 2.5,
    "s": "Atlanta",
    "n": "12",
    "t": "2001-01-01T06:05:00.5+02:00",
    "b": True,
    "x": None,
    "r": {"k": [1]},
    "z": 0,
}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("i / j", "3"),
        ("-i / j", "-3"),
        ("i % j", "1"),
        ("-i % j", "-1"),
        ("i / 2.0", "3.5"),
        ("i + f", "9.5"),
        ("i * j - 1", "13"),
        ("i / z", "null"),
        ("f / z", "null"),
        ("i % z", "null"),
        ("i + x", "null"),
        ("9223372036854775807 + i", "null"),
        ("-(-9223372036854775807 - 1)", "null"),
        ("1e308 * 10", "null"),
        ("i + b", "8"),
        ("i + n", "19"),
        ("s + '!'", '"Atlanta!"'),
        ("i = 7", "true"),
        ("i = 7.0", "true"),
        ("n = 12", "true"),
        ("s > 'Atl'", "true"),
        ("b = 1", "true"),
        ("x = x", "null"),
        ("NOT (x = 1)", "null"),
        ("x IS NULL", "true"),
        ("i IS NOT NULL AND x IS NULL", "true"),
        ("i = 1 OR j = 2 OR x = 1", "true"),
        ("i IN (1, 7, x)", "true"),
        ("i NOT IN (1, 2)", "true"),
        ("i BETWEEN 7 AND 8", "true"),
        ("i NOT BETWEEN 7 AND 8", "false"),
        ("s LIKE 'at%'", "false"),
        ("s LIKE '_tl[a-c]n%'", "true"),
        ("s LIKE '[^B]%a'", "true"),
        ("s NOT LIKE '%z%'", "true"),
        ("'a.b' LIKE 'a_b' AND 'a\nb' LIKE 'a%b' AND '50%' LIKE '50[%]'", "true"),
        ("CASE WHEN i > 100 THEN 'big' WHEN i > 5 THEN 'some' ELSE 'few' END", '"some"'),
        ("CASE j WHEN 1 THEN 10 WHEN 2 THEN 20 END", "20"),
        ("CASE WHEN x = 1 THEN 1 END", "null"),
        ("CASE WHEN i = 7 THEN i ELSE f END", "7.0"),
        ("CASE WHEN s LIKE 'A%' THEN 0 ELSE CAST(s AS bigint) END", "0"),
        ("COALESCE(x, j, f)", "2.0"),
        ("COALESCE(x, s)", '"Atlanta"'),
        ("ISNULL(x, 'none')", '"none"'),
        ("NULLIF(i, 7)", "null"),
        ("NULLIF(i, 8)", "7"),
        ("IIF(i > j, 'yes', 'no')", '"yes"'),
        ("CAST(n AS bigint)", "12"),
        ("CAST(' 1.5e3 ' AS float)", "1500.0"),
        ("CAST(-2.9 AS bigint)", "-2"),
        ("CAST(i AS nvarchar(max)) + '!'", '"7!"'),
        ("CAST(f AS nvarchar(max))", '"2.5"'),
        ("CAST(b AS nvarchar(max))", '"true"'),
        ("CAST('TRUE' AS bit)", "true"),
        ("CAST(z AS bit)", "false"),
        ("CAST(t AS datetime)", '"2001-01-01T04:05:00.500Z"'),
        ("CAST('2001-01-01' AS datetime)", '"2001-01-01T00:00:00Z"'),
        ("CAST(CAST(t AS datetime) AS nvarchar(max))", '"2001-01-01T04:05:00.500Z"'),
        ("CAST(t AS datetime) > '2001-01-01T04:00:00Z'", "true"),
        ("TRY_CAST(s AS bigint)", "null"),
        ("TRY_CAST('1.5' AS bigint)", "null"),
        ("TRY_CAST('1e999' AS float)", "null"),
        ("TRY_CAST('2001-02-30' AS datetime)", "null"),
        ("TRY_CAST(r AS bigint)", "null"),
        ("CAST('1969-12-31T23:59:59.5Z' AS datetime)", '"1969-12-31T23:59:59.500Z"'),
        ("CAST('0001-01-01' AS datetime)", '"0001-01-01T00:00:00Z"'),
        ("TRY_CAST('0000-01-01' AS datetime)", "null"),
        ("CAST(r AS record)", '{"k":[1]}'),
        ("r.k", "[1]"),
        ("r.k.m", "null"),
        ("i.k", "null"),
        ("ABS(-i)", "7"),
        ("ABS(-f)", "2.5"),
        ("CEILING(f)", "3.0"),
        ("FLOOR(f)", "2.0"),
        ("FLOOR(i)", "7"),
        ("SIGN(-f)", "-1.0"),
        ("ROUND(f, 0)", "3.0"),
        ("ROUND(2.345, 1)", "2.3"),
        ("SQUARE(i)", "49.0"),
        ("SQRT(16)", "4.0"),
        ("SQRT(-1)", "null"),
        ("POWER(j, 10)", "1024"),
        ("POWER(2.0, 10)", "1024.0"),
        ("POWER(2, 0.5)", "1"),
        ("POWER(-2, 3)", "-8"),
        ("POWER(2, -1)", "0"),
        ("POWER(0, -1)", "null"),
        ("POWER(10, 19)", "null"),
        ("POWER(2, NULL)", "null"),
        ("GetType(POWER(CAST(1 AS bit), 2))", '"bigint"'),
        ("CAST(1 AS bit) & CAST(0 AS bit)", "false"),
        ("CAST(0 AS bit) & CAST(NULL AS bit)", "null"),
        ("CAST(1 AS bit) | CAST(NULL AS bit)", "null"),
        ("CAST(1 AS bit) | 170", "171"),
        ("NULL & NULL", "null"),
        ("~CAST(0 AS bit)", "true"),
        ("LOG(z)", "null"),
        ("EXP(z)", "1.0"),
        ("LEN(s)", "7"),
        ("LEN('ab  ')", "2"),
        ("LEN(i)", "1"),
        ("LOWER(s) + UPPER(s)", '"atlantaATLANTA"'),
        ("SUBSTRING(s, 2, 3)", '"tla"'),
        ("SUBSTRING(s, 0, 3)", '"At"'),
        ("SUBSTRING(s, -1, 3)", '"A"'),
        ("SUBSTRING(s, -5, 3)", '""'),
        ("SUBSTRING(s, 2, -1)", '""'),
        ("SUBSTRING(s, -9223372036854775807, 9223372036854775807)", '""'),
        ("SUBSTRING(s, 5, 9223372036854775807)", '"nta"'),
        ("SUBSTRING(s, x, 3)", "null"),
        ("SUBSTRING(s, 1, x)", "null"),
        ("LEFT(s, x)", "null"),
        ("RIGHT(s, x)", "null"),
        ("LEFT(s, 9223372036854775807)", '"Atlanta"'),
        ("RIGHT(s, 9223372036854775807)", '"Atlanta"'),
        ("RIGHT(s, -1)", '""'),
        ("LEFT(s, 2) + RIGHT(s, 2)", '"Atta"'),
        ("CONCAT(s, x, i, '-', b)", '"Atlanta7-true"'),
        ("LTRIM('  a ') + RTRIM(' b  ') + TRIM('  c  ')", '"a  bc"'),
        ("REPLACE(s, 'a', '_')", '"Atl_nt_"'),
        ("CHARINDEX('a', s)", "4"),
        ("CHARINDEX('a', s, 5)", "7"),
        ("CHARINDEX('q', s)", "0"),
        ("DATEADD(second, i, t)", '"2001-01-01T04:05:07.500Z"'),
        ("DATEADD(millisecond, 978307200123, '1970-01-01')", '"2001-01-01T00:00:00.123Z"'),
        ("DATEADD(ss, -f, '1970-01-01')", '"1969-12-31T23:59:58Z"'),
        ("DATEADD(month, 1, '2001-01-31')", '"2001-02-28T00:00:00Z"'),
        ("DATEADD(qq, -1, '2001-05-31T10:00:00Z')", '"2001-02-28T10:00:00Z"'),
        ("DATEADD(year, n, '2000-02-29')", '"2012-02-29T00:00:00Z"'),
        ("DATEADD(week, 1, x)", "null"),
        ("DATEADD(year, 8000, t)", "null"),
        ("DATEADD(month, 9223372036854775807, t)", "null"),
        ("DATEADD(day, 9223372036854775807, t)", "null"),
        ("DATEADD(day, -1e300, t)", "null"),
        ("DATEADD([day], 1, '2001-01-01')", '"2001-01-02T00:00:00Z"'),
        ("DATEDIFF(day, '2001-01-01T23:59:59.999999Z', '2001-01-02')", "1"),
        ("DATEDIFF(day, '2001-01-02', '2001-01-01T00:00:00.000001Z')", "-1"),
        ("DATEDIFF(year, '2001-12-31', '2002-01-01')", "1"),
        ("DATEDIFF(month, '2001-12-31', '2000-12-01')", "-12"),
        ("DATEDIFF(quarter, '1969-12-31', '1970-01-01')", "1"),
        ("DATEDIFF(week, '2001-01-06', '2001-01-07')", "1"),
        ("DATEDIFF(week, '1969-12-27', '1969-12-28')", "1"),
        ("DATEDIFF(hour, '1969-12-31T23:30:00Z', '1970-01-01T00:30:00Z')", "1"),
        ("DATEDIFF(microsecond, '2001-01-01', t)", "14700500000"),
        ("DATEPART(year, t) * 100 + MONTH(t)", "200101"),
        ("YEAR(t) + DAY(t)", "2002"),
        ("DATEPART(weekday, '2001-01-07')", "1"),
        ("DATEPART(week, '2001-01-06')", "1"),
        ("DATEPART(week, '2001-01-07')", "2"),
        ("DATEPART(dayofyear, '2000-12-31')", "366"),
        ("DATEPART(ms, '1969-12-31T23:59:59.999Z')", "999"),
        ("DATEPART(mcs, t)", "500000"),
        ("DATETIMEFROMPARTS(2001, 2, 28, 23, 59, 58, 7)", '"2001-02-28T23:59:58.007Z"'),
        ("DATETIMEFROMPARTS(2001, x, 28, 23, 59, 58, 7)", "null"),
        ("System.Timestamp()", '"1970-01-01T00:00:01Z"'),
        ("System.Timestamp > '1970-01-01'", "true"),
        ("PartitionId", "0"),
        ("arrivals.I", "7"),
        ("NULL", "null"),
        ("'it''s'", '"it\'s"'),
    ],
)
def test_an_expression_has_its_value(expression: str, expected: str) -> None:
    """The value as it is written in a result."""
    assert values(f"SELECT {expression} AS v FROM arrivals", [ROW]) == [f'{{"v":{expected}}}']


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("CAST(s AS bigint)", "conversion failed: CAST(s AS bigint)"),
        ("CAST(1e300 * f AS bigint)", "conversion failed: CAST(1e+300 * f AS bigint)"),
        ("s + 1", "conversion failed: s + 1"),
        ("s > 5", "conversion failed: s > 5"),
        ("CAST(r AS bigint)", "record cannot be converted to bigint: CAST(r AS bigint)"),
        ("r = r", "values of type record cannot be compared: r = r"),
        ("ABS(r)", "a number is needed, not record: ABS(r)"),
        ("NULLIF(CAST(s AS bigint), 7)", "conversion failed: NULLIF(CAST(s AS bigint), 7)"),
        ("DATEADD(day, 1, s)", "conversion failed: DATEADD(day, 1, s)"),
        ("DATEADD(day, 1, i)", "bigint cannot be converted to datetime: DATEADD(day, 1, i)"),
        ("DATETIMEFROMPARTS(i, 13, 1, 0, 0, 0, 0)", "conversion failed: DATETIMEFROMPARTS(i, 13, 1, 0, 0, 0, 0)"),
        ("DATETIMEFROMPARTS(i, 1, 1, 0, 0, 0, 1000)", "conversion failed: DATETIMEFROMPARTS(i, 1, 1, 0, 0, 0, 1000)"),
        ("i AND b", "a condition is needed, not bigint: i AND b"),
    ],
)
def test_a_row_fails_with_its_reason(expression: str, reason: str) -> None:
    """A value that cannot be converted fails its row, and only its row."""
    sql = f"SELECT {expression} AS v FROM arrivals"
    assert reasons(sql, [{"i": None}, ROW, {}]) == [(1, reason)]


def test_one_column_may_hold_every_kind() -> None:
    """Rows are computed by the kinds they have, not by their neighbours'."""
    payloads = [{"v": 7}, {"v": 7.0}, {"v": "7"}, {"v": True}, {"v": None}, {}, {"v": {"a": 1}}]
    assert values("SELECT v, v / 2 AS half FROM arrivals", payloads) == [
        '{"v":7,"half":3}',
        '{"v":7.0,"half":3.5}',
        '{"v":"7","half":3}',
        '{"v":true,"half":0}',
        '{"v":null,"half":null}',
        '{"v":null,"half":null}',
    ]
    assert reasons("SELECT v / 2 AS half FROM arrivals", payloads) == [(6, "a number is needed, not record: v / 2")]


def test_a_null_does_not_take_the_kind_of_its_neighbours() -> None:
    """COALESCE(NULL, 1) is 1 beside a float too."""
    sql = "SELECT COALESCE(v, 1) AS v FROM arrivals"
    assert values(sql, [{"v": None}, {"v": 2.5}]) == ['{"v":1}', '{"v":2.5}']
    assert values(sql, [{"v": None}]) == ['{"v":1}']


@pytest.mark.parametrize("expression", ["v - u", "v = u", "v - CAST(u AS bigint)", "v + u - 'x'", "v < CAST(u AS datetime)"])
@pytest.mark.parametrize("others", [[{"v": 1}], [{"v": "3", "u": "4"}], [{"u": 2}, {"v": 1.5}]])
def test_a_null_spares_the_rest_of_its_row_a_conversion_whatever_stands_beside_it(expression: str, others: list[dict[str, object]]) -> None:
    """Level 2: whether a row fails depends on that row alone, not on those that a batch brings with it."""
    sql, row = f"SELECT {expression} AS o FROM arrivals", {"v": None, "u": "text"}
    alone = values(sql, [row]), reasons(sql, [row])
    found, failed = values(sql, [row, *others]), reasons(sql, [row, *others])
    assert [reason for position, reason in failed if position == 0] == [reason for _, reason in alone[1]]
    assert found[: len(alone[0])] == alone[0]


def test_an_expression_may_name_many_fields() -> None:
    """However many there are, each row is computed by the kinds of its own."""
    fields = [f"f{at}" for at in range(45)]
    payloads = [dict.fromkeys(fields, 1), dict.fromkeys(fields, 1.0), dict.fromkeys(fields, "1") | {"f0": 1}, {"f0": 1.5, "f44": True}]
    first = values(f"SELECT COALESCE({', '.join(reversed(fields))}) AS v FROM arrivals", payloads[:2] + payloads[3:])
    assert first == ['{"v":1}', '{"v":1.0}', '{"v":1.0}']
    assert values(f"SELECT {' + '.join(fields)} AS v FROM arrivals", payloads) == ['{"v":45}', '{"v":45.0}', '{"v":45}', '{"v":null}']


def test_where_keeps_what_is_true() -> None:
    """False and NULL are left out; a condition that is no condition fails its row."""
    payloads = [{"f": True}, {"f": False}, {"f": None}, {"f": 1}]
    assert values("SELECT f FROM arrivals WHERE f", payloads) == ['{"f":true}']
    assert reasons("SELECT f FROM arrivals WHERE f", payloads) == [(3, "a condition is needed, not bigint: f")]


def test_rows_that_where_leaves_out_cannot_fail() -> None:
    """SELECT is computed for rows that pass WHERE only."""
    sql = "SELECT CAST(s AS bigint) AS v FROM arrivals WHERE s LIKE '[0-9]%'"
    assert values(sql, [{"s": "5"}, {"s": "x"}]) == ['{"v":5}']
    assert reasons(sql, [{"s": "5"}, {"s": "x"}]) == []


def test_declared_fields_are_converted() -> None:
    """A value that is not of the declared type is converted like a CAST, or fails its row."""
    schema = InputSchema("i", fields={"v": "bigint", "at": "datetime"})
    payloads = [{"v": 1}, {"v": "2"}, {"v": 3.7}, {"v": "x"}, {"at": "2001-01-01T00:00:00Z"}]
    assert values("SELECT V, at FROM i", payloads, schema) == [
        '{"V":1,"at":null}',
        '{"V":2,"at":null}',
        '{"V":3,"at":null}',
        '{"V":null,"at":"2001-01-01T00:00:00Z"}',
    ]
    assert reasons("SELECT V FROM i", payloads, schema) == [(3, "conversion failed: V")]


@pytest.mark.parametrize(
    ("value", "text"),
    [(1, "1"), (-0.0, "0.0"), (2.5, "2.5"), ("x", '"x"'), ("", '""'), (True, "true"), ({"k": 1}, '{"k":1}'), ([1], "[1]")],
)
@pytest.mark.parametrize("others", [[], [{"a": 1, "b": 2.5}], [{"a": "y"}], [{"b": False}]])
def test_coalesce_of_a_row_does_not_depend_on_the_rows_around_it(value: object, text: str, others: list[dict[str, object]]) -> None:
    """Rows in which any of the values is NULL, alone and beside values of other kinds, which are computed another way."""
    rows = [{}, {"a": value}, {"b": value}, {"a": value, "b": value}]
    expected = [f'{{"v":{found}}}' for found in ("null", text, text, text)]
    assert values("SELECT COALESCE(a, b) AS v FROM arrivals", [*rows, *others])[:4] == expected


@pytest.mark.parametrize(
    "expression",
    [
        "CAST(a AS datetime)",
        "COALESCE(CAST(a AS datetime), CAST(b AS datetime))",
        "COALESCE(CAST(a AS datetime), 'x')",
        "DATEPART(year, a)",
    ],
)
def test_the_time_in_a_text_does_not_depend_on_the_rows_around_it(expression: str) -> None:
    """Usual times, which need no SQL, alone and beside a time between spaces, which does; NULL is still a datetime."""
    times = ["2001-01-01", "2001-01-01T00:00:00.123Z", "2001-01-01 23:59:59.9999999-01:30", "9999-12-31T23:59:59.999999z"]
    rows = [{"a": time, "b": "2001-01-01"} for time in times]
    sql = f"SELECT {expression} AS v FROM arrivals"
    for others in ([], [{"b": "2001-01-01"}], [{"b": "x"}], [{"a": "x", "b": "2001-01-01"}]):
        beside = [*rows, *others, {"a": " 2001-01-01 ", "b": "2001-01-01"}]
        assert values(sql, beside)[:-1] == values(sql, [*rows, *others])
        assert reasons(sql, beside) == reasons(sql, [*rows, *others])


def test_expressions_side_by_side_have_the_values_and_failures_that_each_has_alone() -> None:
    """Computed by one statement if no row fails, by one each if some row does, or if rows differ in kind; in the order of SELECT."""
    expressions = ["i + j", "j + i", "CAST(n AS bigint) * i", "CASE WHEN i > 6 THEN j END", "f * 0.5", "i", "UPPER(s)", "b", "n + s"]
    rows = [ROW, {**ROW, "i": -7, "n": "5", "f": 1e308}, {"s": "é"}, {}]
    for odd in ([], [{**ROW, "n": "x"}], [{**ROW, "j": "2"}], [{**ROW, "j": 2.5, "n": "y"}]):
        payloads = [*rows, *odd]
        failed = [set(reasons(f"SELECT {expression} AS v FROM arrivals", payloads)) for expression in expressions]
        first = {
            row: next(reason for reasons in failed for at, reason in reasons if at == row)
            for row in {at for one in failed for at, _ in one}
        }
        together = f"SELECT {', '.join(f'{expression} AS v{place}' for place, expression in enumerate(expressions))} FROM arrivals"
        assert dict(reasons(together, payloads)) == first
        kept = [payload for row, payload in enumerate(payloads) if row not in first]
        alone = [values(f"SELECT {expression} AS v FROM arrivals", kept) for expression in expressions]
        found = [json.loads(text) for text in values(together, payloads)]
        assert [list(one.values()) for one in found] == [[json.loads(text)["v"] for text in texts] for texts in zip(*alone, strict=True)]


@pytest.mark.parametrize("operator", ["=", "<>", "<", "<=", ">", ">="])
def test_a_comparison_does_not_depend_on_the_rows_around_it(operator: str) -> None:
    """Numbers of one kind need no SQL, beside a float or text they do."""
    rows = [{"a": 1, "b": 2}, {"a": 2, "b": 2}, {"a": 2**63 - 1, "b": -(2**63)}, {"a": 1}, {"b": 1}, {}]
    for right in ("b", "2"):
        sql = f"SELECT a {operator} {right} AS v FROM arrivals"
        assert values(sql, [*rows, {"a": 1.5, "b": "3"}])[:-1] == values(sql, rows)
