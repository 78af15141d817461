"""Going on without a checkpoint: the position from which nothing that is not promised yet is missed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from support.ingest_plans import RAW, ingest_plan, input_settings
from support.journals import MemoryJournal, estimate, import_cti
from support.oracle import compute_story

from ingest.config import IngestPlan, Partition
from ingest.cti_imports import ImportedInput
from ingest.journal.redis_journal import RedisJournal
from ingest.journal.topic_fingerprint import TopicOrigin, check_fingerprint, check_not_begun_anew
from ingest.offsets import PlannedPosition
from ingest.start.read_positions import check_retention, find_start, first_position, largest_earliness_us
from ingest.start.resume import Resumption, first_missing_us
from ordering.errors import RefusedError
from ordering.model.step import Model
from ordering.policies import Policies
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.testing import Record, batch_of
from tidegate.platform.checkpoint.output_start import BEGINNING, Start
from tidegate.platform.kafka.admin import Topic

_ids = itertools.count()
ROSTER = Roster(1, 1, Spread.ALL, True)


def test_without_facts_of_the_journal_the_time_index_counts() -> None:
    """The first record that arrived no earlier than the early tolerance before the least c."""
    assert first_position(40, 1_000, 100, (), ()) == 40
    assert first_position(40, 1_000, 100, ((10, 899),), ((10, 999),)) == 40


def test_an_estimate_makes_records_arrive_later_than_stamped() -> None:
    """From an estimate on that reaches as far, events may have such times though their stamps are older."""
    assert first_position(40, 1_000, 100, ((10, 500), (20, 900), (30, 950)), ()) == 20


def test_an_import_may_have_moved_spans_up_to_it() -> None:
    """From an import on that is not below the least c, spans may start there."""
    assert first_position(40, 1_000, 100, ((30, 950),), ((15, 999), (25, 1_000))) == 25


def test_events_are_missing_from_the_least_cti_on_or_if_a_channel_has_none_from_the_start() -> None:
    """Whichever output partition it is."""
    early, late = (Cti(0, at, c, 1, 0, 0, c, c, ROSTER, Cause.EVENT) for at, c in enumerate((5_000, 7_000)))
    assert first_missing_us({0: early, 1: late}, range(2), 3_000) == 5_000
    assert first_missing_us({1: late}, range(2), 3_000) == 3_000
    assert first_missing_us({1: late}, range(2), None) is None


class TimeIndex:
    """What brokers say of the first record from a time on."""

    def __init__(self) -> None:
        self.asked_us = list[int]()

    def offsets_from(self, partitions: Iterable[Partition], time_us: int) -> dict[Partition, int]:
        """The same offset, whatever the time."""
        self.asked_us.append(time_us)
        return dict.fromkeys(partitions, 40)


@pytest.mark.parametrize(("settings", "back_us"), [({}, 7), ({"shape": "edge", "end": "e"}, 8)])
def test_reading_begins_where_the_time_index_leads_with_the_facts_in_force_there(settings: dict[str, str], back_us: int) -> None:
    """The start edge of an end edge at S may lie a tick before it, and is read too; what is in force at the position is of the start."""
    plan = replace(plan_of(ImportedInput("slow", "slow.ordered", 1)), settings=input_settings(early="7us", **settings))
    journal, brokers = MemoryJournal(), TimeIndex()
    for position, us in ((10, 100), (40, 600), (41, 900)):
        estimate(journal, plan.journal_key(RAW), position, us)
        import_cti(journal, plan.import_key(RAW), position, us + 1)
    found = find_start(plan, brokers, journal, RAW, 5_000)  # type: ignore[arg-type]
    assert (found, brokers.asked_us) == (PlannedPosition(40, 600, import_us=601), [5_000 - back_us])
    assert find_start(plan, brokers, journal, RAW, None) == PlannedPosition(0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "early_us"),
    [({"early": "7us"}, 7), ({"early": "off"}, None), ({"cti_delay": "-1us", "reorder": "0s"}, None), ({"source_ctis": "on"}, None)],
)
def test_how_far_ahead_of_its_arrival_an_event_can_be(settings: dict[str, str], early_us: int | None) -> None:
    """No bound where events raise each other, or a CTI of the source counts for all later ones."""
    assert largest_earliness_us(ingest_plan(settings=input_settings(**settings))) == early_us


def test_what_was_deleted_may_be_needed_if_the_first_record_that_is_left_is() -> None:
    """The time index finds a record that is there; only one above it shows that those below are not needed."""
    plan = plan_of()
    check_retention(plan, RAW, needed=21, available=20, first_read=0, least_us=5_000)
    check_retention(plan, RAW, needed=20, available=20, first_read=20, least_us=5_000)
    with pytest.raises(RefusedError) as refusal:
        check_retention(plan, RAW, needed=20, available=20, first_read=0, least_us=5_000)
    assert refusal.value.code == "TG-RETENTION"


def test_where_a_job_resumed_is_found_again(tmp_path: Path) -> None:
    """A job that is killed before its first batch ends starts from the same place with the same promises."""
    assert Resumption.read(tmp_path) is None
    promises = {
        0: {0: Cti(0, 0, 5_000, 7, 2, 9, 6_000, 5_500, ROSTER, Cause.IDLE)},
        2: {1: Cti(2, 1, 1, 0, 0, 0, 1, 1, ROSTER, Cause.EVENT)},
    }
    written = Resumption({("raw", 0): PlannedPosition(40, 700, import_us=800), ("raw", 2): PlannedPosition(0)}, promises)
    written.write(tmp_path)
    assert Resumption.read(tmp_path) == written


def plan_of(imported: ImportedInput | None = None) -> IngestPlan:
    """The plan of a job over one partition."""
    return ingest_plan(
        topic_ids={"raw": f"id{next(_ids)}"}, starts={RAW: PlannedPosition(17)}, estimates=frozenset({"raw"}), imported=imported
    )


def said_of(
    plan: IngestPlan, journal: RedisJournal, late: str, topic_id: str, start: Start = BEGINNING, *, has_events: bool, has_checkpoint: bool
) -> dict[Any, int]:
    """Start a job on an ordered topic; return the first offsets that it was made from."""
    return made_of(plan, journal, {"late": late}, topic_id, start, has_events=has_events, has_checkpoint=has_checkpoint).starts


def made_of(
    plan: IngestPlan, journal: RedisJournal, settings: dict[str, str], topic_id: str, start: Start = BEGINNING, **state: bool
) -> TopicOrigin:
    """Start a job on an ordered topic; return how it was made."""
    return check_fingerprint(plan, journal, Topic("raw.ordered", topic_id, 1, {}), settings, start, **state)


def test_a_topic_without_checkpoint_is_gone_on_with_under_its_own_settings_only(journal: RedisJournal) -> None:
    """The journal remembers them, and the first offsets; a topic that holds nothing may be begun under any."""
    plan = plan_of()
    assert said_of(plan, journal, "4s", "topic", has_events=False, has_checkpoint=False) == {("raw", 0): 17}
    assert said_of(plan, journal, "5s", "topic", has_events=False, has_checkpoint=False) == {("raw", 0): 17}
    later = replace(plan, starts={("raw", 0): PlannedPosition(30)})
    assert said_of(later, journal, "5s", "topic", has_events=True, has_checkpoint=False) == {("raw", 0): 17}
    with pytest.raises(RefusedError) as refusal:
        said_of(later, journal, "6s", "topic", has_events=True, has_checkpoint=False)
    assert refusal.value.code == "TG-TOPIC-SETTINGS"
    assert "late: 5s -> 6s" in refusal.value.what


def test_a_journal_that_does_not_know_the_topic_cannot_compare(journal: RedisJournal) -> None:
    """It says so, unless the checkpoint is there to compare with; the first offsets are then not known."""
    with capture_logs() as said:
        assert said_of(plan_of(), journal, "5s", "first", has_events=True, has_checkpoint=True) == {}
        assert not said
        assert said_of(plan_of(), journal, "5s", "second", has_events=True, has_checkpoint=False) == {}
    assert [each["event"] for each in said] == ["the journal does not know the ordered topic: its settings cannot be compared"]


def test_a_job_ends_if_another_one_began_its_empty_topic_otherwise(journal: RedisJournal) -> None:
    """Neither settings nor starts mix: the job that began first ends before it writes."""
    ordered = Topic("raw.ordered", "shared", 1, {})
    plan = plan_of()
    first = replace(
        plan,
        ordered_topic_id="shared",
        fingerprint=made_of(plan, journal, {"late": "4s"}, "shared", has_events=False, has_checkpoint=False).fingerprint,
    )

    def begin(late: str, at: PlannedPosition = plan.starts[RAW], start: Start = BEGINNING) -> None:
        made_of(replace(plan, starts={RAW: at}), journal, {"late": late}, "shared", start, has_events=False, has_checkpoint=False)
        check_not_begun_anew(first, journal.read_fingerprint(ordered.name, ordered.topic_id))

    begin("4s")
    check_not_begun_anew(first, None)
    with pytest.raises(RefusedError, match="late: 5s -> 4s") as settings:
        begin("5s")
    assert settings.value.code == "TG-TOPIC-SETTINGS"
    for other in ({"at": PlannedPosition(30)}, {"start": Start("2001-01-01T00:00:00Z", 978_307_200_000_000)}):
        with pytest.raises(RefusedError) as begun:
            begin("4s", **other)
        assert begun.value.code == "TG-START-BOUND"


TIMES = st.integers(0, 60).map(lambda tick: 10_000 + tick)
RECORDS = st.lists(st.tuples(TIMES, TIMES, st.sampled_from([b"a", b"b"])), min_size=1, max_size=25)


@given(RECORDS, st.data())
def test_resumed_at_that_position_the_channels_go_on_as_if_nothing_had_happened(
    rows: list[tuple[int, int, bytes]], data: st.DataObject
) -> None:
    """
    Law, level 1: wherever the first run ended, with estimates and imports in the journal, the resumed one
    writes the events that are still missing, with the numbers they would have had.
    """
    log = [Record(offset, arrival, time, key) for offset, (time, arrival, key) in enumerate(rows)]
    policies = Policies(
        early_us=data.draw(st.integers(0, 20)), late_us=data.draw(st.integers(0, 20)), reorder_us=data.draw(st.integers(0, 9))
    )
    positions = st.dictionaries(st.integers(0, len(log)), TIMES, max_size=3)
    estimates, imports = data.draw(positions), data.draw(positions)
    ended = data.draw(st.integers(0, len(log)))
    story = compute_story(log, policies, over=True, output_partitions=2, estimates=estimates, imports=imports, finish=True)

    model = Model(policies, True, 2, 0, ROSTER)
    first = model.step(
        model.new_state(),
        batch_of(log[:ended], over=True, end_offset=ended, estimates=within(estimates, 0, ended), imports=within(imports, 0, ended)),
    )
    promises = {cti.output_partition: cti for cti in first.ctis}
    position = 0
    least_us = first_missing_us(promises, range(2), None)
    if least_us is not None:
        assert policies.early_us is not None
        indexed = next((record.offset for record in log if record.arrival_us >= least_us - policies.early_us), len(log))
        position = first_position(indexed, least_us, policies.early_us, within(estimates, 0, ended), within(imports, 0, ended))
    rest = batch_of(
        log[position:],
        over=True,
        end_offset=len(log),
        estimates=from_start(estimates, position),
        imports=from_start(imports, position),
        finish=True,
    )
    second = model.step(model.resume(promises, next_offset=position), rest).released
    written = sorted(
        zip(second.output_partition.tolist(), second.seq.tolist(), second.system_us.tolist(), second.offset.tolist(), strict=True)
    )
    missing = [
        (event.output_partition, event.seq, event.system_us, event.offset)
        for event in story.ordered
        if event.output_partition not in promises or event.seq >= promises[event.output_partition].n
    ]
    assert written == sorted(missing)


def within(marks: dict[int, int], first: int, last: int) -> tuple[tuple[int, int], ...]:
    """The marks at positions from *first* to *last*."""
    return tuple(sorted((position, value) for position, value in marks.items() if first <= position <= last))


def from_start(marks: dict[int, int], start: int) -> tuple[tuple[int, int], ...]:
    """The marks from *start* on, and there the largest of those up to it."""
    before = [value for position, value in marks.items() if position <= start]
    return (*([(start, max(before))] if before else []), *within(marks, start + 1, 10**9))
