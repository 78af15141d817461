"""Without a window each event gives one result, at its own system timestamp, when that is certain."""

from __future__ import annotations

from support.query_oracle import Event
from support.query_runs import SECOND, answers, compiled, event_table, slices

from tidegate.language.expressions.binding.input_schema import InputSchema


def test_results_come_in_event_order_within_their_time() -> None:
    """Ordered by (system_us, position), only those asked for."""
    query = compiled("SELECT v, System.Timestamp() AS at FROM arrivals WHERE v > 0")
    events = [Event(0, 2 * SECOND, {"v": 1}), Event(0, SECOND, {"v": 2}), Event(0, SECOND, {"v": 0}), Event(0, SECOND, {"v": 3})]
    found = answers(query, events)
    assert [row["value"].decode() for row in found] == [
        '{"v":2,"at":"1970-01-01T00:00:01Z"}',
        '{"v":3,"at":"1970-01-01T00:00:01Z"}',
        '{"v":1,"at":"1970-01-01T00:00:02Z"}',
    ]
    assert [row["system_us"] for row in answers(query, events, low=0, high=2 * SECOND)] == [SECOND, SECOND]


def test_the_payload_passes_untouched() -> None:
    """SELECT * gives the payload's own bytes."""
    query = compiled("SELECT * FROM arrivals WHERE v > 1")
    (found,) = answers(query, [Event(0, SECOND, b'{ "v":2,\t"w": 1.50 }'), Event(0, SECOND, {"v": 1})])
    assert (found["key"], found["value"]) == (b"", b'{ "v":2,\t"w": 1.50 }')


def test_with_over_a_result_keeps_its_substreams_key() -> None:
    """The key is the value of OVER as substream key bytes."""
    query = compiled("SELECT v FROM i TIMESTAMP BY t OVER k", InputSchema("i", "t", "k"))
    found = answers(query, [Event(0, SECOND, {"k": "a"}), Event(1, SECOND, {"k": 5}), Event(2, SECOND, {})])
    assert [(row["sub"], row["key"]) for row in found] == [(0, b"a"), (1, b"5"), (2, b"")]


def test_what_was_emitted_is_forgotten() -> None:
    """Rows below the horizon go, rows of other substreams stay."""
    query = compiled("SELECT v FROM arrivals")
    retained, _ = query.prepare(event_table([Event(0, SECOND, {}), Event(0, 2 * SECOND, {}), Event(1, SECOND, {})]))
    left = query.expire(retained, slices({0: (2 * SECOND,)}, "to_us"))
    assert list(zip(left["sub"].to_pylist(), left["system_us"].to_pylist(), strict=True)) == [(0, 2 * SECOND), (1, SECOND)]
