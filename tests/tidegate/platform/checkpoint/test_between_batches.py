"""Work that goes on between two batches: who ends it, who waits for it, and what becomes of it if it fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from ordering.errors import TidegateError
from tidegate.platform.checkpoint import between_batches
from tidegate.platform.checkpoint.between_batches import BetweenBatches, all_have_ended, run_or_forget


class Rounds:
    """Work that counts its rounds."""

    def __init__(self) -> None:
        self.count, self.is_running = 0, False
        self.has_begun = threading.Event()
        self.may_end = threading.Event()
        self.may_end.set()

    def __call__(self, is_over: Callable[[], bool]) -> None:
        """Run them."""
        self.is_running = True
        while not is_over():
            self.count += 1
            self.has_begun.set()
            time.sleep(0.001)
        self.may_end.wait()
        self.is_running = False


def forget() -> None:
    """Nothing is in memory."""


def test_the_next_task_ends_the_work_after_its_last_round(tmp_path: Path) -> None:
    """Whoever takes it over finds nobody else at work."""
    work, between = Rounds(), BetweenBatches()
    between.end()
    between.go_on(tmp_path, work, forget)
    assert work.has_begun.wait(10)
    between.end()
    assert not work.is_running
    count = work.count
    time.sleep(0.02)
    assert work.count == count
    between.go_on(tmp_path, work, forget)
    between.go_on(tmp_path, work, forget)
    between.end()
    assert not work.is_running


def test_work_that_nobody_takes_over_ends_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark may give the next task to another process."""
    monkeypatch.setattr(between_batches, "_LAST_S", 0.05)
    work, between = Rounds(), BetweenBatches()
    between.go_on(tmp_path, work, forget)
    assert all_have_ended(tmp_path)
    assert (work.count > 0, work.is_running) == (True, False)


def test_a_planner_that_must_be_alone_waits_for_all_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is held from before the task ends, so none is missed; a task that does not end is not waited for without end."""
    monkeypatch.setattr(between_batches, "_LAST_S", 0.05)
    monkeypatch.setattr(between_batches, "_ROUND_S", 0.05)
    assert all_have_ended(tmp_path)
    works, betweens = [Rounds(), Rounds()], [BetweenBatches(), BetweenBatches()]
    works[1].may_end.clear()
    for work, between in zip(works, betweens, strict=True):
        between.go_on(tmp_path, work, forget)
    assert not all_have_ended(tmp_path)
    assert (works[0].is_running, works[1].is_running) == (False, True)
    works[1].may_end.set()
    assert all_have_ended(tmp_path)
    assert not works[1].is_running


def test_nothing_goes_on_while_a_planner_is_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task of an earlier driver may end then."""
    lock = between_batches._lock(tmp_path, between_batches.fcntl.LOCK_EX)
    assert lock is not None
    work, between = Rounds(), BetweenBatches()
    between.go_on(tmp_path, work, forget)
    between.end()
    assert not work.count
    between_batches.os.close(lock)
    between.go_on(tmp_path, work, forget)
    assert work.has_begun.wait(10)
    between.end()


@pytest.mark.parametrize("error", [None, TidegateError("the brokers are gone", code="TG-SPARK-GONE"), ZeroDivisionError()])
def test_what_has_failed_is_forgotten(error: Exception | None) -> None:
    """Also after an error that nobody has thought of: memory may be anything then."""
    forgotten = []

    def work() -> None:
        if error is not None:
            raise error

    with pytest.raises(ZeroDivisionError) if isinstance(error, ZeroDivisionError) else nullcontext():
        run_or_forget(work, lambda: forgotten.append(True))
    assert bool(forgotten) == (error is not None)
