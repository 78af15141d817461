"""Ingest on the real stack: the law of the ordered topic at level 1, bad input, and what a second start may do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from support.stack.drawn_logs import Raw, draw, expected, logs_of, story_of
from support.stack.jobs import Workspace, error_code, settings_of, workspace
from support.stack.topics import Event, check_promises, create, fresh, header, produce, read_ordered, records

from ordering.policies import Action, Policies
from ordering.ticks import SECOND_US, format_tick

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

PARTITIONS = 3
KEYS = ("a", "bb", "ccc", "dd", "Zürich", 7, 7.5, True, None, {"b": [1], "a": 2}, *(f"key{number}" for number in range(20)))
POLICIES = Policies(20 * SECOND_US, 30 * SECOND_US, Action.ADJUST, 3 * SECOND_US, Action.DROP)
TABLES = """
[inputs.events]
topic = "{topic}"
output_partitions = 3
timestamp_by = "at"
over = "k"
early = "20s"
late = "30s"
late_action = "adjust"
reorder = "3s"
out_of_order_action = "drop"
dropped_topic = "{topic}.dropped"
"""


@dataclass
class Run:
    """One finished run to the end."""

    space: Workspace
    topic: str
    raws: list[Raw]
    summary: dict[str, Any]

    @property
    def ordered_topic(self) -> str:
        """The topic it wrote."""
        return f"{self.topic}.ordered"

    def expected(self) -> dict[tuple[int, int], list[Event]]:
        """What must stand in it."""
        return expected(logs_of(self.raws, PARTITIONS), POLICIES, PARTITIONS, over=True)


@pytest.fixture(scope="module")
def run(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Disordered and broken records, ordered to the end by one undisturbed run."""
    raws = draw(1, 12_000, PARTITIONS, bad=0.02, keys=KEYS)
    topic = create(stack.bootstrap, fresh("events"), PARTITIONS)
    produce(stack.bootstrap, topic, raws)
    with workspace(tmp_path_factory.mktemp("ingest"), stack, TABLES.format(topic=topic)) as space:
        summary = space.start("ingest", "events", "--until-end").finish()
        yield Run(space, topic, raws, summary)


def test_every_channel_carries_the_sequence_the_oracle_tells(run: Run, stack: Stack) -> None:
    """Law, level 1: seq, s, t, a, origin, flags, key, payload and Kafka timestamp of each event, in every channel."""
    found = read_ordered(stack.bootstrap, run.ordered_topic, PARTITIONS)
    assert len(run.expected()) == PARTITIONS * PARTITIONS, "every input partition writes into every output partition"
    assert found.events == run.expected()
    check_promises(found)


def test_a_run_to_the_end_ends_every_channel(run: Run, stack: Stack) -> None:
    """``--until-end`` writes the final CTI of every channel, after its last event."""
    found = read_ordered(stack.bootstrap, run.ordered_topic, PARTITIONS)
    assert {channel: found.c(channel) for channel in found.ctis} == {
        (number, output): 2**63 - 1 for number in range(PARTITIONS) for output in range(PARTITIONS)
    }
    assert {channel: ctis[-1][0].n for channel, ctis in found.ctis.items()} == {
        channel: len(events) for channel, events in found.events.items()
    }
    assert run.summary["finished"]


def test_bad_records_go_to_the_dead_letter_topic_with_reason_origin_and_bytes(run: Run, stack: Stack) -> None:
    """Each unreadable record stands there at least once with its own bytes, and no other record does."""
    dead = {
        (header(message, "origin").decode(), header(message, "reason").decode(), message.key(), message.value())
        for message in records(stack.bootstrap, f"{run.ordered_topic}.dead")
    }
    bad = {
        (f"{run.topic}-{partition}@{offset}", raw.reason, raw.key, raw.value)
        for partition, log in enumerate(logs_of(run.raws, PARTITIONS))
        for offset, raw in enumerate(log)
        if raw.reason
    }
    assert len({reason for _, reason, _, _ in bad}) == 4, "every kind of bad record was drawn"
    assert dead == bad


def test_dropped_events_go_to_their_topic_with_the_policy_and_the_limit_that_they_broke(run: Run, stack: Stack) -> None:
    """Each event that the oracle drops stands there with its own bytes, and no other one does."""
    names = ("origin", "reason", "event_time", "arrival", "limit")
    letters = records(stack.bootstrap, f"{run.topic}.dropped")
    kept = {tuple(header(letter, name).decode() for name in names): (letter.key(), letter.value()) for letter in letters}
    dropped = {}
    for number, log in enumerate(logs_of(run.raws, PARTITIONS)):
        story = story_of(log, POLICIES, number, PARTITIONS, over=True, finish=True)
        for event in story.dropped:
            trace, raw = story.traces[event.offset], log[event.offset]
            times = (raw.event_time_us, trace.arrival_us, trace.rulings[-1].limit_us)
            place = f"{run.topic}-{number}@{event.offset}"
            dropped[place, event.reason, *(format_tick(time_us) for time_us in times)] = (raw.key, raw.value)
    assert {reason for _, reason, *_ in dropped} == {"early", "out_of_order"}
    assert kept == dropped


def test_the_counts_add_up(run: Run) -> None:
    """Every record is ordered, dropped by a named policy, or dead-lettered for a named reason."""
    summary, reasons = run.summary, Counter(raw.reason for raw in run.raws if raw.reason)
    dropped = summary["early"] + summary["late_dropped"] + summary["out_of_order_dropped"]
    assert {reason: summary[f"dead_letter_{reason}"] for reason in reasons} == reasons
    assert summary["released"] + dropped + reasons.total() == len(run.raws)
    assert min(summary["early"], summary["late_adjusted"], summary["out_of_order_dropped"], summary["arrival_clamps"]) > 0


def test_cuts_and_parallelism_change_no_event(run: Run, stack: Stack) -> None:
    """Law, level 1: batches of a thousand in three tasks write what one large batch in two wrote, in other CTIs."""
    again = fresh("events-again")
    flags = settings_of(
        inputs__events__ordered_topic=again,
        inputs__events__max_events_per_batch=1000,
        spark__shuffle_partitions=3,
        spark__checkpoint_dir="again",
    )
    summary = run.space.start("ingest", "events", "--until-end", *flags).finish()
    assert len(list((run.space.folder / "again").glob("*/spark/state/0/[0-9]*"))) == 3
    assert run.summary["batches"] == 1, "the batch that reaches the end writes the final CTIs"
    assert summary["batches"] > 5
    found = read_ordered(stack.bootstrap, again, PARTITIONS)
    assert found.events == run.expected()
    check_promises(found)


def test_an_ended_topic_takes_no_second_run(run: Run) -> None:
    """The final CTI is a promise: a later start is refused (exit code 3)."""
    job = run.space.start("ingest", "events")
    assert error_code(job) == "TG-TOPIC-ENDED"
    assert job.wait() == 3


def test_the_run_that_ended_a_topic_may_be_started_again(run: Run) -> None:
    """By a supervisor that does not know that it had ended: nothing is done, one line says so, exit code 0."""
    again = run.space.start("ingest", "events", "--until-end").finish()
    assert (again["finished"], again["had_ended"], again["records_since"]) == (True, True, 0)


def test_a_changed_policy_is_refused_where_a_checkpoint_exists(run: Run) -> None:
    """Events judged by two policies must not mix in one topic; the refusal names what changed."""
    job = run.space.start("ingest", "events", *settings_of(inputs__events__late="31s"))
    assert error_code(job) == "TG-CHECKPOINT-SETTINGS"
    assert job.wait() == 3
    assert "late: 30s -> 31s" in job.errors


def test_an_ended_topic_is_not_gone_on_with_when_its_checkpoint_is_lost(run: Run) -> None:
    """The topic itself says that it has ended: nothing is started."""
    job = run.space.start("ingest", "events", *settings_of(spark__checkpoint_dir="elsewhere"))
    assert error_code(job) == "TG-TOPIC-ENDED"
    assert job.wait() == 3
