"""The recovery report: how much lies ahead, how fast it shrinks, and when a job has caught up."""

from __future__ import annotations

import threading
import time

import pytest
from confluent_kafka import KafkaException

from ordering.errors import RefusedError, UnreachableError
from tidegate.platform.observe.recovery_report import (
    SILENT_AFTER_S,
    CatchUpReport,
    Poller,
    Recovery,
    RecoveryKind,
    ReplayReport,
    duration_in_words,
)

ONE, OTHER = ("raw", 0), ("raw", 1)


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def catching_up(starts: int = 0, ends: int = 1_000) -> tuple[CatchUpReport, Clock]:
    """A job with two partitions that goes on from a checkpoint."""
    clock = Clock()
    recovery = Recovery(RecoveryKind.CHECKPOINT, {ONE: starts, OTHER: starts}, {ONE: ends, OTHER: ends}, batch=7, repeats_batch=True)
    return CatchUpReport(recovery, clock), clock


@pytest.mark.parametrize(
    ("recovery", "words"),
    [
        (Recovery(RecoveryKind.NEW, {}, {}), "new"),
        (Recovery(RecoveryKind.START, {}, {}, start_us=10**15), "new (output start 2001-09-09T01:46:40Z)"),
        (Recovery(RecoveryKind.CHECKPOINT, {}, {}, batch=7), "checkpoint of batch 7"),
        (Recovery(RecoveryKind.CHECKPOINT, {}, {}, batch=7, repeats_batch=True), "checkpoint of batch 7, batch 8 is run again"),
        (Recovery(RecoveryKind.CHECKPOINT, {}, {}, batch=-1, repeats_batch=True), "checkpoint before its first batch"),
        (Recovery(RecoveryKind.CTIS, {}, {}), "last CTIs of its topic"),
        (Recovery(RecoveryKind.CTIS, {}, {}, skips=("raw-0@7: broken",)), "last CTIs of its topic; skips: 1"),
    ],
)
def test_a_start_says_what_it_goes_on_from(recovery: Recovery, words: str) -> None:
    """In words for people, by name for programs."""
    assert recovery.describe() == words
    assert recovery.as_dict()["how"] == recovery.kind
    assert recovery.as_dict().get("skips", []) == list(recovery.skips)


def test_rate_and_time_left_are_told_as_soon_as_they_can_be() -> None:
    """Behind, records a second, and what is behind divided by how much faster records are read than they come."""
    job, clock = catching_up()
    assert (job.behind, job.rate, job.eta_s) == (2_000, None, None)
    for read in (100, 300):
        clock.now_s += 1
        job.advance({ONE: read, OTHER: read})
    assert (job.behind, job.rate, job.eta_s) == (1_400, 400.0, 3.5)
    assert job.status_line() == "1,400 behind at 400/s, caught up in 4s"
    job.set_ends({ONE: 1_200, OTHER: 1_000})
    assert (job.behind, job.eta_s) == (1_600, pytest.approx(1_600 / 300)), "200 came in two seconds"
    clock.now_s += 1
    job.set_ends({ONE: 3_000, OTHER: 3_000})
    assert job.eta_s is None, "they come faster than they are read"
    assert job.as_dict() == job.recovery.as_dict() | {"behind": 5_400, "rate": 400, "eta_s": None, "caught_up_after_s": None}


def test_a_job_has_caught_up_once_it_has_walked_past_the_ends_that_were_seen() -> None:
    """From then on nothing more is told, whatever comes later."""
    job, clock = catching_up()
    clock.now_s += 5
    job.advance({ONE: 1_000})
    assert job.caught_up_s is None
    job.advance({OTHER: 1_000})
    assert job.caught_up_s == 5.0
    clock.now_s += 5
    job.set_ends({ONE: 9_000})
    assert (job.caught_up_s, job.status_line(), job.behind) == (5.0, "", 8_000)


def test_with_nothing_ahead_a_job_has_caught_up_at_once() -> None:
    """Partitions that end below where the job goes on have nothing ahead."""
    assert catching_up(1_000)[0].caught_up_s == 0.0
    assert catching_up(2_000)[0].behind == 0


def test_what_is_seen_by_one_thread_does_not_change_when_another_looks() -> None:
    """A partition that joins is told in new dictionaries; those given out before stay as they were."""
    job, _ = catching_up()
    before = job.ends
    job.set_ends({("raw", 2): 5})
    job.advance({("raw", 2): 5})
    assert ("raw", 2) not in before
    assert job.partitions == [ONE, OTHER, ("raw", 2)]


def test_a_rate_forgets_what_was_long_ago() -> None:
    """Half a minute counts: a job that stalled for an hour is not judged by that hour."""
    job, clock = catching_up(ends=10**9)
    for after_s, read in ((0, 0), (3_600, 0), (1, 500), (28, 1_450)):
        clock.now_s += after_s
        job.advance({ONE: read})
    assert job.rate == pytest.approx(50.0)


def test_spans_of_time_are_written_in_seconds() -> None:
    """Nobody cares for less."""
    assert [duration_in_words(seconds) for seconds in (0.2, 59.6, 3_661.0)] == ["1s", "1m", "1h1m1s"]


def until(lookout: Poller[int]) -> int:
    """Return the next answer."""
    for _ in range(500):
        if (answer := lookout.newest_answer()) is not None:
            return answer
        time.sleep(0.01)
    raise AssertionError("no answer came")


def test_a_lookout_asks_again_after_failures_and_ends_with_a_refusal() -> None:
    """Brokers that do not answer are no news; a refusal is one, for whoever asks for news next."""
    answers: list[int | Exception] = [1, KafkaException("away"), UnreachableError("away"), 2, RefusedError("gone")]
    allowed = threading.Semaphore(0)

    def look() -> int:
        allowed.acquire(timeout=60)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with Poller(look, 0.02) as lookout:
        allowed.release()
        assert until(lookout) == 1
        allowed.release(3)
        assert until(lookout) == 2
        allowed.release()
        with pytest.raises(RefusedError, match="gone"):
            until(lookout)
        with pytest.raises(RefusedError, match="gone"):
            lookout.newest_answer()
    assert answers == []


def test_a_question_that_stays_open_is_reported_before_the_client_gives_up() -> None:
    """A broker that accepts connections and is silent leaves a trace; its answer ends it."""
    clock, asked, answered = Clock(), threading.Event(), threading.Event()

    def look() -> int:
        asked.set()
        answered.wait(60)
        return 7

    with Poller(look, 0.02, clock) as lookout:
        assert asked.wait(60)
        texts = [lookout.unanswered]
        for _ in range(2):
            clock.now_s += SILENT_AFTER_S / 2 + 0.1
            texts.append(lookout.unanswered)
        assert texts == ["", "", "no answer for 5 s"]
        answered.set()
        assert [until(lookout), until(lookout)] == [7, 7]
        assert lookout.unanswered == ""


def test_how_fast_a_replay_was_is_known_from_its_first_batch_until_it_has_caught_up() -> None:
    """Cold workers are told apart, what comes afterwards does not count, and a replay of little tells nothing."""
    job, clock = catching_up(ends=50_000)
    clock.now_s += 8
    job.advance({ONE: 1_000})
    assert job.replay is None
    for read in (21_000, 50_000):
        clock.now_s += 1
        job.advance({ONE: read, OTHER: read})
    assert job.replay == ReplayReport(99_000, 2.0, 8.0)
    assert job.replay.rate == 49_500
    clock.now_s += 100
    job.advance({ONE: 50_001})
    assert job.replay.seconds == 2.0
    small, clock = catching_up(ends=4_000)
    for _ in range(3):
        clock.now_s += 1
        small.advance({ONE: 4_000, OTHER: 4_000})
    assert small.replay is None
