"""The journal in memory, which is the model of the others: facts only rise, closed stays closed, moments never fall, the first wins."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.journals import MemoryJournal, close, close_many, estimate, estimate_many, import_cti, import_many, read_many, settle_base
from support.repository import ROOT

from ordering.errors import ProtocolError
from ordering.protocol.facts import Fact, FactKind, FactMerger, decode_facts, encode_facts
from ordering.protocol.journal import Close, Forget, JournalKey, PlanningTime, Propose, Raise, Read, RecordSilence, Silence

KEY = JournalKey("flights.ordered", "id", 0)
calls = st.lists(st.tuples(st.sampled_from(["estimate", "import", "close"]), st.integers(0, 5), st.integers(0, 9)), max_size=30)


def merge_facts(facts: list[Fact]) -> list[Fact]:
    """Return the facts in force after *facts*."""
    merger = FactMerger()
    merger.add(facts)
    return merger.facts


def call(journal: MemoryJournal, name: str, position: int, value_us: int) -> int | None:
    """Do one drawn call; return its answer."""
    if name == "close":
        return close(journal, KEY, position)
    return estimate(journal, KEY, position, value_us) if name == "estimate" else import_cti(journal, KEY, position, value_us)


def facts(journal: MemoryJournal) -> dict[str, dict[int, int]]:
    """Return all that is in force, by the call that brings it."""
    return {"estimate": dict(journal.estimates(KEY, 0, 9)), "import": dict(journal.imports(KEY, 0, 9))}


@given(calls)
def test_facts_only_rise_and_never_change_once_closed(steps: list[tuple[str, int, int]]) -> None:
    """The law of the journal, whatever is called in whatever order; estimates and imports keep apart."""
    journal = MemoryJournal()
    for name, position, value_us in steps:
        before, closed = facts(journal), journal.first_open(KEY)
        answer = call(journal, name, position, value_us)
        after = facts(journal)
        assert journal.first_open(KEY) >= closed
        for kind, known in before.items():
            assert all(after[kind][at] == value if at < closed else after[kind][at] >= value for at, value in known.items())
            assert kind == name or after[kind] == known
        if name != "close":
            assert answer == (None if position < closed else max(value_us, before[name].get(position, 0)))
            assert (position in after[name]) == (position >= closed or position in before[name])


@given(calls, st.integers(0, 5), st.integers(0, 5))
def test_what_is_read_is_what_is_in_force_in_the_range(steps: list[tuple[str, int, int]], start: int, end: int) -> None:
    """Both ends belong to the range, positions rise."""
    journal = MemoryJournal()
    in_force: dict[str, dict[int, int]] = {"estimate": {}, "import": {}}
    for name, position, value_us in steps:
        if (value := call(journal, name, position, value_us)) is not None:
            in_force[name][position] = value
    within = {kind: sorted((at, value) for at, value in known.items() if start <= at <= end) for kind, known in in_force.items()}
    assert journal.estimates(KEY, start, end) == within["estimate"]
    assert journal.imports(KEY, start, end) == within["import"]


@pytest.mark.parametrize("kind", ["estimate", "import"])
def test_many_calls_at_once_are_as_many_calls(kind: str) -> None:
    """Each gets its own answer, a refused one among them; other partitions are untouched."""
    journal, other = MemoryJournal(), KEY._replace(partition=1)
    close_many(journal, [(KEY, 2), (other, 4)])
    asked = [(KEY, 1, 5), (KEY, 2, 5), (other, 4, 6), (KEY, 2, 3)]
    answers = estimate_many(journal, asked) if kind == "estimate" else import_many(journal, asked)
    assert answers == [None, 5, 6, 5]
    ranges = [(KEY, 0, 9), (other, 0, 3), (other, 0, 4)]
    found = read_many(journal, FactKind.ESTIMATE, ranges) if kind == "estimate" else read_many(journal, FactKind.IMPORT, ranges)
    assert found == [[(2, 5)], [], [(4, 6)]]


def test_the_first_base_wins() -> None:
    """Whoever comes later takes it; other partitions have their own."""
    journal = MemoryJournal()
    assert [settle_base(journal, KEY, 5), settle_base(journal, KEY, 3), settle_base(journal, KEY._replace(partition=1), 3)] == [5, 5, 3]


def stamped(journal: MemoryJournal, below: int, now_us: int, slack_us: int = 0, kind: FactKind = FactKind.STAMP) -> list[tuple[int, int]]:
    """Close positions at *now_us*; return all moments said so far."""
    return journal.execute([Close(KEY, below, PlanningTime(kind, now_us, slack_us)), Read(kind, KEY, 0, 99)])[1]


moments = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 9), st.integers(0, 3)), max_size=20)


@given(moments, st.sampled_from([FactKind.STAMP, FactKind.CLOCK]))
def test_every_closed_position_has_one_moment_for_good_and_moments_never_fall(calls: list[tuple[int, int, int]], kind: FactKind) -> None:
    """Whoever closes, in whatever order, with whatever clock: the first word counts, and time does not go back along the partition."""
    journal, said = MemoryJournal(), {}
    for below, now_us, slack_us in calls:
        spans = stamped(journal, below, now_us, slack_us, kind)
        assert [us for _, us in spans] == sorted(us for _, us in spans)
        in_force = {at: max((span for span in spans if span[0] <= at), default=(0, -1))[1] for at in range(journal.first_open(KEY))}
        assert -1 not in in_force.values()
        assert {at: us for at, us in in_force.items() if at in said} == said
        said = in_force


@given(moments, st.integers(0, 9), st.integers(0, 9))
def test_a_read_of_moments_begins_with_the_one_in_force(calls: list[tuple[int, int, int]], start: int, end: int) -> None:
    """A range that starts inside a span is told that span, at its own first offset."""
    journal = MemoryJournal()
    for below, now_us, slack_us in calls:
        everything = stamped(journal, below, now_us, slack_us)
        started = [span for span in everything if span[0] <= start]
        assert journal.stamps(KEY, start, max(start, end)) == started[-1:] + [s for s in everything if start < s[0] <= max(start, end)]


@given(moments, st.integers(0, 10))
def test_the_first_offset_stamped_from_a_time_on_is_found(calls: list[tuple[int, int, int]], from_us: int) -> None:
    """What nobody stamped yet comes after all that is stamped: so the search by halves finds what a walk would."""
    journal = MemoryJournal()
    for below, now_us, slack_us in calls:
        stamped(journal, below, now_us, slack_us)
    closed = journal.first_open(KEY)
    found = [offset for offset in range(closed) if journal.stamps(KEY, offset, offset)[-1][1] >= from_us]
    assert journal.first_stamped(KEY, from_us) == min(found, default=closed)


def test_a_stamp_is_never_below_an_estimate_that_was_used_before_it() -> None:
    """A clock that steps back between estimate and record does not make the estimate overtake the record."""
    journal = MemoryJournal()
    estimate(journal, KEY, 0, 1_000)
    assert stamped(journal, 5, 400) == [(0, 1_000)]
    assert stamped(journal, 7, 500) == [(0, 1_000)], "a moment as good as the last says nothing new"
    assert stamped(journal, 9, 1_500) == [(0, 1_000), (7, 1_500)]


def test_a_clock_reading_within_its_slack_holds_on_and_follows_no_estimate() -> None:
    """Only the wall clock tells what is absurd; a new reading is worth a fact once the clock has moved on enough."""
    journal = MemoryJournal()
    estimate(journal, KEY, 3, 9_000)
    assert stamped(journal, 3, 1_000, 100, FactKind.CLOCK) == [(0, 1_000)]
    assert stamped(journal, 6, 1_100, 100, FactKind.CLOCK) == [(0, 1_000)]
    assert stamped(journal, 8, 1_101, 100, FactKind.CLOCK) == [(0, 1_000), (6, 1_101)]


def test_of_two_silences_the_later_position_counts_then_the_earlier_word_of_one_boot() -> None:
    """Elapsed time goes on after a restart; of another boot's clock nothing can be counted on."""
    journal, first = MemoryJournal(), Silence(5, "boot", 100, 7)
    assert (
        journal.execute(
            [RecordSilence(KEY, first), RecordSilence(KEY, first._replace(since_us=200)), RecordSilence(KEY, Silence(4, "other", 1, 1))]
        )
        == [first] * 3
    )
    rebooted = Silence(5, "other", 3, 7)
    assert journal.execute([RecordSilence(KEY, rebooted), RecordSilence(KEY, Silence(6, "boot", 1, 8))]) == [
        rebooted,
        Silence(6, "boot", 1, 8),
    ]


def test_the_first_joining_counts() -> None:
    """Roster number and J of a partition are settled together, apart from its base."""
    journal = MemoryJournal()
    assert journal.execute([Propose(FactKind.JOIN, KEY, 2, 70), Propose(FactKind.JOIN, KEY, 3, 80)]) == [(2, 70), (2, 70)]
    assert settle_base(journal, KEY, 5) == 5


def test_what_no_log_can_need_is_forgotten_and_what_holds_there_stays() -> None:
    """Facts below the first offset go; the stamp in force at it remains."""
    journal = MemoryJournal()
    journal.execute([Raise(FactKind.ESTIMATE, KEY, at, 10 + at) for at in (2, 5)])
    stamped(journal, 4, 20), stamped(journal, 8, 30)
    assert journal.execute([Forget(KEY, 5)]) == [2]
    assert journal.dump(KEY) == [Fact(3, 4, 30), Fact(1, 5, 15), Fact(7, 8, 0)]
    assert journal.execute([Forget(KEY, 8), Forget(KEY, 8)]) == [1, 0]
    assert journal.stamps(KEY, 8, 9) == [(4, 30)]


@given(calls, moments, st.booleans())
def test_a_journal_is_made_again_from_its_facts(steps: list[tuple[str, int, int]], spans: list[tuple[int, int, int]], twice: bool) -> None:
    """What :meth:`restore` is given in an empty journal stands there as it stood; giving it back again changes nothing."""
    journal, rebuilt = MemoryJournal(), MemoryJournal()
    for name, position, value_us in steps:
        call(journal, name, position, value_us)
    for below, now_us, slack_us in spans:
        stamped(journal, below, now_us, slack_us)
    settle_base(journal, KEY, 4)
    facts = journal.dump(KEY)
    for _ in range(1 + twice):
        assert rebuilt.restore(KEY, facts) == 0
    assert rebuilt.dump(KEY) == facts == merge_facts(facts[::-1])


def test_what_contradicts_the_journal_is_counted_and_changes_nothing() -> None:
    """Another closed the positions in between: its facts stand, and what nobody said yet is filled in."""
    journal = MemoryJournal()
    estimate(journal, KEY, 2, 50)
    stamped(journal, 4, 100), stamped(journal, 6, 200)
    before = journal.dump(KEY)
    wrong = [Fact(1, 2, 60), Fact(3, 0, 90), Fact(3, 2, 99), Fact(3, 5, 150)]
    assert journal.restore(KEY, wrong) == 4
    assert journal.dump(KEY) == before
    assert journal.restore(KEY, [Fact(1, 1, 60), Fact(3, 2, 110)]) == 0
    assert (journal.estimates(KEY, 0, 2), journal.stamps(KEY, 0, 9)) == ([(1, 60), (2, 50)], [(0, 100), (2, 110), (4, 200)])


facts_drawn = st.lists(st.builds(Fact, st.integers(0, 9), *[st.integers(-(2**63), 2**63 - 1)] * 2), max_size=9)


@given(facts_drawn)
def test_facts_travel_unchanged(written: list[Fact]) -> None:
    """Kinds of later versions, and every 64-bit number, come out as they went in; torn bytes are refused."""
    octets = encode_facts(written)
    assert decode_facts(octets) == written
    assert octets == b"".join(struct.pack("<qqq", *fact) for fact in written)
    with pytest.raises(ProtocolError):
        decode_facts(octets + b"x", "t-0@1")


def test_the_example_of_the_protocol_page_is_what_is_written() -> None:
    """PROTOCOL.md shows the bytes of a header ``tf``."""
    page = (ROOT / "ordering" / "PROTOCOL.md").read_text("utf-8")
    example = bytes.fromhex(page.split("```hex facts\n")[1].split("```")[0])
    assert decode_facts(example) == [Fact(FactKind.CLOCK, 100, 978351420000000), Fact(FactKind.ESTIMATE, 107, 978351435000000)]


def test_of_facts_met_twice_one_is_left() -> None:
    """Estimates that rose leave the last; what was said once leaves the first; unknown kinds are left out."""
    met = [Fact(1, 5, 10), Fact(1, 5, 30), Fact(4, 0, 7), Fact(7, 3, 0), Fact(4, 0, 9), Fact(99, 1, 1), Fact(7, 2, 0)]
    assert merge_facts(met) == [Fact(4, 0, 7), Fact(7, 3, 0), Fact(1, 5, 30)]
    assert merge_facts([Fact(9, 5, 7), Fact(9, 5, 12), Fact(9, 5, 9)]) == [Fact(9, 5, 12)], "the longest skip from a place"
