"""A topic that was made is waited for, with pauses and an end."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

import pytest

from ordering.errors import UnreachableError
from tidegate.platform.kafka import admin as admin_module
from tidegate.platform.kafka.admin import REFUSED_S, Admin, Topic

MADE = Topic("made", "id", 2, {})


class Brokers:
    """Brokers that show a new topic at the look *shown_at* (from 0), never if None."""

    def __init__(self, shown_at: int | None) -> None:
        self.looks, self._shown_at, self.pauses = 0, shown_at, list[float]()

    def create_topics(self, topics: list[Any]) -> dict[str, Future[None]]:
        done: Future[None] = Future()
        done.set_result(None)
        return {topic.topic: done for topic in topics}

    def find(self, name: str) -> Topic | None:
        self.looks += 1
        return MADE if self._shown_at is not None and self.looks > self._shown_at else None


def admin_of(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> Admin:
    """Return a client of *brokers* whose clock moves by its pauses only."""
    admin = Admin({"bootstrap.servers": "127.0.0.1:1"}, timeout_s=1.0)
    monkeypatch.setattr(admin, "_client", brokers)
    monkeypatch.setattr(admin, "find", brokers.find)
    monkeypatch.setattr(admin_module.time, "sleep", brokers.pauses.append)
    monkeypatch.setattr(admin_module.time, "monotonic", lambda: sum(brokers.pauses))
    return admin


def test_a_new_topic_is_returned_once_the_brokers_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two looks there is a pause."""
    brokers = Brokers(3)
    assert admin_of(brokers, monkeypatch).create("made", 2, {}) == MADE
    assert (brokers.looks, len(brokers.pauses)) == (4, 3)
    assert all(pause > 0 for pause in brokers.pauses)


def test_a_topic_that_never_shows_ends_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time limit of every answer."""
    brokers = Brokers(None)
    with pytest.raises(UnreachableError, match="made was created") as error:
        admin_of(brokers, monkeypatch).create("made", 2, {})
    assert error.value.code == "TG-KAFKA-UNREACHABLE"
    assert 1.0 < sum(brokers.pauses) < 1.2


@pytest.mark.parametrize("bootstrap", ["127.0.0.1:1", "nobody.invalid:9092"])
def test_a_broker_that_refuses_or_has_no_name_is_told_within_three_seconds(bootstrap: str) -> None:
    """Nobody listens there, nobody knows the name: waiting for the whole time limit would tell no more."""
    admin = Admin({"bootstrap.servers": bootstrap}, timeout_s=30.0)  # its end takes seconds, which nobody waits for
    began_s = time.monotonic()
    with pytest.raises(UnreachableError, match="no Kafka broker answers at"):
        admin.check_reachable()
    assert time.monotonic() - began_s < REFUSED_S + 4  # with the time of slow machines
