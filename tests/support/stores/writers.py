"""What the tests of one store write into it, how several write at once, and what a store refuses."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ordering.errors import UnreachableError
from sinks.stores.base import Batch, Rows, Store, StoreError


def batch(start: int, *values: dict[str, Any], topic: str = "rides", partition: int = 0) -> Batch:
    """Return these results as the batch that begins at *start*; the topic's id is ``id-of-TOPIC``."""
    place = np.arange(start, end := start + len(values))
    texts = pa.array([json.dumps(value).encode() for value in values], pa.binary())
    return Batch(f"id-of-{topic}", partition, start, end, end, Rows(place, place, place, pa.nulls(len(values), pa.binary()), texts))


def refusal_of(store: Store) -> StoreError:
    """Return the error with which a check ends; preparing ends with the same."""
    with pytest.raises(StoreError) as checked:
        store.check()
    with pytest.raises(StoreError) as prepared:
        store.prepare()
    store.close()
    assert checked.value.as_dict() == prepared.value.as_dict()
    return checked.value


def pause_with(monkeypatch: pytest.MonkeyPatch, module: ModuleType, act: Callable[[], object]) -> None:
    """Have *act* happen once between a writer's reading of the progress and its commit; *module* is its store's."""
    acts = [act]

    def pause(point: str) -> None:
        if point == "rows sent" and acts:
            acts.pop()()

    monkeypatch.setattr(module, "pause_at", pause)


def write_at_once(store_of: Callable[[str], Store], topics: Sequence[str], count: int) -> None:
    """Have one writer for each of *topics*, which may repeat, write the rows (Car, fixes) = (topic, 0), (topic, 1), ..., one a batch."""

    def run(topic: str) -> None:
        store, position = store_of(topic), 0
        while position < count:
            try:
                position = store.write(batch(position, {"Car": topic, "fixes": position}, topic=topic)).position
            except UnreachableError:
                store.close()

    threads = [threading.Thread(target=run, args=(topic,)) for topic in topics]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
