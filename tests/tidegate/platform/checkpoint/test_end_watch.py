"""Waking for the end of an open batch."""

from __future__ import annotations

import select
from pathlib import Path

import pytest

from tidegate.platform.checkpoint.end_watch import EndWatch
from tidegate.platform.checkpoint.open_batches import read_request, request_end, request_stop, write_report


def is_readable(watch: EndWatch, wait_ms: int = 0) -> bool:
    """Return whether the watch has something to tell within that time."""
    poll = select.poll()
    poll.register(watch.descriptor, select.POLLIN)
    return bool(poll.poll(wait_ms))


@pytest.mark.parametrize("ask", [request_end, request_stop])
def test_a_request_wakes(ask: object, tmp_path: Path) -> None:
    """Whoever watches learns of a request to end, and of a stop; reports of tasks wake nobody."""
    assert callable(ask)
    request_end(tmp_path)
    with EndWatch(tmp_path) as watch, EndWatch(tmp_path) as sibling:
        before = read_request(tmp_path)
        write_report(tmp_path, 0, "{}")
        assert not is_readable(watch)
        ask(tmp_path)
        assert is_readable(watch, 10_000)
        assert is_readable(sibling, 10_000)
        assert read_request(tmp_path) != before
        watch.forget()
        watch.forget()
        assert not is_readable(watch)
    assert watch.descriptor == -1


def test_a_file_that_is_touched_wakes_once(tmp_path: Path) -> None:
    """What is no request is forgotten, and a request that comes later wakes again."""
    request_end(tmp_path)
    with EndWatch(tmp_path) as watch:
        (tmp_path / "end_batch").touch()
        assert is_readable(watch, 10_000)
        watch.forget()
        assert not is_readable(watch)
        request_end(tmp_path)
        assert is_readable(watch, 10_000)


def test_nothing_is_watched_before_the_first_request(tmp_path: Path) -> None:
    """Then tasks look from time to time."""
    with EndWatch(tmp_path) as watch:
        assert watch.descriptor == -1
        watch.forget()
