"""
An iterator whose next item is made while the last one is used.

Law: items and errors come as from the iterator itself, in order. One thread at a time is in it, at most one item ahead, and none once
:func:`read_ahead` is closed.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class _Next(threading.Thread, Generic[T]):
    """Takes one item; a process that ends does not wait for it."""

    def __init__(self, items: Iterator[T]) -> None:
        super().__init__(name="read-ahead", daemon=True)
        self._items = items
        self._item: T | None = None
        self._error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            self._item = next(self._items, None)
        except Exception as error:
            self._error = error

    def wait(self) -> T | None:
        """Return the item, None at the end. Raises what the iterator has raised."""
        self.join()
        if self._error is not None:
            raise self._error
        return self._item


def read_ahead(items: Iterator[T]) -> Generator[T, None, None]:
    """Yield *items*, none of which is None. Close it before anybody else uses what they are made of."""
    following = _Next(items)
    try:
        while (item := following.wait()) is not None:
            following = _Next(items)
            yield item
    finally:
        following.join()
