"""The journal made again from what CTIs tell: nothing is lost, nothing made up, and what cannot be told is refused."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.ingest_plans import ingest_plan, input_settings
from support.journals import MemoryJournal

from ingest.config import IngestPlan
from ingest.cti_imports import ImportedInput
from ingest.journal.known_facts import FACTS_MAX, FactMemory
from ingest.journal.rebuild import TopicFacts, check_complete, has_lost, restore_facts, restore_notes, roster_members
from ingest.journal.stage_notes import StageNote, StageNotes
from ingest.offsets import PlannedPosition
from ordering.errors import RefusedError
from ordering.protocol.facts import ORIGIN, Fact, FactKind, encode_facts, text_digest
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread

RAW = ("raw", 0)
_ids = itertools.count()


def plan_of(imported: bool = False, **settings: Any) -> IngestPlan:
    """The plan of a job over one partition."""
    return ingest_plan(
        settings=input_settings(**settings),
        topic_ids={"raw": f"id{next(_ids)}"},
        imported=ImportedInput("fast", "fast.ordered", 1) if imported else None,
    )


def cti(next_offset: int, partition: int = 0, arrival_us: int = 5_000) -> Cti:
    """A CTI made when everything below *next_offset* was judged."""
    return Cti(0, partition, next_offset, 0, 0, next_offset, arrival_us, 1_000, Roster(1, 1, Spread.ONE, False), Cause.EVENT)


def told(*ctis: tuple[Cti, list[Fact] | None], beginning_gone: bool = False) -> TopicFacts:
    """What CTIs with facts tell."""
    found = TopicFacts()
    for each, facts in ctis:
        found.accept_cti(each, None if facts is None else encode_facts(facts), beginning_gone, "t-0@0")
    return found


def test_a_journal_is_given_what_the_topic_tells_and_a_second_time_nothing() -> None:
    """Each kind under its own key; a dry run says the same and does nothing."""
    plan, journal = plan_of(imported=True), MemoryJournal()
    facts = [Fact(FactKind.CLOCK, 0, 900), Fact(FactKind.ESTIMATE, 4, 700), Fact(FactKind.IMPORT, 4, 600), Fact(FactKind.JOIN, 0, 500)]
    found = {0: told((cti(4), facts[:1]), (cti(4), facts[1:]), (cti(9), []))}
    would = restore_facts(plan, journal, found, dry_run=True)
    assert journal.dump(plan.journal_key(RAW)) == []
    done = restore_facts(plan, journal, found)
    assert done.missing == would.missing == {RAW: Counter(clock=1, estimate=1, **{"import": 1}, join=1, closed=2)}
    assert (done.contradicted, would.contradicted) == ({RAW: 0}, {RAW: 0})
    assert journal.dump(plan.journal_key(RAW)) == [facts[0], facts[1], Fact(FactKind.CLOSED, 9, 0)]
    assert journal.dump(plan.import_key(RAW)) == [facts[2], Fact(FactKind.CLOSED, 9, 0)]
    assert journal.dump(plan.own_key(RAW, plan.topic_ids["raw"])) == [facts[3]]
    assert restore_facts(plan, journal, found).missing == {RAW: Counter()}
    assert has_lost(plan, journal, {RAW: 10})
    assert not has_lost(plan, journal, {RAW: 9})


def test_what_another_journaled_in_the_meantime_stays_and_is_counted() -> None:
    """Dry run and rebuild agree about that too."""
    plan, journal = plan_of(arrival="ingest"), MemoryJournal()
    journal.restore(plan.journal_key(RAW), [Fact(FactKind.STAMP, 0, 2_000), Fact(FactKind.CLOSED, 3, 0)])
    found = {0: told((cti(9), [Fact(FactKind.STAMP, 0, 1_000), Fact(FactKind.STAMP, 5, 3_000)]))}
    would, done = restore_facts(plan, journal, found, dry_run=True), restore_facts(plan, journal, found)
    assert would.contradicted == done.contradicted == {RAW: 1}
    assert journal.stamps(plan.journal_key(RAW), 0, 9) == [(0, 2_000), (5, 3_000)]


def test_what_the_stage_has_noted_is_given_back_up_to_where_anyone_has_come(tmp_path: Path) -> None:
    """What went on after a batch had come further than the next batch, in another process; notes of other topics are left alone."""
    plan, journal = replace(plan_of(), checkpoint=str(tmp_path)), MemoryJournal()
    first, estimate = PlannedPosition(9, marks=((7, 700),), spans=((4, 900),)), PlannedPosition(5, frontier_us=800)
    StageNotes(tmp_path, 1, 0).add([StageNote(RAW, 4, first)])
    StageNotes(tmp_path, 2, 0).add([StageNote(RAW, 5, estimate), StageNote(("gone", 0), 0, PlannedPosition(3))])
    restore_notes(plan, journal)
    facts = [Fact(FactKind.ESTIMATE, 5, 800), Fact(FactKind.ESTIMATE, 7, 700), Fact(FactKind.CLOSED, 9, 0), Fact(FactKind.CLOCK, 4, 900)]
    assert set(journal.dump(plan.journal_key(RAW))) == set(facts)


def test_the_larger_of_two_estimates_at_the_first_open_position_is_given_back() -> None:
    """An older copy of the journal has the smaller one; no record was judged by it yet."""
    plan, journal = plan_of(), MemoryJournal()
    journal.restore(plan.journal_key(RAW), [Fact(FactKind.ESTIMATE, 9, 100), Fact(FactKind.CLOSED, 9, 0)])
    restore_facts(plan, journal, {0: told((cti(9), [Fact(FactKind.ESTIMATE, 9, 200)]))})
    assert journal.estimates(plan.journal_key(RAW), 0, 9) == [(9, 200)]


def test_where_ctis_are_gone_the_facts_are_whole_from_the_first_one_left_on() -> None:
    """Of several channels the one that begins last counts."""
    gone = told((cti(9), []), (cti(7, partition=1), []), (cti(12), []), beginning_gone=True)
    assert gone.complete_from == 9
    assert told((cti(9), [])).complete_from == 0
    check_complete(plan_of(), {0: gone}, {RAW: 9})
    with pytest.raises(RefusedError) as refusal:
        check_complete(plan_of(), {0: gone}, {RAW: 8})
    assert refusal.value.code == "TG-JOURNAL-LOST"
    assert "retention" in refusal.value.what


def test_only_the_last_part_of_a_cti_carries_facts() -> None:
    """The parts before it close positions and no more."""
    part = told((replace(cti(4), part=0, parts=2), None))
    assert part.merged.facts == [Fact(FactKind.CLOSED, 4, 0)]


def test_whose_channel_it_is_is_told_by_the_topic_alone() -> None:
    """Founders and those that joined stand in the order of their numbers; who is there but never wrote is left out."""
    names = [("a", 0), ("b", 0), ("a", 1), ("0new", 0)]
    found = {number: told((cti(1), [Fact(ORIGIN, partition, text_digest(topic))])) for number, (topic, partition) in enumerate(names)}
    there = sorted([*names, ("0newer", 0)])
    assert roster_members(there, found) == tuple(names)
    unmarked = {number: told((cti(1), None)) for number in range(3)}
    assert roster_members([("b", 0), ("a", 1), ("a", 0), ("c", 0)], unmarked) == (("a", 0), ("a", 1), ("b", 0))
    assert roster_members(there, {}) == ()


def test_a_planner_remembers_the_newest_facts_and_forgets_what_nobody_can_need() -> None:
    """Beyond its bound the oldest go, and it knows that they did; of moments the one in force stays."""
    memory = FactMemory(FactKind.STAMP)
    memory.remember(FactKind.ESTIMATE, [(at, at) for at in range(FACTS_MAX + 2)])
    assert memory.is_incomplete
    assert memory.between(FactKind.ESTIMATE, 0, 4) == ((2, 2), (3, 3))
    memory.remember(FactKind.ESTIMATE, [(3, 9), (3, 5)])
    assert memory.between(FactKind.ESTIMATE, 3, 4) == ((3, 9),)
    memory.remember(FactKind.STAMP, [(0, 10), (4, 20), (8, 30)])
    memory.remember(FactKind.BASE, [(0, 7)])
    memory.forget_below(5)
    assert memory.between(FactKind.ESTIMATE, 0, 6) == ((5, 5),)
    assert memory.between(FactKind.STAMP, 6, 8) == ((4, 20),)
    assert memory.last(FactKind.STAMP) == (8, 30)
    assert Fact(FactKind.BASE, 0, 7) in memory.facts(imports=False)
    assert memory.facts(imports=True) == []
