"""Aggregates value by value: what they leave out, what kind they have, how results are ordered and keyed."""

from __future__ import annotations

from typing import Any

from support.query_oracle import Event
from support.query_runs import FLIGHTS, SECOND, answers, compiled, reasons, values

from tidegate.language.expressions.binding.input_schema import InputSchema

WINDOW = "GROUP BY TumblingWindow(second, 100)"


def single(select: str, payloads: list[Any]) -> str:
    """The one result of a window over all payloads."""
    (found,) = values(f"SELECT {select} FROM arrivals {WINDOW}", payloads)
    return found


def test_nulls_are_left_out() -> None:
    """COUNT(*) counts rows, COUNT(x) values; the others are NULL over no values."""
    select = "COUNT(*) AS n, COUNT(v) AS c, SUM(v) AS s, AVG(v) AS a, MIN(v) AS lo, MAX(v) AS hi"
    assert single(select, [{}, {"v": None}]) == '{"n":2,"c":0,"s":null,"a":null,"lo":null,"hi":null}'
    assert single(select, [{}, {"v": 3}, {"v": 4}]) == '{"n":3,"c":2,"s":7,"a":3.5,"lo":3,"hi":4}'


def test_a_sum_of_bigints_is_a_bigint_and_with_a_float_a_float() -> None:
    """The kind follows the values, group by group."""
    assert single("SUM(v) AS s", [{"v": 1}, {"v": 2}]) == '{"s":3}'
    assert single("SUM(v) AS s", [{"v": 1}, {"v": 2.0}]) == '{"s":3.0}'


def test_a_sum_of_bigints_is_exact_or_null() -> None:
    """128 bits inside; what does not fit a bigint at the end is NULL, AVG still knows it."""
    most = 2**63 - 1
    assert single("SUM(v) AS s", [{"v": most}, {"v": 5}, {"v": -6}]) == f'{{"s":{most - 1}}}'
    assert single("SUM(v) AS s, AVG(v) AS a", [{"v": most}, {"v": most}]) == '{"s":null,"a":9.223372036854776e+18}'
    assert single("SUM(v) AS s", [{"v": -most - 1}, {"v": -1}]) == '{"s":null}'


def test_a_sum_of_floats_is_exact() -> None:
    """No order and no cancellation can show."""
    assert single("SUM(v) AS s", [{"v": 1e16}, {"v": 1}, {"v": -1e16}, {"v": 0.1}]) == '{"s":1.1}'
    assert single("SUM(v) AS s, AVG(v) AS a", [{"v": 0.1}] * 10) == '{"s":1.0,"a":0.1}'
    assert single("SUM(v) AS s", [{"v": 1e308}, {"v": 1e308}]) == '{"s":null}'


def test_extremes_of_several_kinds() -> None:
    """Numbers are compared by value; between kinds bit < number < datetime < nvarchar; of equal numbers the bigint."""
    payloads = [{"v": 2}, {"v": 2.0}, {"v": 2.5}, {"v": "x"}, {"v": True}]
    assert single("MIN(v) AS lo, MAX(v) AS hi", payloads) == '{"lo":true,"hi":"x"}'
    assert single("MIN(v) AS lo, MAX(v) AS hi", payloads[:2]) == '{"lo":2,"hi":2}'
    assert single("MIN(v) AS lo, MAX(v) AS hi", payloads[:3]) == '{"lo":2,"hi":2.5}'
    assert single("MAX(v) AS hi", [{"v": 2**53 + 1}, {"v": 2.0**53}]) == '{"hi":9007199254740993}'


def test_extremes_over_hopping_windows_of_text() -> None:
    """Runs of panes know extremes of any kind."""
    sql = "SELECT MIN(v) AS lo, MAX(v) AS hi FROM arrivals GROUP BY HoppingWindow(second, 2, 1)"
    assert values(sql, [{"v": "b"}, {"v": "a"}, {}, {"v": "é"}]) == [
        '{"lo":"b","hi":"b"}',
        '{"lo":"a","hi":"b"}',
        '{"lo":"a","hi":"a"}',
        '{"lo":"é","hi":"é"}',
        '{"lo":"é","hi":"é"}',
    ]


def test_results_compute_with_aggregates() -> None:
    """Expressions over groups follow the same rules; what has no result is NULL."""
    select = "SUM(v) / COUNT(v) AS m, SUM(v) / (COUNT(v) - 2) AS z, TRY_CAST(MAX(s) AS bigint) AS bad"
    assert single(select, [{"v": 3, "s": "x"}, {"v": 4}]) == '{"m":3,"z":null,"bad":null}'


def test_having_keeps_groups() -> None:
    """False and NULL leave a group out."""
    sql = "SELECT k FROM arrivals GROUP BY k, TumblingWindow(second, 100) HAVING SUM(v) > 1"
    assert values(sql, [{"k": "a", "v": 1}, {"k": "b", "v": 2}, {"k": "c"}]) == ['{"k":"b"}']


def test_keys_may_be_expressions() -> None:
    """A selected expression that is a key, or is made of keys, stands for it."""
    sql = "SELECT v / 10 AS tens, v / 10 + 1 AS more, COUNT(*) AS n FROM arrivals GROUP BY V / 10, TumblingWindow(second, 100)"
    assert values(sql, [{"v": 5}, {"v": 15}, {"v": 17}]) == ['{"tens":0,"more":1,"n":1}', '{"tens":1,"more":2,"n":2}']


def test_keys_of_different_kinds_are_different_groups() -> None:
    """1 (and 1.0), '1', true and NULL are four groups; results of equal key bytes are ordered by kind."""
    sql = "SELECT k, COUNT(*) AS n FROM arrivals GROUP BY k, TumblingWindow(second, 100)"
    payloads = [{"k": 1}, {"k": 1.0}, {"k": "1"}, {"k": True}, {}, {"k": None}, {"k": {"b": 1, "a": 2}}, {"k": {"a": 2, "b": 1}}]
    found = answers(compiled(sql), [Event(0, SECOND, payload) for payload in payloads])
    assert [(row["key"], row["value"]) for row in found] == [
        (b"", b'{"k":null,"n":2}'),
        (b"1", b'{"k":1,"n":2}'),
        (b"1", b'{"k":"1","n":1}'),
        (b"true", b'{"k":true,"n":1}'),
        (b'{"a":2,"b":1}', b'{"k":{"a":2,"b":1},"n":2}'),
    ]


def test_the_key_of_a_result() -> None:
    """With OVER the substream's key, else the one key, else an array, else nothing."""
    over = "SELECT COUNT(*) AS n FROM flights TIMESTAMP BY scheduled OVER origin GROUP BY destination, origin, TumblingWindow(second, 10)"
    several = "SELECT COUNT(*) AS n FROM flights TIMESTAMP BY scheduled GROUP BY destination, origin, TumblingWindow(second, 10)"
    none = "SELECT COUNT(*) AS n FROM flights TIMESTAMP BY scheduled GROUP BY TumblingWindow(second, 10)"
    event = Event(0, SECOND, {"origin": "ATL", "destination": "SAV"})
    assert [answers(compiled(sql, FLIGHTS), [event])[0]["key"] for sql in (over, several, none)] == [b"ATL", b'["SAV","ATL"]', b""]


def test_results_are_ordered_by_time_then_key_bytes() -> None:
    """The fixed row order."""
    sql = "SELECT k FROM arrivals GROUP BY k, TumblingWindow(second, 1)"
    events = [Event(0, SECOND, {"k": key}) for key in (10, 9, "B", "a")] + [Event(0, 2 * SECOND, {"k": 1})]
    assert [(row["system_us"], row["key"]) for row in answers(compiled(sql), events)] == [
        (SECOND, b"10"),
        (SECOND, b"9"),
        (SECOND, b"B"),
        (SECOND, b"a"),
        (2 * SECOND, b"1"),
    ]


def test_text_where_a_number_is_needed_fails_the_row() -> None:
    """It is a dead letter, not counted in the group."""
    assert reasons(f"SELECT AVG(v) AS a FROM arrivals {WINDOW}", [{"v": "x"}]) == [(0, "a number is needed, not nvarchar(max): v")]


def test_substreams_are_finished_each_on_its_own() -> None:
    """A substream without closing instants gives nothing; equal keys of two substreams stay apart."""
    sql = "SELECT k, COUNT(*) AS n FROM i TIMESTAMP BY t OVER k GROUP BY k, TumblingWindow(second, 1)"
    query = compiled(sql, InputSchema("i", "t", "k"))
    events = [Event(3, SECOND, {"k": "a"}), Event(1, SECOND, {"k": "a"}), Event(2, SECOND, {"k": "b"})]
    assert [(row["sub"], row["key"]) for row in answers(query, events)] == [(1, b"a"), (3, b"a"), (2, b"b")]
