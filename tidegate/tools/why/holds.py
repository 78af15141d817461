"""
What holds the next results of an output.

A result at T is published when its query has read a promise above T of every channel. So it is held by whatever keeps one of the promises
at or below T: all of that is named, the furthest behind first. Law: if all that is named goes away, and nothing else changes, the result
comes; if one of it stays, it does not. What an ingest job that does not run would wait for is not known before it runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ordering.ticks import MILLISECOND_US, NEVER, SECOND_US, format_duration, format_tick
from tidegate.tools.why.facts import InputFacts, OutputFacts, PartitionFacts, StageFacts

# A partition from which nothing has come for so long counts as silent, and as slow if records wait to be read, microseconds.
SILENT_US = 2 * SECOND_US


class HoldCause(StrEnum):
    """What holds a result."""

    STOPPED = "stopped"  # a stage does not run
    WAITING = "waiting"  # a stage waits for Kafka, a store or a worker
    BEHIND = "behind"  # a query has not read what is there
    NEVER_SPOKE = "never_spoke"  # a partition has never had a record
    SLOW = "slow"  # records of a partition wait to be read
    AHEAD = "ahead"  # the result's time lies in the future: an event is dated ahead
    SILENT = "silent"  # a partition has nothing more
    REORDER = "reorder"  # a later event is there, and the reorder tolerance is not over
    LATE = "late"  # no later event is there, and the late tolerance is not over
    SUBSTREAM = "substream"  # the substream has no later event, and the late tolerance is not over


@dataclass(frozen=True, slots=True)
class Hold:
    """One thing that holds a result."""

    cause: HoldCause
    # The stage that does not go on, or whose promise is too low.
    stage: str
    due_us: int
    # The input partition, as ``topic-partition``; empty if the whole stage holds.
    place: str = ""
    substream: str | None = None
    # The system timestamp of the newest event there; None: none counts.
    event_us: int | None = None
    # The setting that decides how long; empty if none does.
    policy: str = ""
    # Since when, microseconds; None: not known.
    since_us: int | None = None
    # Until when at the latest, if the partition's brokers and jobs go on; None: until something is done.
    until_us: int | None = None
    lag: int = 0
    # What releases the result.
    remedy: str = ""

    def to_json(self) -> dict[str, Any]:
        times = {"due": self.due_us, "event": self.event_us, "since": self.since_us, "until": self.until_us}
        members = {"cause": self.cause.value, "stage": self.stage, "place": self.place, "substream": self.substream, "policy": self.policy}
        written = {name: None if time_us is None else format_tick(time_us) for name, time_us in times.items()}
        return members | written | {"lag": self.lag, "remedy": self.remedy, "in_words": self.in_words}

    @property
    def in_words(self) -> str:
        """The hold as one line."""
        since = "" if self.since_us is None else f", since {format_tick(_whole(self.since_us))}"
        until = "" if self.until_us is None else f", until {format_tick(_whole(self.until_us))} at the latest"
        return f"{self._what()}{since}{until}: {self.remedy}"

    def _what(self) -> str:
        newest = "" if self.event_us is None else f"; its newest event is at {format_tick(self.event_us)}"
        match self.cause:
            case HoldCause.STOPPED:
                return f"{self.stage} does not run"
            case HoldCause.WAITING:
                return f"{self.stage} waits for {self.policy or 'what does not answer'}"
            case HoldCause.BEHIND:
                return f"{self.stage} has not read {self.lag:,} records that are there"
            case HoldCause.NEVER_SPOKE:
                return f"{self.place} has never had a record"
            case HoldCause.SLOW:
                return f"{self.lag:,} records of {self.place} wait to be read"
            case HoldCause.AHEAD:
                return f"the result's time lies ahead of the clock, and {self.place} is not there yet"
            case HoldCause.SILENT:
                return f"nothing comes from {self.place}{newest}"
            case HoldCause.REORDER:
                return f"{self.policy} holds events of {self._who()}{newest}"
            case HoldCause.SUBSTREAM:
                return f"substream {self.substream} of {self.place} has no later event{newest}"
            case HoldCause.LATE:
                return f"{self.policy} holds {self._who()}{newest}"

    def _who(self) -> str:
        return self.place if self.substream is None else f"substream {self.substream} of {self.place}"


def _whole(us: int) -> int:
    return us // MILLISECOND_US * MILLISECOND_US


def find_holds(facts: OutputFacts, now_us: int, due_us: int | None = None) -> tuple[Hold, ...]:
    """Return what holds the results of *due_us* (default: the next ones), the furthest behind first; nothing if they are published."""
    due_us = facts.due_us if due_us is None else due_us
    if facts.complete_us > due_us:
        return ()
    stopped = _stage_hold(facts.stage, due_us)
    holds = [hold for source in facts.sources for hold in _source_holds(source, facts.key, now_us, due_us)]
    if stopped is not None:
        return (stopped, *holds)
    if holds:
        return tuple(holds)
    if facts.key is not None and not facts.lag:
        # What a query has published of one substream it does not tell: it has read all that is there, and nothing holds that substream.
        return ()
    remedy = "wait until it is read; tidegate status shows how fast, and more cores read faster"
    return (Hold(HoldCause.BEHIND, facts.stage.name, due_us, lag=facts.lag, remedy=remedy),)


def _stage_hold(stage: StageFacts, due_us: int) -> Hold | None:
    if not stage.works and stage.state != "waiting":
        remedy = "tidegate status says why it failed; start it again" if stage.state in ("failed", "gone") else stage.starts or "start it"
        return Hold(HoldCause.STOPPED, stage.name, due_us, since_us=stage.heard_us, remedy=remedy)
    if stage.state == "waiting" or stage.waits_for:
        remedy = "it goes on by itself as soon as that answers"
        return Hold(HoldCause.WAITING, stage.name, due_us, policy=stage.waits_for, since_us=stage.heard_us, remedy=remedy)
    return None


def _source_holds(source: InputFacts | OutputFacts, key: str | None, now_us: int, due_us: int) -> Iterator[Hold]:
    if isinstance(source, OutputFacts):
        yield from find_holds(source, now_us, due_us)
        return
    waiting = [each for each in source.partitions if not _is_past(each, source, due_us)]
    if waiting or not source.partitions:
        if (stopped := _stage_hold(source.stage, due_us)) is not None:
            yield stopped
            return
        if not source.partitions:
            yield Hold(HoldCause.NEVER_SPOKE, source.stage.name, due_us, place=source.name, remedy="produce records to it")
    for each in sorted(waiting, key=lambda partition: partition.complete_us):
        yield _partition_hold(each, source, now_us, due_us)


def _is_past(partition: PartitionFacts, source: InputFacts, due_us: int) -> bool:
    """Return whether a partition's promise, or that of the substream that is asked for, lies above the result's time."""
    substream_us = NEVER if partition.substream is None else partition.substream.watermark_us
    return max(partition.complete_us, substream_us) > due_us


def _partition_hold(partition: PartitionFacts, source: InputFacts, now_us: int, due_us: int) -> Hold:
    name, place, key = source.stage.name, partition.place, None if partition.substream is None else partition.substream.key
    late_us, reorder_us = source.late_us, source.reorder_us
    # Silence, or any record, raises the floor above the result's time then, if silence may.
    by_floor_us = None if late_us is None else due_us + late_us + 1
    still = source.stands_still
    if partition.arrival_us == NEVER and not partition.lag:
        remedy = (
            f"produce to it, since silence moves no time here: {still}" if still else "it counts as silent as soon as the others move on"
        )
        return Hold(HoldCause.NEVER_SPOKE, name, due_us, place, until_us=None if still else by_floor_us, policy="late", remedy=remedy)
    # Where records come all the time, some are always on their way: they hold nothing unless they wait.
    if partition.lag and (partition.arrival_us == NEVER or now_us - partition.arrival_us > SILENT_US):
        remedy = "they are being read; tidegate status shows how fast"
        return Hold(HoldCause.SLOW, name, due_us, place, since_us=_known(partition.arrival_us), lag=partition.lag, remedy=remedy)
    largest_us = partition.largest_us if partition.substream is None else partition.substream.largest_us
    newest_us = _known(largest_us)
    if due_us > now_us:
        remedy = "the clock has to get there, or other events; tidegate explain shows which event was dated ahead"
        return Hold(HoldCause.AHEAD, name, due_us, place, key, newest_us, "early", until_us=None if still else by_floor_us, remedy=remedy)
    is_silent = not partition.lag and (partition.is_estimated or now_us - partition.arrival_us > SILENT_US)
    if is_silent:
        until_us = None if still else by_floor_us
        remedy = f"produce to it, since silence moves no time here: {still}" if still else "its next event, or the late tolerance, ends it"
        return Hold(HoldCause.SILENT, name, due_us, place, key, newest_us, "late", partition.arrival_us, until_us, remedy=remedy)
    if newest_us is not None and newest_us > due_us and (partition.substream is not None or not source.has_substreams):
        policy = f"reorder = {format_duration(reorder_us)}"
        remedy = f"an event at {format_tick(due_us + reorder_us + 1)} or later, or arrivals until the late tolerance, end it"
        return Hold(HoldCause.REORDER, name, due_us, place, key, newest_us, policy, partition.arrival_us, by_floor_us, remedy=remedy)
    policy = "late = off" if late_us is None else f"late = {format_duration(late_us)}"
    cause = HoldCause.SUBSTREAM if partition.substream is not None else HoldCause.LATE
    if source.has_substreams and partition.substream is None:
        remedy = "all substreams are as far only when arrivals are beyond the late tolerance; a smaller late is faster"
    else:
        remedy = "its next event, or arrivals until the late tolerance, end it"
    return Hold(cause, name, due_us, place, key, newest_us, policy, partition.arrival_us, by_floor_us, remedy=remedy)


def _known(us: int) -> int | None:
    return us if us > NEVER else None
