"""Starts that were refused: the history of the topic that the job would write says so, and why."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from ordering.errors import RefusedError
from tidegate.platform.checkpoint.ended_run import RunEnded
from tidegate.platform.observe.progress_store import ProgressStore
from tidegate.platform.settings.tables.redis import RedisSettings


@contextmanager
def refusals_noted(redis: RedisSettings, ordered_topic: str) -> Iterator[None]:
    """Note the error with which the block is left, if it refuses the start; a run that is over is not refused."""
    try:
        yield
    except RunEnded:
        raise
    except RefusedError as refusal:
        with ProgressStore(redis) as store:
            store.note_refusal(ordered_topic, refusal, time.time_ns() // 1_000_000)
        raise
