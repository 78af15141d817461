"""
Iterates ahead: a thread makes the next item while the last one is used.

Law: items and errors come in the order of the iterator. One thread at a time runs the iterator, at most one item ahead, and none does once
:func:`read_ahead` is closed.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


def read_ahead(items: Iterator[T]) -> Generator[T, None, None]:
    """Yield *items*, none of which is None or an exception. Close it before anything else uses the source of the items."""
    made: SimpleQueue[T | Exception | None] = SimpleQueue()
    is_wanted, is_closed = threading.Semaphore(1), threading.Event()

    def make() -> None:
        while is_wanted.acquire() and not is_closed.is_set():
            try:
                made.put(next(items, None))
            except Exception as error:
                made.put(error)

    # One thread for all items: each new thread would get a heap of its own. A daemon: the end of the process does not wait for it.
    maker = threading.Thread(target=make, name="read-ahead", daemon=True)
    maker.start()
    try:
        while (item := made.get()) is not None:
            if isinstance(item, Exception):
                raise item
            is_wanted.release()
            yield item
    finally:
        is_closed.set()
        is_wanted.release()
        maker.join()
