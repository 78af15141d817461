"""What jobs publish about themselves, and that a Redis which is away costs them nothing."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from support.valkey_server import Server

from ordering.errors import RefusedError, UnreachableError
from tidegate.basics import process_identity
from tidegate.platform.observe.detail_requests import DetailQuestion
from tidegate.platform.observe.progress_store import SILENT_AFTER_S, JobProgress, ProgressPublisher, ProgressStore, progress_key, sink_key
from tidegate.platform.observe.recovery_report import ReplayReport
from tidegate.platform.observe.reports import BucketReport, IngestReport
from tidegate.platform.observe.run_history import ENTRIES_MAX, Happened, HistoryEntry, add_entry, to_text

TOPIC = "flights.ordered"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for the tests that leave it running."""
    running = Server(tmp_path_factory.mktemp("valkey"))
    yield running
    running.kill()


def report(partition: int, next_offset: int) -> IngestReport:
    """What a stage tells of an input partition."""
    return IngestReport("flights", partition, next_offset=next_offset, arrival_us=next_offset * 10)


def until(holds: Callable[[], bool]) -> None:
    """Wait for something that another thread does."""
    for _ in range(200):
        if holds():
            return
        time.sleep(0.02)
    raise AssertionError("it never came")


def test_what_is_published_is_read_by_others(server: Server) -> None:
    """The newest report of each partition, and what is known about the job."""
    store = ProgressStore(server.settings())
    with ProgressPublisher(server.settings(), TOPIC, every_s=0.01, input="flights") as publisher:
        publisher.publish([report(0, 5), report(1, 7)])
        publisher.update_job(state="live", recovery={"offset": 3})
        publisher.publish([report(1, 9)])
        until(lambda: (found := store.read(TOPIC)) is not None and found.partitions.get(("flights", 1)) == report(1, 9))
        found = store.read(TOPIC)
    assert found is not None
    assert list(found.partitions) == [("flights", 0), ("flights", 1)]
    assert found.job["input"] == "flights"
    assert found.job["state"] == "live"
    assert found.job["recovery"] == {"offset": 3}
    assert found.is_alive(int(found.job["at_ms"]))
    assert found.last_arrival_us("flights", 1, 9) == 90
    assert found.last_arrival_us("flights", 1, 8) is None
    assert found.last_arrival_us("flights", 2, 0) is None
    assert TOPIC in store.ordered_topics()


def test_a_history_outlives_its_runs(server: Server) -> None:
    """Starts, ends and failures of all runs, a kill that only the next start can tell, refusals, and settings that changed."""
    name, now_ms = "history.ordered", [1_000]

    def start(late: str) -> ProgressPublisher:
        made = ProgressPublisher(
            server.settings(), name, settings_shown={"late": late}, every_s=0.01, wall_ms=lambda: now_ms[0], input="history"
        )
        made.note(Happened.STARTED, "resumed from: new")
        return made

    def history() -> list[tuple[int, str, str, int]]:
        with ProgressStore(server.settings()) as store:
            found = store.read(name)
        assert found is not None
        return [(each.at_ms, each.what, each.more, each.times) for each in found.history]

    with start("5s"):
        now_ms[0] = 2_000
    expected = [(1_000, "started", "resumed from: new", 1), (2_000, "stopped", "", 1)]
    until(lambda: history() == expected)
    with ProgressStore(server.settings()) as store:
        for _ in range(3):
            store.note_refusal(name, RefusedError("redis://:hunter2@h is gone", code="TG-X"), 3_000)
    expected.append((3_000, "refused", "TG-X: redis://:***@h is gone", 3))
    assert history() == expected
    # A run of another process that could not say its end.
    client = redis.Redis(port=server.port)
    client.hset(progress_key(name), "job", '{"state":"live","at_ms":4000,"started_ms":3500,"process":"gone"}')
    now_ms[0] = 9_000
    with pytest.raises(RefusedError), start("7s") as publisher:
        until(lambda: len(history()) == 6)
        raise RefusedError("the topic is gone", code="TG-TOPIC-MISSING")
    expected += [
        (4_000, "killed", "it was heard of for the last time", 1),
        (9_000, "settings changed", "late: 5s -> 7s", 1),
        (9_000, "started", "resumed from: new", 1),
        (9_000, "failed", "TG-TOPIC-MISSING: the topic is gone", 1),
    ]
    until(lambda: history() == expected)
    assert publisher is not None
    # What others have written there is no history, and keeps nothing from starting.
    client.hset(progress_key(name), "history", '{"entries": [{"what": 7}]}')
    assert history() == []
    with start("7s"):
        pass
    until(lambda: [each[1] for each in history()] == ["started", "stopped"])


def test_a_history_keeps_its_newest_entries() -> None:
    """Of the same thing again and again it keeps one."""
    entries: list[HistoryEntry] = []
    for at in range(500):
        entries = add_entry(entries, HistoryEntry(at, Happened.STARTED, "x" * 9_999))
        entries = add_entry(entries, HistoryEntry(at, Happened.FAILED, f"reason {at // 2}"))
    assert len(entries) == ENTRIES_MAX
    assert entries[-1] == HistoryEntry(499, Happened.FAILED, "reason 249")
    assert len(to_text(entries, {})) < 2**20 // 4


def test_a_job_that_ends_says_so_and_by_what(server: Server) -> None:
    """At its end the state is stopped; an error of ours is told by its parts."""
    with (
        pytest.raises(RefusedError),
        ProgressPublisher(server.settings(), "failing.ordered", input="failing") as publisher,
    ):
        publisher.publish([report(0, 5)])
        raise RefusedError("retention has deleted it", code="TG-RETENTION")
    found = ProgressStore(server.settings()).read("failing.ordered")
    assert found is not None
    assert found.job["state"] == "stopped"
    assert found.job["failure"]["code"] == "TG-RETENTION"
    assert not found.is_alive(int(found.job["at_ms"]))
    assert found.partitions["flights", 0] == report(0, 5), "what was pending at the end is written"


def test_a_query_publishes_its_buckets(server: Server) -> None:
    """A report with a bucket stands under its number."""
    with ProgressPublisher(server.settings(), "counts", input="flights.ordered") as publisher:
        publisher.publish([BucketReport(3, complete_us=1)])
    found = ProgressStore(server.settings()).read("counts")
    assert found is not None
    assert found.partitions == {("bucket", 3): BucketReport(3, complete_us=1)}


def test_how_fast_a_job_has_caught_up_is_known_to_the_next_one(server: Server) -> None:
    """It stays until a run has caught up itself; a run that had nothing to catch up with takes nothing back."""
    store, replay = ProgressStore(server.settings()), ReplayReport(99_000, 2.0, 8.0)
    with ProgressPublisher(server.settings(), "replayed", every_s=0.01) as publisher:
        publisher.keep_replay(replay)
    with ProgressPublisher(server.settings(), "replayed", every_s=0.01) as publisher:
        publisher.update_job(state="live")
    found = store.read("replayed")
    assert found is not None
    assert (found.replay, found.partitions) == (replay, {})


def test_a_job_that_is_silent_for_long_is_not_alive() -> None:
    """Whoever was killed says no more."""
    progress = JobProgress(TOPIC, {"state": "live", "at_ms": 1_000}, {})
    assert progress.is_alive(1_000 + int(SILENT_AFTER_S * 1000) - 1)
    assert not progress.is_alive(1_000 + int(SILENT_AFTER_S * 1000))


def test_a_killed_process_of_this_machine_is_not_alive() -> None:
    """It need not be waited for; one of another machine, or of another boot, is."""
    child = subprocess.Popen(["sleep", "60"])
    identity = process_identity.own_identity().rpartition("/")[0].rpartition("/")[0]
    started = Path(f"/proc/{child.pid}/stat").read_text().rpartition(") ")[2].split()[19]
    fields = {"state": "live", "at_ms": 1_000, "process": f"{identity}/{child.pid}/{started}"}
    assert JobProgress(TOPIC, fields, {}).is_alive(1_001)
    assert not JobProgress(TOPIC, {**fields, "process": f"{identity}/{child.pid}/{int(started) + 1}"}, {}).is_alive(1_001), "another one"
    child.kill()
    until(lambda: not JobProgress(TOPIC, fields, {}).is_alive(1_001))
    child.wait()
    assert not JobProgress(TOPIC, fields, {}).is_alive(1_001)
    elsewhere = {**fields, "process": f"another boot/{identity.rpartition('/')[2]}/{child.pid}/{started}"}
    assert JobProgress(TOPIC, elsewhere, {}).is_alive(1_001)
    for garbage in (None, 7, "", "/", "a/b/c/d", f"{identity}/{child.pid}/", f"{identity}/../1/2", f"{identity}/²/²"):
        assert JobProgress(TOPIC, {**fields, "process": garbage}, {}).is_alive(1_001), garbage


def test_several_sinks_of_one_output_publish_side_by_side(server: Server) -> None:
    """One that has ended is shown until another is started after it; whatever no longer runs is forgotten then."""
    store, key = ProgressStore(server.settings()), sink_key("rides")

    def sink(number: int, wall_ms: int) -> ProgressPublisher:
        return ProgressPublisher(server.settings(), key, is_one_of_several=True, every_s=0.01, wall_ms=lambda: wall_ms, number=number)

    def shown(now_ms: int = 1_500) -> list[int]:
        return [int(found.job["number"]) for found in store.read_sinks("rides", now_ms)]

    with sink(1, 1_000):
        with sink(2, 1_100):
            until(lambda: shown() == [1, 2])
        assert [found.job["state"] for found in store.read_sinks("rides", 1_500)] == ["starting", "stopped"]
        with sink(3, 1_200):
            until(lambda: shown() == [1, 3])
    assert shown() == [3]
    assert len(store.read_sinks("rides", 10**9)) == 1
    assert TOPIC not in store.ordered_topics() or key not in store.ordered_topics()


def test_what_happened_to_sinks_outlives_them(server: Server) -> None:
    """The next one takes over what those before have told, tells of kills and of settings that changed; two may run at a time."""
    store, key, client = ProgressStore(server.settings()), sink_key("told"), redis.Redis(port=server.port)

    def sink(wall_ms: int, rows: str) -> ProgressPublisher:
        made = ProgressPublisher(
            server.settings(),
            key,
            is_one_of_several=True,
            settings_shown={"postgres.batch_rows": rows},
            every_s=0.01,
            wall_ms=lambda: wall_ms,
            reads="told.topic",
        )
        made.note(Happened.STARTED, f"of {wall_ms}")
        return made

    def history() -> list[tuple[int, str]]:
        found = store.read_sinks("told", 60_000)
        assert [bool(each.history) for each in found[:-1]] == [False] * (len(found) - 1), "the newest has that of all"
        return [(each.at_ms, each.what) for each in found[-1].history] if found else []

    store.note_refusal(key, RefusedError("there is no topic", code="TG-TOPIC-MISSING"), 500)
    until(lambda: history() == [(500, "refused")])
    with sink(1_000, "10"):
        with sink(2_000, "10"):
            until(lambda: history() == [(500, "refused"), (1_000, "started"), (2_000, "started")])
        until(lambda: history()[-1] == (2_000, "stopped"))
    expected = [(500, "refused"), (1_000, "started"), (1_000, "stopped"), (2_000, "started"), (2_000, "stopped")]
    until(lambda: sorted(history()) == expected)
    # One that was killed has told its start, and not its end.
    client.hset(progress_key(key), "job abc", '{"state":"live","at_ms":4000,"started_ms":3000,"process":"gone","reads":"told.topic"}')
    client.hset(progress_key(key), "history abc", '{"entries":[{"at_ms":3000,"what":"started"}],"settings":{"postgres.batch_rows":"10"}}')
    with sink(50_000, "20"):
        until(lambda: len(history()) == 9)
    expected += [(3_000, "started"), (4_000, "killed"), (50_000, "settings changed"), (50_000, "started"), (50_000, "stopped")]
    until(lambda: history() == expected)
    # Of each sink that has ended, nothing is left but what the last one took over.
    assert len(client.hkeys(progress_key(key))) == 3
    # What others have written there keeps nothing from starting.
    client.hset(progress_key(key), "history abc", "garbage")
    with sink(60_000, "20"):
        until(lambda: history()[-1] == (60_000, "started"))
    assert store.forget_sinks("told", "told.topic", only_count=True)
    assert store.forget_sinks("told", "told.topic")
    assert not client.exists(progress_key(key))


def test_who_watches_takes_no_question_from_others(server: Server, tmp_path: Path) -> None:
    """A job that is watched writes more often, and its stages know it; they have the question of who asks for details."""
    question = DetailQuestion(tmp_path)
    with ProgressStore(server.settings()) as store:
        store.watch("watched.ordered")
        with ProgressPublisher(server.settings(), "watched.ordered", folder=tmp_path, every_s=60.0, input="watched") as publisher:
            until(lambda: store.read("watched.ordered") is not None)
            until(question.is_watched)
            assert publisher.is_watched
            assert question.substreams() is None
            # Its interval is a minute, unless somebody watches.
            for number in range(3):
                publisher.update_job(number=number)
                until(lambda number=number: store.read("watched.ordered").job.get("number") == number)  # type: ignore[misc, union-attr]
            store.ask_details("watched.ordered", 7)
            store.watch("watched.ordered")
            publisher.update_job(number=7)
            until(lambda: question.substreams() == 7)
            assert question.is_watched()


def test_only_the_sinks_of_a_topic_are_forgotten(server: Server) -> None:
    """Another project's output of the same name copies another topic; what nobody can read is in the way of all."""
    store, key = ProgressStore(server.settings()), sink_key("shared")

    def sink(number: int, topic: str) -> ProgressPublisher:
        return ProgressPublisher(
            server.settings(), key, is_one_of_several=True, every_s=0.01, wall_ms=lambda: 1_000, number=number, reads=topic
        )

    with sink(1, "ours"), sink(2, "theirs"):
        until(lambda: len(store.read_sinks("shared", 1_500)) == 2)
    assert store.forget_sinks("shared", "ours", only_count=True) == 1
    assert store.forget_sinks("shared", "ours") == 1
    assert store.forget_sinks("shared", "ours") == 0
    assert [sink.job["reads"] for sink in store.read_sinks("shared", 1_500)] == ["theirs"]
    redis.Redis(port=server.port).set(progress_key(key), "no hash")
    assert store.forget_sinks("shared", "ours") == 1
    assert not redis.Redis(port=server.port).exists(progress_key(key))


def test_a_sink_without_the_right_to_look_publishes_all_the_same(server: Server) -> None:
    """A user of an older list of rights has no HGETALL: what others have left stays, and nobody shows it."""
    client = redis.Redis(port=server.port)
    client.execute_command(
        "ACL", "SETUSER", "older", "reset", "on", ">sesame-17", "~tidegate:*", "+ping", "+select", "+client", "+get", "+hset"
    )
    store, key = ProgressStore(server.settings()), sink_key("older")
    for started_ms in (1_000, 2_000):
        with ProgressPublisher(
            server.settings(username="older", password="sesame-17"), key, is_one_of_several=True, wall_ms=lambda at_ms=started_ms: at_ms
        ):
            until(lambda at_ms=started_ms: [sink.job["started_ms"] for sink in store.read_sinks("older", at_ms)] == [at_ms])


def test_nobody_has_published_about_an_unknown_topic(server: Server) -> None:
    """There is nothing to read then."""
    assert ProgressStore(server.settings()).read("nothing") is None


def test_writes_are_bounded_not_what_is_told(server: Server) -> None:
    """However often a job publishes, Redis hears of it once an interval, and of the newest."""
    with ProgressPublisher(server.settings(), "busy.ordered", every_s=0.2) as publisher:
        before = commands(server)
        started = time.monotonic()
        for offset in range(2_000):
            publisher.publish([report(0, offset)])
            time.sleep(0.0002)
        took = time.monotonic() - started
    assert commands(server) - before <= took / 0.2 + 3
    found = ProgressStore(server.settings()).read("busy.ordered")
    assert found is not None
    assert found.partitions["flights", 0] == report(0, 1_999)


def commands(server: Server) -> int:
    """How often anybody has written a hash."""
    client = ProgressStore(server.settings())._connection()
    told: Any = client.info("commandstats")
    return int(told.get("cmdstat_hset", {}).get("calls", 0))


def test_a_redis_that_is_away_costs_a_job_nothing(tmp_path: Path) -> None:
    """Publishing never waits; what happened meanwhile is there when the server answers again."""
    server = Server(tmp_path)
    settings = server.settings(connect_timeout="300ms")
    with ProgressPublisher(settings, TOPIC, every_s=0.05) as publisher:
        publisher.publish([report(0, 1)])
        until(lambda: ProgressStore(settings).read(TOPIC) is not None)
        server.kill()
        started = time.monotonic()
        for offset in range(2, 50):
            publisher.publish([report(0, offset)])
            time.sleep(0.01)
        assert time.monotonic() - started < 2.5, "publishing does not wait"
        with pytest.raises(UnreachableError):
            ProgressStore(settings).read(TOPIC)
        server.start()
        until(lambda: (found := ProgressStore(settings).read(TOPIC)) is not None and bool(found.partitions))
    found = ProgressStore(settings).read(TOPIC)
    assert found is not None
    assert found.partitions["flights", 0] == report(0, 49)
    server.kill()
