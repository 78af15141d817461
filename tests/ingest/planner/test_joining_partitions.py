"""Which topics an input is made of, and who is in the roster of an ordered topic that goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.ingest_plans import ingest_plan
from support.journals import MemoryJournal

from ingest.config import IngestPlan, Partition
from ingest.offsets import IngestOffset, PartitionJoin, PlannedPosition
from ingest.planner.joining_partitions import read_joins, read_planned_offset, with_roster
from ordering.protocol.facts import FactKind
from ordering.protocol.journal import Propose
from ordering.ticks import NEVER, SECOND_US
from tidegate.platform.settings.input_topics import match_topics, own_topics
from tidegate.platform.settings.load import Settings

FOUNDERS: tuple[Partition, ...] = (("raw", 0), ("raw", 1))
JOINED = {("raw", 2): PartitionJoin(2, 5 * SECOND_US), ("aaa", 0): PartitionJoin(3, 9 * SECOND_US)}


def settings(**fields: object) -> Settings:
    """Settings with one input and its output."""
    return Settings.model_validate({"inputs": {"all": fields}, "outputs": {"counts": {"topic": "flights-counts"}}})


def plan_of(*partitions: Partition) -> IngestPlan:
    """The plan of a job over *partitions* of the topics ``raw`` and ``aaa``."""
    return ingest_plan(
        settings=settings(topic="raw", timestamp_by="at").input("all"),
        partitions=partitions,
        topic_ids={"raw": "id of raw", "aaa": "id of aaa"},
        tasks=2,
        starts={partition: PlannedPosition(0) for partition in partitions},
        output_partitions=2,
        checkpoint="nowhere",
    )


def test_an_input_is_the_topics_it_lists_and_those_its_pattern_matches_as_a_whole() -> None:
    """What is listed belongs to it, there or not; Kafka's own topics and those that Tidegate writes never match."""
    made = settings(topic="other", topic_pattern="flights-.*|__.*", ordered_topic="flights-ordered")
    names = ["flights-eu", "flights", "my-flights-eu", "flights-counts", "flights-ordered", "flights-ordered.dead", "__consumer_offsets"]
    excluded = own_topics(made)
    assert match_topics(made.input("all"), names, excluded) == ["flights-eu", "other"]
    assert match_topics(settings(topic=["b", "a"]).input("all"), names, excluded) == ["a", "b"]


def test_a_pattern_alone_names_no_topic_and_the_ordered_topic_is_named_by_the_input() -> None:
    """What an input's topic is called by default, another one does not change."""
    chosen = settings(topic_pattern="flights-.*").input("all")
    assert (chosen.topics, chosen.ordered_topic, chosen.dead_letter_topic) == ((), "all.ordered", "all.ordered.dead")
    assert "topic_pattern" not in settings(topic="raw").input("all").fingerprint()
    assert chosen.fingerprint()["topic_pattern"] == "flights-.*"


def test_roster_numbers_are_those_of_the_founders_as_they_sort_then_as_others_joined() -> None:
    """Whatever their names, and each joined partition's model says when it joined."""
    plan = with_roster(plan_of(*FOUNDERS), {*FOUNDERS, *JOINED}, JOINED)
    assert plan.partitions == (*FOUNDERS, ("raw", 2), ("aaa", 0))
    assert (plan.roster.version, plan.roster.inputs) == (3, 4)
    assert [plan.model(number).joined_us for number in range(4)] == [NEVER, NEVER, 5 * SECOND_US, 9 * SECOND_US]
    assert plan_of(*FOUNDERS).roster.version == 1


def test_without_a_checkpoint_the_journal_tells_who_joined_this_ordered_topic() -> None:
    """Of one ordered topic, not of another; and nothing of those it was begun from."""
    journal, plan = MemoryJournal(), plan_of(*FOUNDERS, *JOINED)
    for partition, joined in JOINED.items():
        journal.execute([Propose(FactKind.JOIN, plan.own_key(partition, plan.topic_ids[partition[0]]), *joined)])
    journal.execute([Propose(FactKind.JOIN, plan.own_key(("raw", 2), "id of raw"), 7, 1)])
    assert read_joins(plan, journal, FOUNDERS) == JOINED
    assert read_joins(plan, journal, [*FOUNDERS, *JOINED]) == {}
    other = plan.own_key(("raw", 2), "another id")
    assert journal.dump(other) == []


@pytest.mark.parametrize("batches", [0, 3])
def test_the_last_offset_is_that_of_the_last_batch_planned(tmp_path: Path, batches: int) -> None:
    """Done or not: what is logged holds."""
    folder = tmp_path / "spark" / "offsets"
    folder.mkdir(parents=True)
    for batch in range(batches):
        offset = IngestOffset(
            {("raw", 0): PlannedPosition(batch), ("raw", 1): PlannedPosition(0)}, joins={("raw", 1): PartitionJoin(1, 77)}
        )
        (folder / str(batch)).write_text("v1\n{}\n" + json.dumps(offset.to_json()))
    expected = (
        IngestOffset({("raw", 0): PlannedPosition(2), ("raw", 1): PlannedPosition(0)}, joins={("raw", 1): PartitionJoin(1, 77)})
        if batches
        else None
    )
    assert read_planned_offset(tmp_path) == expected
