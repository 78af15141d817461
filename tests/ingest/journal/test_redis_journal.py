"""The journal in a real Valkey behaves as the one in memory, keeps what it answered through kill -9, and says why it cannot."""

from __future__ import annotations

import ast
import itertools
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from support.journals import MemoryJournal, close, estimate, import_cti, settle_base
from support.valkey_server import Server

from ingest.journal.redis_journal import RedisJournal
from ordering.errors import RefusedError, TickRangeError, UnreachableError
from ordering.protocol.facts import Fact, FactKind
from ordering.protocol.journal import (
    KINDS_BY_POSITION,
    Call,
    Close,
    Forget,
    JournalKey,
    JournalWipedError,
    PlanningTime,
    Propose,
    Raise,
    Read,
    ReadClosed,
    RecordSilence,
    Silence,
)
from ordering.ticks import TICK_MAX
from tidegate.platform.settings.tables.redis import RedisSettings

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
times = st.integers(0, 5) | st.integers(2**53, 2**53 + 3) | st.integers(TICK_MAX - 2, TICK_MAX)
slacks = st.integers(0, 2) | st.just(TICK_MAX)
keys = st.builds(lambda partition: KEY._replace(partition=partition), st.integers(0, 1))
many_kinds, spans = st.sampled_from(KINDS_BY_POSITION), st.sampled_from([FactKind.STAMP, FactKind.CLOCK])
asked = st.one_of(
    st.builds(Raise, st.sampled_from([FactKind.ESTIMATE, FactKind.IMPORT, FactKind.SKIP]), keys, offsets, times),
    st.builds(Close, keys, offsets, st.none() | st.builds(PlanningTime, spans, times, slacks)),
    st.builds(Read, many_kinds, keys, offsets, offsets),
    st.builds(Propose, st.sampled_from([FactKind.BASE, FactKind.JOIN]), keys, offsets, times),
    st.builds(ReadClosed, keys),
    st.builds(RecordSilence, keys, st.builds(Silence, offsets, st.sampled_from(["b", "bb"]), times, times)),
    st.builds(Forget, keys, offsets),
)
given_back = st.lists(st.builds(Fact, st.sampled_from(FactKind), offsets, times), max_size=4)


class BothJournals(RuleBasedStateMachine):
    """The journal in Redis beside the one in memory: whatever is asked of both, in whatever order, the answers are the same."""

    redis: RedisJournal

    def __init__(self) -> None:
        super().__init__()
        self.memory, self.job = MemoryJournal(), f"job{next(_jobs)}"

    def mine(self, key: JournalKey) -> JournalKey:
        """Return the key in this run."""
        return key._replace(job=self.job)

    @rule(calls=st.lists(asked, max_size=6))
    def execute(self, calls: list[Call]) -> None:
        """Some calls at once."""
        calls = [call._replace(key=self.mine(call.key)) for call in calls]
        assert self.redis.execute(calls) == self.memory.execute(calls)

    @rule(key=keys, facts=given_back)
    def restore(self, key: JournalKey, facts: list[Fact]) -> None:
        """Facts are given back, many of them contradictions."""
        assert self.redis.restore(self.mine(key), facts) == self.memory.restore(self.mine(key), facts)

    @rule(key=keys)
    def dump(self, key: JournalKey) -> None:
        """Everything there is."""
        assert self.redis.dump(self.mine(key)) == self.memory.dump(self.mine(key))


def test_it_answers_as_the_journal_in_memory(journal: RedisJournal) -> None:
    """The law of the module, under drawn calls."""
    machine = type("Both", (BothJournals,), {"redis": journal})
    run_state_machine_as_test(machine, settings=settings(max_examples=60, stateful_step_count=12, deadline=None))


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that syncs once a second and is killed in between."""
    running = Server(tmp_path_factory.mktemp("mortal"), "--appendonly", "yes", "--appendfsync", "everysec")
    yield running
    running.kill()


@settings(max_examples=4, deadline=None)
@given(rounds=st.lists(st.lists(asked, min_size=1, max_size=8), min_size=2, max_size=3))
def test_a_server_killed_between_calls_answers_as_one_that_lives(mortal: Server, rounds: list[list[Call]]) -> None:
    """kill -9 right after an answer takes nothing of it back; the same connection goes on, and sees no loss."""
    journal, memory, job = RedisJournal.open(mortal.settings()), MemoryJournal(), f"job{next(_jobs)}"
    for calls in rounds:
        calls = [call._replace(key=call.key._replace(job=job)) for call in calls]
        assert journal.execute(calls) == memory.execute(calls)
        mortal.kill()
        mortal.start()
    assert [journal.dump(KEY._replace(job=job, partition=each)) for each in (0, 1)] == [
        memory.dump(KEY._replace(job=job, partition=each)) for each in (0, 1)
    ]
    journal.close_connection()


def test_a_closed_position_takes_no_estimate(journal: RedisJournal) -> None:
    """A late estimate of a zombie is refused; what was in force before stays in force for replay."""
    key = KEY._replace(job="closing")
    assert estimate(journal, key, 10, 1_000) == 1_000
    close(journal, key, 11)
    assert estimate(journal, key, 10, 2_000) is None
    assert estimate(journal, key, 11, 2_000) == 2_000
    close(journal, key, 5)
    assert journal.first_open(key) == 11
    assert journal.estimates(key, 0, 100) == [(10, 1_000), (11, 2_000)]


def test_a_stamp_is_below_no_earlier_one_and_below_no_estimate_that_it_closes(journal: RedisJournal) -> None:
    """A clock that was set back stamps nothing anew; an estimate at a position that is closed lifts the stamp of all of them."""
    key = KEY._replace(job="stamps")
    journal.execute([Close(key, 3, PlanningTime(FactKind.STAMP, 1_000)), Close(key, 6, PlanningTime(FactKind.STAMP, 400))])
    assert journal.stamps(key, 0, 9) == [(0, 1_000)]
    assert estimate(journal, key, 7, 5_000) == 5_000
    journal.execute([Close(key, 9, PlanningTime(FactKind.STAMP, 2_000))])
    assert journal.stamps(key, 0, 9) == [(0, 1_000), (6, 5_000)]


def test_imports_and_estimates_are_kept_apart(journal: RedisJournal) -> None:
    """Both may stand at one position; closing it closes it for both."""
    key = KEY._replace(job="apart")
    assert estimate(journal, key, 4, 100) == 100
    assert import_cti(journal, key, 4, 50) == 50
    assert import_cti(journal, key, 4, 40) == 50
    assert (journal.estimates(key, 0, 9), journal.imports(key, 0, 9)) == ([(4, 100)], [(4, 50)])
    close(journal, key, 5)
    assert import_cti(journal, key, 4, 60) is estimate(journal, key, 4, 200) is None
    assert journal.imports(key, 4, 4) == [(4, 50)]


def test_what_a_topic_is_made_of_is_said_once(journal: RedisJournal) -> None:
    """The first word counts, also against a later start with other settings, unless nothing was written under it."""
    five, six, seven = (json.dumps({"settings": {"late": late}, "starts": {}, "start": None}) for late in ("5s", "6s", "7s"))
    assert journal.read_or_set_fingerprint("t.ordered", "id", five, begins_anew=False) == (five, True)
    assert journal.read_or_set_fingerprint("t.ordered", "id", six, begins_anew=False) == (five, False)
    assert journal.read_or_set_fingerprint("t.ordered", "made again", six, begins_anew=False) == (six, True)
    assert journal.read_or_set_fingerprint("t.ordered", "id", seven, begins_anew=True) == (seven, True)


def test_of_two_writers_both_go_on_with_the_larger_estimate(server: Server, journal: RedisJournal) -> None:
    """An estimate is only raised, whoever raises it; a base belongs to its first writer."""
    key, other = KEY._replace(job="two"), RedisJournal.open(server.settings())
    assert estimate(journal, key, 3, 500) == 500
    assert estimate(other, key, 3, 400) == 500
    assert estimate(other, key, 3, 600) == estimate(journal, key, 3, 0) == 600
    assert settle_base(journal, key, 7) == settle_base(other, key, 8) == 7
    other.close_connection()


def test_jobs_and_recreated_topics_share_nothing(journal: RedisJournal) -> None:
    """Another ordered topic, or a topic made again under its name, starts with an empty journal."""
    estimate(journal, KEY, 1, 99)
    assert journal.estimates(KEY._replace(job="another"), 0, 10) == []
    assert journal.estimates(KEY._replace(topic_id="made again"), 0, 10) == []


def test_a_negative_time_is_refused_before_it_is_written(journal: RedisJournal) -> None:
    """Text of fixed width cannot carry a sign."""
    with pytest.raises(TickRangeError):
        estimate(journal, KEY, 1, -1)


RACE = """
import sys, time
from ingest.journal.redis_journal import RedisJournal
from ordering.protocol.facts import FactKind
from ordering.protocol.journal import Close, JournalKey, PlanningTime, Read
from tidegate.platform.settings.tables.redis import RedisSettings

journal = RedisJournal.open(RedisSettings.model_validate({"url": sys.argv[1]}))
key, step, at = JournalKey("raced", "id", 0), int(sys.argv[2]), 0
while at < 300:
    start, at = at, at + step
    journal.execute([Close(key, at, PlanningTime(FactKind.STAMP, time.time_ns() // 1000))])
    print(start, at, journal.stamps(key, start, at - 1), sep="|", flush=True)
"""


def test_racing_processes_share_one_stamp_for_each_record(server: Server, journal: RedisJournal) -> None:
    """Three drivers that cut their ranges differently plan the same records at the same time: whoever was first stamped them."""
    command = [sys.executable, "-c", RACE, f"redis://127.0.0.1:{server.port}/0"]
    racers = [subprocess.Popen([*command, str(step)], stdout=subprocess.PIPE, text=True) for step in (3, 5, 7)]
    said: dict[int, set[int]] = {}
    for racer in racers:
        lines = racer.communicate(timeout=60)[0].splitlines()
        assert racer.returncode == 0
        for start, end, spans in (line.split("|") for line in lines):
            stamps = ast.literal_eval(spans)
            for offset in range(int(start), int(end)):
                said.setdefault(offset, set()).add(max(span for span in stamps if span[0] <= offset)[1])
    assert all(len(stamps) == 1 for stamps in said.values())
    in_order = [min(stamps) for _, stamps in sorted(said.items())]
    assert in_order == sorted(in_order)
    assert [min(said[at]) for at, _ in journal.stamps(KEY._replace(job="raced", topic_id="id"), 0, 400)] == sorted(set(in_order))


def test_an_emptied_server_is_noticed_and_given_everything_back(tmp_path: Path) -> None:
    """Nothing is done on a journal that forgot: no position is closed anew, nothing stamped again; others notice too."""
    server = Server(tmp_path, "--appendonly", "yes", "--appendfsync", "always")
    try:
        journal, other = RedisJournal.open(server.settings()), RedisJournal.open(server.settings())
        moment = Close(KEY, 9, PlanningTime(FactKind.STAMP, 1_000))
        journal.execute([Raise(FactKind.ESTIMATE, KEY, 4, 500), moment])
        facts = other.dump(KEY)
        redis.Redis(port=server.port, protocol=2).flushall()
        with pytest.raises(JournalWipedError) as found:
            journal.execute([Close(KEY, 12, PlanningTime(FactKind.STAMP, 2_000))])
        assert found.value.code == "TG-JOURNAL-WIPED"
        newcomer = RedisJournal.open(server.settings())
        assert not newcomer.has_facts(KEY)
        assert journal.restore(KEY, facts) == 0
        assert newcomer.dump(KEY) == journal.dump(KEY) == facts
        with pytest.raises(JournalWipedError):
            other.execute([ReadClosed(KEY)])
        assert other.restore(KEY, facts) == 0
        assert other.dump(KEY) == facts
    finally:
        server.kill()


def test_an_older_copy_that_came_back_is_noticed(tmp_path: Path) -> None:
    """A server restored from a backup knows the era but not its last writes; whoever gives them back begins a new era."""
    server = Server(tmp_path, "--appendonly", "yes", "--appendfsync", "always")
    try:
        journal, other = RedisJournal.open(server.settings()), RedisJournal.open(server.settings())
        estimate(journal, KEY, 4, 500)
        server.kill()
        backup = shutil.copytree(tmp_path / "appendonlydir", tmp_path / "backup")
        server.start()
        estimate(journal, KEY, 4, 800)
        assert other.estimates(KEY, 0, 9) == [(4, 800)]
        server.kill()
        shutil.rmtree(tmp_path / "appendonlydir")
        backup.rename(tmp_path / "appendonlydir")
        server.start()
        with pytest.raises(JournalWipedError):
            estimate(journal, KEY, 4, 100)
        assert journal.restore(KEY, [Fact(FactKind.ESTIMATE, 4, 800)]) == 0
        with pytest.raises(JournalWipedError):
            other.first_open(KEY)
        assert journal.estimates(KEY, 0, 9) == [(4, 800)]
    finally:
        server.kill()


def test_many_facts_are_given_back_and_forgotten_in_several_goes(journal: RedisJournal) -> None:
    """A long rebuild lets others in between; the result is the same."""
    key = KEY._replace(job="many")
    facts = [Fact(FactKind.CLOCK, at, at) for at in range(5_000)]
    assert journal.restore(key, [*facts, Fact(FactKind.CLOSED, 5_000, 0)]) == 0
    assert len(journal.dump(key)) == 5_001
    assert journal.execute([Forget(key, 4_500), ReadClosed(key)]) == [4_500, 5_000]


def test_what_was_answered_survives_kill_9(tmp_path: Path) -> None:
    """A server that syncs once a second is waited for: killed right after the answer, it still knows everything."""
    server = Server(tmp_path, "--appendonly", "yes", "--appendfsync", "everysec")
    try:
        journal = RedisJournal.open(server.settings())
        close(journal, KEY, 5)
        settle_base(journal, KEY, 42)
        estimate(journal, KEY, 7, 1_000)
        server.kill()
        with pytest.raises(UnreachableError):
            estimate(journal, KEY, 8, 2_000)
        server.start()
        assert journal.estimates(KEY, 0, 100) == [(7, 1_000)]
        assert estimate(journal, KEY, 4, 9_000) is None
        assert settle_base(journal, KEY, 43) == 42
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
        assert estimate(RedisJournal.open(server.settings(journal_durability="memory")), KEY, 1, 5) == 5
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
            estimate(journal, KEY, 1, 5)
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
            estimate(journal, KEY, 1, 5)
        assert time.monotonic() - started_s < 3
        server.process.send_signal(signal.SIGCONT)
        assert estimate(journal, KEY, 1, 4) in (4, 5)
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
