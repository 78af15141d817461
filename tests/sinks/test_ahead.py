"""Reading ahead: the items and errors of the iterator itself, in order, one item ahead and no more."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from sinks.copying.ahead import read_ahead


def test_items_and_the_error_after_them_come_in_order() -> None:
    """Whatever has been made before an error is given first."""

    def fail_after(count: int) -> Iterator[int]:
        yield from range(count)
        raise OSError("the line is cut")

    found: list[int] = []
    with pytest.raises(OSError, match="cut"):
        found.extend(read_ahead(fail_after(3)))
    assert found == [0, 1, 2]
    assert list(read_ahead(iter(range(5)))) == [0, 1, 2, 3, 4]
    assert list(read_ahead(iter(()))) == []


def test_one_item_is_made_while_another_is_used() -> None:
    """The second is there before it is asked for; the third is not begun."""
    begun = [threading.Event() for _ in range(4)]

    def make() -> Iterator[int]:
        for number, event in enumerate(begun):
            event.set()
            yield number

    items = read_ahead(make())
    assert next(items) == 0
    assert begun[1].wait(10)
    assert not begun[2].wait(0.1)
    assert next(items) == 1
    assert begun[2].wait(10)
    items.close()


def test_nobody_is_in_the_iterator_once_it_is_closed() -> None:
    """Closing waits for the item under way."""
    is_begun, may_end, is_made = threading.Event(), threading.Event(), threading.Event()

    def make() -> Iterator[int]:
        yield 0
        is_begun.set()
        may_end.wait(10)
        is_made.set()
        yield 1

    items = read_ahead(make())
    assert next(items) == 0
    assert is_begun.wait(10)
    threading.Timer(0.1, may_end.set).start()
    items.close()
    assert is_made.is_set()
