"""A tick that meets an error of the operating system is told, and tried again."""

from __future__ import annotations

import errno
import os

import pytest
import structlog

from ordering.errors import RefusedError
from tidegate.platform.observe.logs import Ticks

FULL = OSError(errno.EMFILE, os.strerror(errno.EMFILE), "spark.log")


def test_an_error_of_the_operating_system_is_told_once_a_minute_and_ends_nothing() -> None:
    """When it begins, when it has lasted for another minute, and when it comes again."""
    now_s, worked = [0.0], 0
    story = ((0.0, None), (1.0, FULL), (2.0, FULL), (59.0, FULL), (62.0, FULL), (63.0, None), (64.0, FULL))
    outcomes = [outcome for _, outcome in story]

    def tick() -> None:
        nonlocal worked
        if error := outcomes.pop(0):
            raise error
        worked += 1

    ticks = Ticks(tick, lambda: now_s[0])
    with structlog.testing.capture_logs() as logged:
        for now_s[0], _ in story:
            ticks()
    assert worked == 2
    assert len(logged) == 3
    assert all("Too many open files" in each["error"] for each in logged)


def test_what_must_end_the_job_still_does() -> None:
    """The driver has seen that a topic was made again, for example."""

    def tick() -> None:
        raise RefusedError("made again", code="TG-TOPIC-RECREATED")

    with pytest.raises(RefusedError):
        Ticks(tick)()
