"""
Plans the verification of an ordered topic: from where on its events follow from the raw topics that are still there.

Law: only what can be computed whole is compared. Where retention has deleted records that later events may need, a note says from which
instant on the events are checked, or that the topic is taken as it stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ingest.journal.redis_journal import RedisJournal
from ingest.replay.plan import Replay, plan_replay
from ingest.verify.ordered import OrderedVerifier
from ingest.verify.stage import OrderedStage
from ordering.ticks import INFINITY, NEVER, format_tick
from tidegate.ordered_topic.compare.sides import Side, complete_from_us, make_side
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.kafka.records import ALL_HEADERS
from tidegate.platform.settings.load import Settings


def plan_stage(
    settings: Settings, name: str, admin: Admin, journal: RedisJournal, since_us: int | None, until_us: int | None
) -> OrderedStage:
    """Plan the verification of an input's ordered topic between two instants, microseconds; None: no limit."""
    replay = plan_replay(settings, name, admin, journal)
    stage = OrderedStage(name, replay.ordered.name, replay, since_us)
    stage.notes += _notes_of(replay)
    complete_us = replay.complete_from_us
    if complete_us is None:
        stage.notes.append(
            "records of the raw topic are gone, and any of them may count for later events: the ordered topic is taken as it stands"
        )
        return stage
    complete_us = max(complete_us, complete_from_us(admin, replay.plan.kafka, replay.ordered))
    if complete_us == INFINITY:
        stage.notes.append("retention has deleted so much of the ordered topic that nothing of it can be compared")
        return stage
    if complete_us > (NEVER if since_us is None else since_us):
        stage.since_us = since_us = complete_us
        stage.notes.append(f"records are gone: events before {format_tick(complete_us)} are taken as they stand")
    side = _side(admin, replay, since_us)
    starts = replay.positions(admin, journal, since_us)
    stage.verifier = OrderedVerifier(replay, side, starts, since_us, until_us)
    return stage


def _side(admin: Admin, replay: Replay, since_us: int | None) -> Side:
    # With `headers` ingest writes the raw record's headers and no others. Without it, headers that others add change no result.
    framed = ALL_HEADERS if replay.plan.settings.headers else ()
    side = make_side("A", admin, replay.plan.kafka, replay.ordered, since_us, framed)
    return replace(side, has_own_numbers=since_us is not None)


def _notes_of(replay: Replay) -> Iterator[str]:
    if not replay.is_known:
        yield "the journal does not know the topic: its settings are taken from the configuration, facts from its own CTIs"
    for partition, first in sorted(replay.gone.items()):
        yield f"{partition[0]}-{partition[1]} begins at offset {first:,}: retention has deleted earlier records"
    for skip in replay.plan.skips:
        if not skip.is_undone:
            yield f"skipped: {skip.describe()}"
