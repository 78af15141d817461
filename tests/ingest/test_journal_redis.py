"""The journal in a real Valkey behaves as the one in memory, keeps what it answered through kill -9, and says why it cannot."""

from __future__ import annotations

import itertools
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st
from valkey_server import Server

from ingest.journal_redis import RedisJournal
from ordering.errors import RefusedError, TickRangeError, UnreachableError
from ordering.journal import Journal, JournalKey, MemoryJournal
from ordering.ticks import TICK_MAX
from tidegate.runtime.setting_tables import RedisSettings

KEY = JournalKey("flights.ordered", "dGhlIHRvcGljIGlk", 0)
_jobs = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that syncs every write."""
    running = Server(tmp_path_factory.mktemp("valkey"), "--appendonly", "yes", "--appendfsync", "always")
    yield running
    running.kill()


@pytest.fixture(scope="module")
def journal(server: Server) -> Iterator[RedisJournal]:
    """A journal on the shared server."""
    opened = RedisJournal.open(server.settings())
    yield opened
    opened.close_connection()


offsets = st.integers(0, 6)
frontiers = st.integers(0, 5) | st.integers(2**53, 2**53 + 3) | st.integers(TICK_MAX - 2, TICK_MAX)
partitions = st.integers(0, 1)
actions = st.one_of(
    st.tuples(st.just("estimate_many"), st.lists(st.tuples(partitions, offsets, frontiers), max_size=3)),
    st.tuples(st.just("import_many"), st.lists(st.tuples(partitions, offsets, frontiers), max_size=3)),
    st.tuples(st.just("imports_many"), st.lists(st.tuples(partitions, offsets, offsets), max_size=2)),
    st.tuples(st.just("close_many"), st.lists(st.tuples(partitions, offsets), max_size=3)),
    st.tuples(st.just("estimates_many"), st.lists(st.tuples(partitions, offsets, offsets), max_size=2)),
    st.tuples(st.just("base"), st.tuples(partitions, frontiers)),
    st.tuples(st.just("closed"), st.tuples(partitions)),
)


def play(journal: Journal, job: str, steps: list[tuple[str, tuple[int, ...] | list[tuple[int, ...]]]]) -> list[object]:
    """Do *steps* on *journal* and return its answers."""
    answers: list[object] = []
    for name, arguments in steps:
        if isinstance(arguments, list):
            answers.append(getattr(journal, name)([(JournalKey(job, "id", first), *rest) for first, *rest in arguments]))
        else:
            first, *rest = arguments
            answers.append(getattr(journal, name)(JournalKey(job, "id", first), *rest))
    return answers


@settings(max_examples=150, deadline=None)
@given(steps=st.lists(actions, max_size=12))
def test_it_answers_as_the_journal_in_memory(journal: RedisJournal, steps: list[tuple[str, list[tuple[int, ...]]]]) -> None:
    """Whatever is asked of both, in whatever order, the answers are the same."""
    job = f"job{next(_jobs)}"
    assert play(journal, job, steps) == play(MemoryJournal(), job, steps)


def test_a_closed_position_takes_no_estimate(journal: RedisJournal) -> None:
    """A late estimate of a zombie is refused; what was in force before stays in force for replay."""
    key = KEY._replace(job="closing")
    assert journal.estimate(key, 10, 1_000) == 1_000
    journal.close(key, 11)
    assert journal.estimate(key, 10, 2_000) is None
    assert journal.estimate(key, 11, 2_000) == 2_000
    journal.close(key, 5)
    assert journal.closed(key) == 11
    assert journal.estimates(key, 0, 100) == [(10, 1_000), (11, 2_000)]


def test_imports_and_estimates_are_kept_apart(journal: RedisJournal) -> None:
    """Both may stand at one position; closing it closes it for both."""
    key = KEY._replace(job="apart")
    assert journal.estimate(key, 4, 100) == 100
    assert journal.import_cti(key, 4, 50) == 50
    assert journal.import_cti(key, 4, 40) == 50
    assert (journal.estimates(key, 0, 9), journal.imports(key, 0, 9)) == ([(4, 100)], [(4, 50)])
    journal.close(key, 5)
    assert journal.import_cti(key, 4, 60) is journal.estimate(key, 4, 200) is None
    assert journal.imports(key, 4, 4) == [(4, 50)]


def test_what_a_topic_is_made_of_is_said_once(journal: RedisJournal) -> None:
    """The first word counts, also against a later start with other settings, unless nothing was written under it."""
    assert journal.made_of("t.ordered", "id", "late=5s", anew=False) == ("late=5s", True)
    assert journal.made_of("t.ordered", "id", "late=6s", anew=False) == ("late=5s", False)
    assert journal.made_of("t.ordered", "made again", "late=6s", anew=False) == ("late=6s", True)
    assert journal.made_of("t.ordered", "id", "late=7s", anew=True) == ("late=7s", True)


def test_of_two_writers_both_go_on_with_the_larger_estimate(server: Server, journal: RedisJournal) -> None:
    """An estimate is only raised, whoever raises it; a base belongs to its first writer."""
    key, other = KEY._replace(job="two"), RedisJournal.open(server.settings())
    assert journal.estimate(key, 3, 500) == 500
    assert other.estimate(key, 3, 400) == 500
    assert other.estimate(key, 3, 600) == journal.estimate(key, 3, 0) == 600
    assert journal.base(key, 7) == other.base(key, 8) == 7
    other.close_connection()


def test_jobs_and_recreated_topics_share_nothing(journal: RedisJournal) -> None:
    """Another ordered topic, or a topic made again under its name, starts with an empty journal."""
    journal.estimate(KEY, 1, 99)
    assert journal.estimates(KEY._replace(job="another"), 0, 10) == []
    assert journal.estimates(KEY._replace(topic_id="made again"), 0, 10) == []


def test_a_negative_time_is_refused_before_it_is_written(journal: RedisJournal) -> None:
    """Text of fixed width cannot carry a sign."""
    with pytest.raises(TickRangeError):
        journal.estimate(KEY, 1, -1)


def test_what_was_answered_survives_kill_9(tmp_path: Path) -> None:
    """A server that syncs once a second is waited for: killed right after the answer, it still knows everything."""
    server = Server(tmp_path, "--appendonly", "yes", "--appendfsync", "everysec")
    try:
        journal = RedisJournal.open(server.settings())
        journal.close(KEY, 5)
        journal.base(KEY, 42)
        journal.estimate(KEY, 7, 1_000)
        server.kill()
        with pytest.raises(UnreachableError):
            journal.estimate(KEY, 8, 2_000)
        server.start()
        assert journal.estimates(KEY, 0, 100) == [(7, 1_000)]
        assert journal.estimate(KEY, 4, 9_000) is None
        assert journal.base(KEY, 43) == 42
    finally:
        server.kill()


def test_a_server_without_a_disk_is_refused_unless_allowed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without an append-only file nothing is durable: refused with the ways out, or warned about once it is allowed."""
    server = Server(tmp_path)
    try:
        with pytest.raises(RefusedError) as refusal:
            RedisJournal.open(server.settings())
        assert refusal.value.code == "TG-JOURNAL-DURABILITY"
        assert "journal_durability" in refusal.value.example
        assert RedisJournal.open(server.settings(journal_durability="memory")).estimate(KEY, 1, 5) == 5
    finally:
        server.kill()


def test_a_server_that_drops_keys_is_refused(tmp_path: Path) -> None:
    """Eviction would lose facts in silence."""
    server = Server(tmp_path, "--appendonly", "yes", "--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(RefusedError) as refusal:
            RedisJournal.open(server.settings())
        assert refusal.value.code == "TG-JOURNAL-EVICTION"
    finally:
        server.kill()


def test_a_full_server_says_so(tmp_path: Path) -> None:
    """Out of memory with noeviction: nothing is lost, and the error shows what the server said."""
    server = Server(tmp_path, "--appendonly", "yes", "--appendfsync", "always")
    try:
        journal = RedisJournal.open(server.settings())
        redis.Redis(port=server.port, protocol=2).config_set("maxmemory", "1")
        with pytest.raises(UnreachableError) as failure:
            journal.estimate(KEY, 1, 5)
        assert failure.value.code == "TG-REDIS-FAILED"
        assert "memory" in failure.value.what
    finally:
        server.kill()


def test_a_server_that_hangs_costs_one_answer_timeout(tmp_path: Path) -> None:
    """Stopped in the middle of a run, it is given up soon; when it goes on, so does the journal."""
    server = Server(tmp_path, "--appendonly", "yes", "--appendfsync", "always")
    try:
        journal = RedisJournal.open(server.settings(connect_timeout="1s"))
        server.process.send_signal(signal.SIGSTOP)
        started_s = time.monotonic()
        with pytest.raises(UnreachableError):
            journal.estimate(KEY, 1, 5)
        assert time.monotonic() - started_s < 3
        server.process.send_signal(signal.SIGCONT)
        assert journal.estimate(KEY, 1, 4) in (4, 5)
    finally:
        server.kill()


def test_a_silent_server_is_named_in_time_and_without_its_password() -> None:
    """A port that accepts and never answers costs no more than the connect timeout."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"redis://me:canary-password@127.0.0.1:{listener.getsockname()[1]}/0"
        started_s = time.monotonic()
        with pytest.raises(UnreachableError) as failure:
            RedisJournal.open(RedisSettings.model_validate({"url": url, "connect_timeout": "1s"}))
    assert time.monotonic() - started_s < 2
    assert "127.0.0.1" in str(failure.value)
    assert "canary-password" not in str(failure.value)


def test_a_wrong_password_is_not_waited_out(tmp_path: Path) -> None:
    """A server that answers with a refusal is reported at once."""
    server = Server(tmp_path, "--requirepass", "canary-right")
    try:
        for url in (f"redis://:canary-wrong@127.0.0.1:{server.port}/0", f"redis://127.0.0.1:{server.port}/0"):
            with pytest.raises(UnreachableError) as failure:
                RedisJournal.open(RedisSettings.model_validate({"url": url, "connect_timeout": "1m"}))
            assert failure.value.code == "TG-REDIS-AUTH"
            assert "canary" not in str(failure.value)
    finally:
        server.kill()


def test_nobody_there_is_one_error_with_the_address() -> None:
    """A port nobody listens on: the address, the time waited and what to do."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(UnreachableError) as failure:
        RedisJournal.open(RedisSettings.model_validate({"url": f"redis://127.0.0.1:{port}/0", "connect_timeout": "500ms"}))
    assert f"127.0.0.1:{port}" in failure.value.what
    assert "tidegate up" in failure.value.fix
