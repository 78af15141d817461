"""The checks of the campaign notice what they are there for; nothing here talks to a service."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from faults.checks import Truth, check_accounts, check_bytes, check_dead_letters, check_promises, truth_of
from faults.points import IDLE, LOGGED, OPEN, STATE, UNCOMMITTED, Checkpoint
from faults.reading import Start, check_readers
from support.law_breaches import BrokenLawError
from support.stack.drawn_logs import draw, logs_of
from support.stack.topics import Channel, Event, Ordered

from ordering.policies import Policies
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.ticks import INFINITY, SECOND_US
from tidegate.platform.checkpoint.open_batches import write_report
from tidegate.platform.observe.reports import IngestReport

PARTITIONS, OUTPUTS = 2, 2
POLICIES = Policies(20 * SECOND_US, 3 * SECOND_US, reorder_us=SECOND_US)


class Sent:
    """A record of the dead-letter topic, as far as a check looks at it."""

    def __init__(self, origin: str, reason: str, key: bytes | None, value: bytes | None) -> None:
        self._headers, self._key, self._value = [("origin", origin.encode()), ("reason", reason.encode())], key, value

    def headers(self) -> list[tuple[str, bytes]]:
        """As a message tells them."""
        return self._headers

    def key(self) -> bytes | None:
        """As a message tells it."""
        return self._key

    def value(self) -> bytes | None:
        """As a message tells it."""
        return self._value


@pytest.fixture(scope="module")
def truth() -> Truth:
    """A raw topic with disorder and what cannot be read, and what the oracle tells of it."""
    raws = [
        raw for raw in draw(7, 400, PARTITIONS, bad=0.05, keys=[f"key{number}" for number in range(20)]) if raw.reason != "arrival_ahead"
    ]
    return truth_of("raw", logs_of(raws, PARTITIONS), POLICIES, OUTPUTS, over=True, estimates={})


def cti(channel: Channel, events: list[Event], n: int) -> Cti:
    """Return a CTI that says of n events just what is true."""
    c = min((event.system_us for event in events[n:]), default=INFINITY)
    ahead = sum(event.system_us >= c for event in events[:n])
    return Cti(channel[0], channel[1], c, n, ahead, 0, 0, 0, Roster(1, PARTITIONS, Spread.ALL, True), Cause.EVENT)


def written(truth: Truth) -> Ordered:
    """Return the ordered topic that says just that, with a CTI half way and one at the end of each channel."""
    found = Ordered()
    for channel, events in truth.channels.items():
        found.events[channel] = list(events)
        half = len(events) // 2
        found.ctis[channel] = [(cti(channel, events, n), n) for n in (half, len(events))]
        arrived = [*events[:half], found.ctis[channel][0][0], *events[half:], found.ctis[channel][1][0]]
        found.arrived.setdefault(channel[1], []).extend((channel[0], record) for record in arrived)
    return found


def test_what_is_as_the_oracle_tells_passes(truth: Truth) -> None:
    """No check complains without a reason."""
    found = written(truth)
    check_bytes(found, truth, whole=True)
    assert check_promises(found, truth, rising=True) == 0
    dead = [Sent(origin, raw.reason, raw.key, raw.value) for origin, raw in truth.unreadable.items()]
    check_dead_letters([*dead, dead[0]], truth, whole=True)  # type: ignore[list-item]
    starts = [Start(partition, 0, 0) for partition in range(OUTPUTS)]
    check_readers(starts, found, truth, OUTPUTS)


def test_a_beginning_is_enough_until_the_end(truth: Truth) -> None:
    """While a job runs what is still to come is not missing; in the end it is."""
    found = written(truth)
    channel = next(iter(found.events))
    del found.events[channel][-3:]
    check_bytes(found, truth, whole=False)
    with pytest.raises(BrokenLawError, match="nothing is lost"):
        check_bytes(found, truth, whole=True)


@pytest.mark.parametrize("change", [{"value": b"{}"}, {"stamp_ms": 1}, {"flags": 128}, {"arrival_us": 5}, {"seq": 7}])
def test_a_changed_byte_is_noticed(truth: Truth, change: dict[str, object]) -> None:
    """Whatever the law fixes of an event counts."""
    found = written(truth)
    channel = next(iter(found.events))
    found.events[channel][20] = found.events[channel][20]._replace(**change)  # type: ignore[arg-type]
    with pytest.raises(BrokenLawError, match="same bytes"):
        check_bytes(found, truth, whole=False)


def test_an_event_more_is_noticed(truth: Truth) -> None:
    """What nobody told is made up."""
    found = written(truth)
    events = found.events[next(iter(found.events))]
    events.append(events[-1])
    with pytest.raises(BrokenLawError, match="made up"):
        check_bytes(found, truth, whole=False)


@pytest.mark.parametrize(
    ("change", "law"),
    [({"c": INFINITY}, "CTI promises"), ({"ahead": 10_000}, "CTI fields"), ({"n": 10_000}, "CTI promises")],
)
def test_a_cti_that_is_not_true_is_noticed(truth: Truth, change: dict[str, int], law: str) -> None:
    """c, n and ahead are held against all that comes after and before."""
    found = written(truth)
    ctis = found.ctis[next(iter(found.ctis))]
    ctis[0] = replace(ctis[0][0], **change), ctis[0][1]
    with pytest.raises(BrokenLawError, match=law):
        check_promises(found, truth, rising=True)


def test_a_cti_before_its_events_is_noticed(truth: Truth) -> None:
    """A CTI stands behind the events it counts."""
    found = written(truth)
    ctis = found.ctis[next(iter(found.ctis))]
    ctis[0] = ctis[0][0], ctis[0][1] - 1
    with pytest.raises(BrokenLawError, match="CTIs wait"):
        check_promises(found, truth, rising=True)


def test_a_cti_that_falls_is_noticed_unless_an_old_driver_wrote_it(truth: Truth) -> None:
    """One driver's CTIs rise; an old one's may come late, and are counted."""
    found = written(truth)
    channel = next(iter(found.ctis))
    found.ctis[channel].append((found.ctis[channel][0][0], len(found.events[channel])))
    with pytest.raises(BrokenLawError, match="only rise"):
        check_promises(found, truth, rising=True)
    assert check_promises(found, truth, rising=False) == 1


def test_dead_letters_that_are_missing_wrong_or_readable_are_noticed(truth: Truth) -> None:
    """What could not be read stands there with its origin, its reason and its bytes, and nothing else does."""
    dead = [Sent(origin, raw.reason, raw.key, raw.value) for origin, raw in truth.unreadable.items()]
    for wrong, law in (
        (dead[1:], "lost"),
        ([*dead, Sent("raw-0@999999", "malformed", None, b"")], "made up"),
        ([*dead, Sent(next(iter(truth.unreadable)), "malformed", None, b"other")], "same bytes"),
    ):
        with pytest.raises(BrokenLawError, match=law):
            check_dead_letters(wrong, truth, whole=True)  # type: ignore[arg-type]


def test_counts_that_do_not_add_up_are_noticed(truth: Truth) -> None:
    """Each count is the oracle's, and together they are the input."""
    reasons = [raw.reason for log in truth.logs for raw in log if raw.reason]
    summary = {**truth.counts(), **{f"dead_letter_{reason}": reasons.count(reason) for reason in reasons}}
    check_accounts(summary, truth)
    for name in ("released", "early", f"dead_letter_{reasons[0]}"):
        with pytest.raises(BrokenLawError, match=name):
            check_accounts({**summary, name: summary[name] + 1}, truth)


def test_a_reader_that_misses_an_event_is_noticed(truth: Truth) -> None:
    """From X on nothing may be missing."""
    found = written(truth)
    channel = next(channel for channel, events in found.events.items() if events)
    arrived = found.arrived[channel[1]]
    last = max(place for place, (number, record) in enumerate(arrived) if number == channel[0] and isinstance(record, Event))
    del arrived[last]
    with pytest.raises(BrokenLawError, match="readers from the middle"):
        check_readers([Start(channel[1], 0, 0)], found, truth, OUTPUTS)


def test_the_files_of_a_checkpoint_tell_where_a_batch_stands(tmp_path: Path) -> None:
    """Offsets first, then each task's state, then the commit; a report of a task that stays open names its batch."""
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.where() == IDLE
    for folder in ("spark/offsets", "spark/commits", "spark/state/0/0", "spark/state/0/1", "spark/state/0/_metadata"):
        (tmp_path / folder).mkdir(parents=True)
    told = []
    for file in ("offsets/4", "state/0/1/5.changelog", "state/0/0/5.changelog", "commits/4", "offsets/5"):
        (tmp_path / "spark" / file).touch()
        told.append(checkpoint.where())
    assert told == [LOGGED, STATE, UNCOMMITTED, IDLE, LOGGED]
    assert (checkpoint.planned, checkpoint.committed) == (5, 4)
    for batch, place in ((4, LOGGED), (5, OPEN)):
        write_report(tmp_path, 0, IngestReport("raw", 0, open_batch=batch).to_json())
        assert checkpoint.where() == place
    state = tmp_path / "spark/state/0/0/6.changelog"
    state.touch()
    for saved_s, place in ((1.0, OPEN), (2.0e9, STATE)):
        os.utime(state, (saved_s, saved_s))
        assert checkpoint.where() == place, "a task without ranges saves at once"
