"""
Skips in the simulated job: an operator asks that offsets are not read; a start of the job puts that in force, by the rules of
``ingest/start/skips.py``; tasks compare what they write with what earlier attempts have left.

Law: a skip that has taken effect holds for every replay; nothing that readers may have seen of its records is ever belied.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
from simulation.checkpoint import Checkpoint
from simulation.resuming import promises_of
from simulation.world import World, join_key, journal_key
from support.law_breaches import demand

from ingest.planned_range import IngestRange
from ingest.skips import Skip, Spans
from ingest.stage.earlier_attempt import EarlierAttempt
from ordering.errors import RefusedError
from ordering.protocol.facts import FactKind
from ordering.protocol.journal import Raise
from ordering.protocol.wire import EVENT_HEADER_BYTES, decode_event_headers


@dataclass(frozen=True, slots=True)
class SkipPlan:
    """What one life of the job skips, and which offsets of which partition it compares: (first, first not compared)."""

    skips: tuple[Skip, ...] = ()
    compared: dict[int, tuple[int, int]] = field(default_factory=dict)

    def spans(self, number: int) -> Spans:
        """Return the spans of an input partition, those undone too."""
        return tuple(skip.span for skip in self.skips if skip.partition == number)


class Operator:
    """The user who skips offsets and undoes that, as ``tidegate skip`` lets them; *notes* are what the journal keeps of it."""

    def __init__(self, world: World, broken: frozenset[str]) -> None:
        self._world, self._broken = world, broken

    def ask(self, checkpoint: Checkpoint) -> None:
        """Ask that some offsets near those judged last are not read."""
        world, number = self._world, self._world.chance.randrange(len(self._world.raw))
        passed, end = passed_positions(world, checkpoint)[number], world.raw[number].end
        start = passed + world.chance.choice([0, 0, 1, 2, 5, 15])
        if "judged offsets are skipped" in self._broken:
            start = max(passed - 3, 0)
        until = min(start + world.chance.choice([1, 1, 2, 6]), end)
        skip = Skip("raw", number, start, until)
        if start < until and skip.place not in _facts_of(world):
            world.happened["skip asked for"] += 1
            world.tell(f"the operator asks to skip {skip.place} until {until}")
            world.notes[skip.place] = skip
            world.skip_changes.append(skip)

    def undo(self, checkpoint: Checkpoint) -> None:
        """Undo some skip that has not been passed."""
        passed = passed_positions(self._world, checkpoint)
        known = [skip for skip in _facts_of(self._world).values() if skip.start >= passed[skip.partition]]
        if known:
            self._world.happened["skip withdrawn"] += 1
            chosen = self._world.chance.choice(known)
            self._world.skip_changes.append(replace(chosen, is_undone=True))
            self._withdraw(chosen)

    def revert(self, refusal: RefusedError) -> None:
        """Take back the last change to a skip that a job's refusal (TG-SKIP-PASSED) names."""
        world = self._world
        named = [skip for skip in world.skip_changes if f"{skip.place} (" in refusal.what]
        # A journal that was emptied no longer knows what was undone, but the operator does.
        changed = (named or world.skip_changes or [None])[-1]
        demand(changed is not None, "a refusal has a way out", refusal.what)
        world.skip_changes.remove(changed)
        if changed.is_undone:
            world.happened["skip asked for again"] += 1
            world.tell(f"the operator asks again to skip {changed.place}")
            world.notes[changed.place] = replace(changed, is_undone=False)
        else:
            world.happened["skip refused by what was written"] += 1
            self._withdraw(changed)

    def _withdraw(self, skip: Skip) -> None:
        world = self._world
        world.tell(f"the operator undoes the skip of {skip.place}")
        world.notes[skip.place] = replace(skip, is_undone=True)
        world.journal.facts.withdraw(join_key(skip.partition), skip.fact)
        world.skips.pop(skip.place, None)


def apply_skips(world: World, checkpoint: Checkpoint, broken: frozenset[str]) -> Generator[str, None, SkipPlan]:
    """Put in force what was asked for in time, first in the journal, then in the folder; return the plan of this life."""
    if not (world.notes or world.skips):
        return SkipPlan()
    undone = tuple(note for note in world.notes.values() if note.is_undone)
    places = {skip.place for skip in undone}
    in_force = {skip.place: skip for skip in (*checkpoint.skips, *_facts_of(world).values()) if skip.place not in places}
    if "skips are forgotten" in broken:
        in_force = {}
    passed = passed_positions(world, checkpoint)
    for place, skip in world.notes.items():
        if skip.is_undone or place in in_force:
            continue
        if skip.start < passed[skip.partition] and "judged offsets are skipped" not in broken:
            world.happened["skip asked for too late"] += 1
            continue
        in_force[place] = skip
    taken = tuple(sorted(in_force.values(), key=lambda skip: skip.place))
    world.journal.facts.execute([Raise(FactKind.SKIP, join_key(skip.partition), skip.start, skip.end) for skip in taken])
    if taken != checkpoint.skips:
        yield "skips journaled"
        checkpoint.skips = taken
    world.happened["skip in force"] += len(in_force.keys() - world.skips.keys())
    world.skips.update(in_force)
    skips = (*taken, *undone)
    return SkipPlan(skips, {} if "skips are not compared" in broken else _compared(world, checkpoint, skips))


def passed_positions(world: World, checkpoint: Checkpoint) -> list[int]:
    """Return up to where each input partition has been judged for good."""
    judged, promises = judged_for_good(checkpoint), promises_of(world)
    return [max([at, *(cti.next_offset for cti in promises.get(n, {}).values())]) for n, at in judged.items()]


def judged_for_good(checkpoint: Checkpoint) -> dict[int, int]:
    """Return up to where partitions were judged in committed batches, by the reports of those that stayed open."""
    return checkpoint.judged(checkpoint.offset_before(checkpoint.committed), checkpoint.committed - 1)


def earlier_attempt(world: World, plan: SkipPlan, number: int, start: int, end: int) -> EarlierAttempt | None:
    """Return what earlier attempts have written, if a walk of this range is compared with it."""
    compare_from, compare_until = plan.compared.get(number, (0, 0))
    if not (compare_from < end and start < compare_until):
        return None
    headers: defaultdict[int, dict[int, bytes]] = defaultdict(dict)
    for output, log in enumerate(world.topic):
        rows = [row[2] for row in log if len(row[2]) == EVENT_HEADER_BYTES]
        table = decode_event_headers(pa.array(rows, pa.binary(EVENT_HEADER_BYTES)))
        for header, of, seq in zip(rows, table["number"].tolist(), table["seq"].tolist(), strict=True):
            if of == number:
                headers[output][seq] = header
    settings = SimpleNamespace(settings=SimpleNamespace(name="raw", ordered_topic="ordered"), skips=plan.skips)
    planned = IngestRange(0, number, "raw", number, start, end, compare_until=compare_until, compare_from=compare_from)  # type: ignore[arg-type]
    world.happened["compared with an earlier attempt"] += 1
    return EarlierAttempt(cast(Any, settings), planned, headers)


def _facts_of(world: World) -> dict[str, Skip]:
    found = [
        Skip("raw", number, fact.position, fact.value)
        for number in range(len(world.raw))
        for fact in world.journal.facts.dump(join_key(number))
        if fact.kind == FactKind.SKIP
    ]
    return {skip.place: skip for skip in found}


def _compared(world: World, checkpoint: Checkpoint, skips: tuple[Skip, ...]) -> dict[int, tuple[int, int]]:
    judged = judged_for_good(checkpoint)
    planned = checkpoint.offset_before(len(checkpoint.offsets)).partitions
    compared = {}
    for number in {skip.partition for skip in skips}:
        ahead = [skip.start for skip in skips if skip.partition == number and skip.start >= judged[number]]
        tried = max(planned[number].next_offset, world.journal.facts.first_open(journal_key(number)))
        if ahead and min(ahead) < tried:
            compared[number] = min(ahead), tried
    return compared
