"""Output start times: what may be said, what goes on with a run, and where a run has stopped."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.valkey_server import Server

from ordering.errors import RefusedError, TickRangeError
from ordering.ticks import INFINITY, NEVER
from tidegate.platform.checkpoint.output_start import BEGINNING, Start, parse_start, read_last_stop, refuse_other_start
from tidegate.platform.observe.progress_store import ProgressPublisher
from tidegate.platform.observe.reports import IngestReport
from tidegate.platform.settings.tables.redis import RedisSettings

NOW_US = 1_709_251_200_000_000


def test_a_start_is_a_word_or_a_time() -> None:
    """A time means the same however it is written."""
    assert parse_start(None, NOW_US) is None
    assert parse_start("earliest", NOW_US) == BEGINNING
    assert parse_start("now", NOW_US) == Start("now", NOW_US)
    assert parse_start("last-stopped", NOW_US) == Start("last-stopped")
    assert parse_start("2024-03-01", 0) == parse_start("2024-03-01T01:00:00+01:00", 0) == Start("2024-03-01T00:00:00Z", NOW_US)
    with pytest.raises(TickRangeError) as refusal:
        parse_start("yesterday", NOW_US)
    assert refusal.value.where == "--start"


@pytest.mark.parametrize(
    ("asked", "began", "goes"),
    [
        (None, BEGINNING, True),
        (None, Start("now", 5), True),
        (Start("last-stopped"), Start("now", 5), True),
        (BEGINNING, BEGINNING, True),
        (Start("now", 9), Start("now", 5), True),
        (Start("now", 9), BEGINNING, False),
        (BEGINNING, Start("now", 5), False),
        (Start("2024-03-01T00:00:00Z", NOW_US), Start("2024-03-02T00:00:00Z", 6), False),
        (None, None, True),
        (Start("last-stopped"), None, True),
        (BEGINNING, None, False),
    ],
)
def test_a_run_goes_on_with_the_start_it_began_with(asked: Start | None, began: Start | None, goes: bool) -> None:
    """The same command line may be started again after a crash; any other start would mix two runs in one topic."""
    if goes:
        refuse_other_start(asked, began, "flights.ordered", "flights", "delete the folder")
        return
    with pytest.raises(RefusedError) as refusal:
        refuse_other_start(asked, began, "flights.ordered", "flights", "delete the folder")
    assert refusal.value.code == "TG-START-BOUND"
    assert "folder" in refusal.value.fix
    assert "last-stopped" in refusal.value.fix


@pytest.fixture(scope="module")
def redis_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisSettings]:
    """A Redis of its own."""
    server = Server(tmp_path_factory.mktemp("valkey"))
    yield server.settings()
    server.kill()


def test_where_a_run_has_stopped_is_the_least_that_its_partitions_promised(redis_settings: RedisSettings) -> None:
    """A new topic that starts there leaves nothing out that was not written."""
    with ProgressPublisher(redis_settings, "a.ordered", input="a") as published:
        published.publish([IngestReport("a", 0, complete_us=900), IngestReport("a", 1, complete_us=700)])
    assert read_last_stop(redis_settings, "a.ordered") == Start("last-stopped", 700)


def publish(redis_settings: RedisSettings, topic: str, reached: tuple[int, ...]) -> None:
    """Publish what a run has promised in each partition."""
    with ProgressPublisher(redis_settings, topic, input="b") as published:
        published.publish([IngestReport("b", number, complete_us=us) for number, us in enumerate(reached)])


def test_what_has_not_run_yet_begins_at_the_beginning(redis_settings: RedisSettings) -> None:
    """So one command line serves all starts. A job may also have ended before a partition of it had promised anything."""
    assert read_last_stop(redis_settings, "new.ordered") == BEGINNING
    for reached in ((), (900, NEVER)):
        publish(redis_settings, "young.ordered", reached)
        assert read_last_stop(redis_settings, "young.ordered") == BEGINNING


def test_what_has_ended_does_not_go_on(redis_settings: RedisSettings) -> None:
    """Its topic was deleted: from when on, a person must say."""
    publish(redis_settings, "ended.ordered", (INFINITY, INFINITY))
    with pytest.raises(RefusedError) as refusal:
        read_last_stop(redis_settings, "ended.ordered")
    assert refusal.value.code == "TG-START-UNKNOWN"
