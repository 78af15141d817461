"""How large a result may be: determined once, by what the topics took when the run began."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordering.errors import RefusedError
from query.start.result_limits import PLAIN_ROOM_BYTES, RESULT_BYTES_MAX, check_plain_topic, result_limits
from query.start.survey import TopicSurvey
from tidegate.platform.kafka.admin import HEADER_ROOM_BYTES, Topic
from tidegate.platform.kafka.client_properties import EVENT_BYTES_MAX
from tidegate.platform.settings.tables.outputs import OutputSettings

DEFAULT = 1_048_588
TOPIC, PLAIN, FILES = (OutputSettings(**table) for table in ({"topic": "r"}, {"topic": "r", "plain_topic": "p"}, {"files": "out"}))


def limits(*outputs: OutputSettings, read: int, there: dict[str, int] | None = None, bound: str | None = None) -> tuple[int | None, ...]:
    """Return the limits of outputs that read a topic of so large records, and write to topics that are there."""
    results = {name: topic(name, limit) for name, limit in (there or {}).items()}
    survey = TopicSurvey(Path(), outputs, {"a": topic("a.ordered", read)}, {}, results)
    return result_limits(outputs, survey, None if bound is None else {RESULT_BYTES_MAX: bound})


def topic(name: str, limit: int) -> Topic:
    """Return a topic with such a limit."""
    return Topic(name, "id", 1, {"max.message.bytes": str(limit)})


def test_a_result_is_as_large_as_an_event_or_as_kafka_takes_by_default() -> None:
    """A query that adds some columns to a small event writes it; the client's own limit bounds both."""
    assert limits(TOPIC, read=5000) == (DEFAULT,)
    assert limits(TOPIC, read=5_000_000) == (5_000_000 - HEADER_ROOM_BYTES,)
    assert limits(TOPIC, read=2**31 - 1) == (EVENT_BYTES_MAX,)


def test_a_plain_topic_that_is_there_takes_what_it_takes_and_files_take_anything() -> None:
    """Each output has its own limit."""
    there = {"p": 30_000, "r": 2_000_000}
    assert limits(TOPIC, PLAIN, FILES, read=DEFAULT, there=there) == (DEFAULT, 30_000 - PLAIN_ROOM_BYTES, None)
    assert limits(PLAIN, read=DEFAULT, there={"p": 10}) == (0,)


def test_a_run_keeps_its_limits() -> None:
    """Whatever the topics take later."""
    assert limits(TOPIC, FILES, read=9_000_000, bound="[1048588, null]") == (DEFAULT, None)


def test_a_plain_topic_whose_limit_was_lowered_is_refused() -> None:
    """Its rows would be refused one day, and a repeated batch must leave out the same."""
    check_plain_topic(topic("p", 30_000), 30_000 - PLAIN_ROOM_BYTES)
    with pytest.raises(RefusedError) as refused:
        check_plain_topic(topic("p", 29_999), 30_000 - PLAIN_ROOM_BYTES)
    assert (refused.value.code, refused.value.where) == ("TG-TOPIC-CONFIG", "p")
