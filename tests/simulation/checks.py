"""
What must hold at the end of every simulated run, held against the oracle (``support.oracle``), which heard each input
partition's log one record at a time and nothing of batches, crashes or bytes.
"""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from dataclasses import dataclass

from simulation.checkpoint import Checkpoint
from simulation.driver import model_of, roster_of
from simulation.reading import Following, cti_of
from simulation.scenario import START_US
from simulation.world import RawRecord, Row, World, journal_key
from support.law_breaches import demand
from support.oracle import compute_story
from support.story import OrderedEvent, Story

from ordering.protocol.wire import CTI_HEADER_BYTES
from ordering.testing import Record
from ordering.ticks import INFINITY, NEVER, TICK_MIN

_EVENT = struct.Struct("<BBHIqqqqq")
_FLAGS = {"early": 128, "late": 1, "out_of_order": 2, "cti_violation": 4, "lifted_end": 64}
_INTERVAL, _START, _END, _EARLY = 8, 16, 32, 128
Facts = dict[str, dict[int, dict[int, int]]]
"""``estimate`` or ``import`` -> input partition -> position -> time."""


@dataclass(slots=True)
class Truth:
    """What the oracle tells of one run: a story for each input partition, and the rows each channel must show."""

    stories: list[Story]
    channels: dict[tuple[int, int], list[OrderedEvent]]
    """(input partition, output partition) -> its events, numbered."""
    rows: dict[tuple[int, int], list[Row]]


def facts_of(checkpoints: list[Checkpoint]) -> Facts:
    """Return what batches applied, the largest at each position."""
    facts: Facts = {"estimate": defaultdict(dict), "import": defaultdict(dict)}
    for checkpoint in checkpoints:
        for kind, number, position, us in checkpoint.facts():
            known = facts[kind][number]
            known[position] = max(us, known.get(position, us))
    return facts


def add_used(facts: Facts, checkpoints: list[Checkpoint]) -> None:
    """Add what open batches have used, the largest at each position."""
    for checkpoint in checkpoints:
        for kind, number, position, us in checkpoint.used:
            known = facts[kind][number]
            known[position] = max(us, known.get(position, us))


def own_facts(checkpoint: Checkpoint, lost: list[Checkpoint]) -> Facts:
    """Return what a job has applied so far: of what lost checkpoints had applied only what it has come past again."""
    facts, before = facts_of([checkpoint]), facts_of(lost)
    add_used(before, lost)
    ends = [at.next_offset for at in checkpoint.offset_before(len(checkpoint.offsets)).partitions]
    for number in range(len(ends)):
        saved = checkpoint.state_before(len(checkpoint.offsets), number)
        for kind, of, position, us in () if saved is None else saved.facts:
            facts[kind][of][position] = max(us, facts[kind][of].get(position, us))
        ends[number] = max(ends[number], 0 if saved is None else saved.next_offset)
    for kind, numbers in before.items():
        for number, known in numbers.items():
            own = facts[kind][number]
            own.update({at: max(us, own.get(at, us)) for at, us in known.items() if at < ends[number]})
    return facts


def truth_of(world: World, facts: Facts, finished: bool) -> Truth:
    """Let the oracle tell what must have come out."""
    settings, stories = world.settings, []
    channels: dict[tuple[int, int], list[OrderedEvent]] = {}
    rows: dict[tuple[int, int], list[Row]] = {}
    for number, raw in enumerate(world.raw):
        payload = {record.offset: record for record in raw.records}
        skipped = world.skipped(number)
        story = compute_story(
            [_heard(record) for record in raw.records if record.offset not in skipped and not absurd(world, record)],
            settings.policies,
            over=settings.over,
            output_partitions=settings.output_partitions,
            roster=number,
            estimates=facts["estimate"].get(number),
            imports=facts["import"].get(number),
            delay_us=settings.generation.delay_us,
            joined_us=world.joined.get(number, NEVER),
            finish=finished,
        )
        stories.append(story)
        outputs = range(settings.output_partitions) if settings.over else [number % settings.output_partitions]
        for output in outputs:
            events = channels[number, output] = story.channel(output)
            rows[number, output] = [_row(event, payload[event.offset].key, payload[event.offset].value, settings.over) for event in events]
    return Truth(stories, channels, rows)


def _heard(record: RawRecord) -> Record:
    sent = record.message
    return Record(
        record.offset,
        record.stamp_us,
        sent.event_time_us,
        sent.key or b"",
        source_cti_us=sent.source_cti_us,
        end_us=None if sent.event_time_us is None else sent.end_us,
        start_us=None if sent.event_time_us is None else sent.start_us,
        raw_key=sent.key,
    )


def absurd(world: World, record: RawRecord) -> bool:
    """Whether a record has no arrival time, or one far beyond the run."""
    return record.stamp_us <= 0 or record.stamp_us > world.time.now_us + world.settings.arrival_max_ahead_us


def _row(event: OrderedEvent, key: bytes | None, value: bytes, over: bool) -> Row:
    flags = sum(_FLAGS[policy] for policy in event.policies)
    if event.end_us is not None:
        flags |= _INTERVAL
    if event.start_us is not None:
        flags |= _START if event.start_us == NEVER else _END
    version = 3 if flags & _EARLY else 2 if flags >> 2 else 1
    fields = (event.roster, event.seq, event.system_us, event.event_time_us, event.arrival_us, event.offset)
    return event.system_us // 1000, key or b"" if over else key, _EVENT.pack(version, 1, flags, *fields), value


def check_log(world: World, truth: Truth) -> None:
    """Every row of the log, zombies' and duplicates included, is what the oracle tells, and every CTI in it is true."""
    for output, log in enumerate(world.topic):
        met: defaultdict[int, set[int]] = defaultdict(set)
        for place, row in enumerate(log):
            where = f"ordered partition {output} at {place}"
            if len(row[2]) == CTI_HEADER_BYTES:
                _check_cti(world, truth, output, row, met, where)
                continue
            _, kind, _, number, seq, *_ = _EVENT.unpack(row[2])
            expected = truth.rows.get((number, output), [])
            demand(kind == 1 and 0 <= seq < len(expected), "nothing is made up", f"{where}: channel {number} has no event {seq}")
            demand(row == expected[seq], "same bytes", f"{where}: channel {number} event {seq} is {row}, not {expected[seq]}")
            met[number].add(seq)


def _check_cti(world: World, truth: Truth, output: int, row: Row, met: dict[int, set[int]], where: str) -> None:
    cti = cti_of(row, output)
    where = f"{where}: CTI of channel {cti.number} with c = {cti.c}, n = {cti.n}"
    events = truth.channels[cti.number, output]
    below = events[: cti.n]
    demand(all(event.system_us >= cti.c for event in events[cti.n :]), "CTI promises", f"{where} is belied by a later event")
    world.happened["list of substreams"] += bool(cti.listed)
    world.happened["CTI in parts"] += cti.part > 0
    for key, w in cti.listed:
        later = [event.system_us for event in events[cti.n :] if event.key == key]
        demand(min(later, default=w) >= w, "CTI promises", f"{where} lists {key!r} at {w}, belied by a later event")
    demand(set(range(cti.n)) <= met[cti.number], "CTIs wait", f"{where} stands before an event it counts")
    demand(cti.ahead == sum(event.system_us >= cti.c for event in below), "CTI fields", f"{where} says ahead = {cti.ahead}")
    largest_us = max((event.system_us for event in below), default=TICK_MIN)
    demand(cti.largest_us == largest_us, "CTI fields", f"{where} says largest = {cti.largest_us}, not {largest_us}")
    demand(row[:2] == (max(largest_us // 1000, 1), None), "CTI fields", f"{where} has stamp and key {row[:2]}")
    rosters = [roster_of(world, joined) for joined in range(len(world.joined) + 1)]
    demand(cti.roster in rosters, "CTI fields", f"{where} has roster {cti.roster}")
    moments = [moment for moment in truth.stories[cti.number].snapshots if moment.next_offset == cti.next_offset]
    if cti.c < INFINITY and moments:
        frontier_us, c = max(moment.frontier_us for moment in moments), max(moment.c for moment in moments)
        demand(cti.arrival_us <= frontier_us, "CTI fields", f"{where} says A = {cti.arrival_us}, beyond {frontier_us}")
        demand(cti.c <= c, "CTI promises", f"{where} is beyond what holds there, {c}")


def check_readers(world: World, truth: Truth, own: Truth, readers: list[Following]) -> None:
    """
    Every reader has accepted each event of its channels once, in order, byte for byte, and was never told too much.

    *own* is the truth of what the job itself has applied; *truth* also knows what old drivers have, which may let more out.
    """
    for reader in readers:
        demand(not reader.broken_promise, "no event below the frontier", reader.broken_promise)
        demand(
            not reader.rule.blocked_channels(),
            "every gap closes",
            f"ordered partition {reader.partition}: {reader.rule.blocked_channels()}",
        )
        accepted: defaultdict[int, list[Row]] = defaultdict(list)
        for row in reader.accepted:
            accepted[_EVENT.unpack(row[2])[3]].append(row)
        for number, output in truth.rows:
            if output == reader.partition:
                where = f"channel {number} of ordered partition {output} from {reader.start_us}"
                # In the middle an event counts once a CTI vouches for it; those that follow events may still be to come.
                below = _vouched(world, number, output) if reader.start_us is not None else None
                least = _from(own, number, output, reader.start_us, below)
                most = _from(truth, number, output, reader.start_us)
                _check_accepted(accepted[number], len(least), most, where)


def _from(truth: Truth, number: int, output: int, start_us: int | None, below: int | None = None) -> list[Row]:
    rows = zip(truth.channels[number, output][:below], truth.rows[number, output][:below], strict=True)
    return [row for event, row in rows if start_us is None or event.system_us >= start_us]


def _vouched(world: World, number: int, output: int) -> int:
    """Return the largest n that a CTI of a channel has told."""
    ctis = [cti_of(row, output) for row in world.topic[output] if len(row[2]) == CTI_HEADER_BYTES]
    return max((cti.n for cti in ctis if cti.number == number), default=0)


def _check_accepted(got: list[Row], least: int, most: list[Row], where: str) -> None:
    demand(least <= len(got) <= len(most), "no loss, no duplicate", f"{where}: {len(got)} events accepted, {least} to {len(most)} told")
    for seq, (one, other) in enumerate(zip(got, most, strict=False)):
        demand(one == other, "same bytes", f"{where} at {seq}: {one}, not {other}")


def check_order(world: World, truth: Truth) -> None:
    """In a channel s never falls; with OVER it never falls within a substream."""
    for (number, output), events in truth.channels.items():
        newest: dict[bytes, int] = {}
        for event in events:
            name = event.key if world.settings.over else b""
            demand(event.system_us >= newest.get(name, NEVER), "order", f"channel {number} of {output}: {event}")
            newest[name] = event.system_us


def check_accounts(world: World, truth: Truth, checkpoint: Checkpoint) -> None:
    """Every record is accounted for once: out, held, dropped by a policy, a CTI, unreadable, or with an arrival beyond belief."""
    for number, (story, raw) in enumerate(zip(truth.stories, world.raw, strict=True)):
        skipped = world.skipped(number)
        read = [record for record in raw.records if record.offset not in skipped]
        insane = {record.offset for record in read if absurd(world, record)}
        unreadable = {record.offset for record in read if record.event_time_us is None and record.header is None} - insane
        # An attempt that died may have sent the dead letter of a record that was skipped later.
        heard = {offset for of, offset, _ in world.dead_letters if of == number} - skipped
        demand(heard == insane | unreadable, "dead letters", f"raw {number}: {heard ^ (insane | unreadable)}")
        outcomes = Counter([*(event.offset for event in story.ordered), *story.held, *(drop.offset for drop in story.dropped)])
        outcomes.update(unreadable | insane)
        ctis = {record.offset for record in read if record.header is not None}
        outcomes.update(ctis - outcomes.keys())
        once = Counter(record.offset for record in read)
        demand(outcomes == once, "accounts", f"raw {number}: {outcomes - once} told twice, {once - outcomes} not at all")
        saved = checkpoint.state_before(len(checkpoint.offsets), number)
        if saved is None:
            at_end = checkpoint.promises is not None and checkpoint.start.partitions[number].next_offset >= raw.end
            demand(at_end or not raw.records, "accounts", f"raw {number} was never judged")
            continue
        state = model_of(world, number, checkpoint.offsets[-1]).restore(saved.head, dict(saved.chunks))
        demand(len(state.held) == len(story.held), "accounts", f"raw {number}: {len(state.held)} held, {len(story.held)} told")
        if checkpoint.promises is not None:
            continue  # it has counted from where it resumed
        told = Counter(story.counts) + Counter(events_in=len(read) - len(insane), released=len(story.ordered))
        demand(+Counter(state.totals) == +told, "accounts", f"raw {number}: counted {state.totals}, told {dict(told)}")


def check_facts(world: World, truth: Truth, facts: Facts, checkpoints: list[Checkpoint]) -> None:
    """What was applied at a closed position is what the journal says; and where clocks run alike no estimate exceeds an arrival."""
    if world.scenario.honest:
        clamps = [story.counts["arrival_clamps"] for story in truth.stories]
        demand(not any(clamps), "honest clocks never exceed an arrival", f"{clamps} arrivals clamped")
    stamps = [record.stamp_us for raw in world.raw for record in raw.records if not absurd(world, record)]
    limit_us = max([world.time.now_us, *stamps]) + 2 * (world.time.now_us - START_US)
    beyond = [us for known in facts["estimate"].values() for us in known.values() if us > limit_us]
    demand(not beyond, "no estimate from the far future", f"{beyond} lie beyond {limit_us}")
    for number in range(len(world.raw)):
        journal, key = world.journal.facts, journal_key(number)
        closed = journal.first_open(key)
        if not any(fault.kind.startswith("journal") for fault in world.scenario.faults):
            closed = checkpoints[-1].offset_before(checkpoints[-1].committed).partitions[number].next_offset
        for kind, judged in (("estimate", journal.estimates(key, 0, closed - 1)), ("import", journal.imports(key, 0, closed - 1))):
            applied = {position: us for position, us in facts[kind].get(number, {}).items() if position < closed}
            # Where a job resumed it applied the largest of all that came before, too.
            starts = {at.start.partitions[number].next_offset for at in checkpoints if at.promises is not None}
            judged = [(at, max(us, applied.get(at, us)) if at in starts else us) for at, us in judged]
            applied = {at: us for at, us in applied.items() if at not in starts or at in dict(judged)}
            text = f"raw {number} below {closed}: {kind}s applied {applied}, journaled {dict(judged)}"
            demand(dict(judged) == applied, "facts are the journal's", text)
