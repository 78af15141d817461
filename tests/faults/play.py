"""
One episode: a world, a row of faults, and after each of them everything checked.

What an episode needs beyond a plain stack - disks that can be filled, clocks that can be stepped - is made for it and taken
away again. A broken law ends the episode; its folder stays for whoever looks into it.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from faults.clock import SteppedClock
from faults.kills import SESSION, slain
from faults.lives import STALL_S
from faults.reading import check_readers, torn_starts
from faults.variants import Variant
from faults.world import World, world

from tidegate.platform.stack.embedded import EmbeddedStack

_FIRST_CTI_S = 240.0
_CHECKPOINT_DISK, _BROKER_DISK = "48m", "700m"


class Fault(Protocol):
    """Something that goes wrong."""

    @property
    def name(self) -> str:
        """What the report calls it."""

    @property
    def held_at(self) -> tuple[str, int] | None:
        """(point, pass) at which a worker must hold itself still for it."""

    def strike(self, world: World) -> str:
        """Make it; return what was hit."""


@dataclass(frozen=True, slots=True)
class Episode:
    """A variant, the faults that it is to get over, and what it needs beyond a plain stack."""

    variant: Variant
    seed: int
    faults: tuple[Fault, ...]
    needs: str = ""


@dataclass(frozen=True, slots=True)
class Struck:
    """One fault and what came of it: what it hit, seconds to the first new CTI (None: not measured), what the check saw, kills so far."""

    name: str
    hit: str
    recovered_s: float | None
    events: int
    duplicates: int
    kills: int


@dataclass(slots=True)
class Outcome:
    """What came of an episode."""

    variant: Variant
    seed: int
    struck: list[Struck] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)
    ended: list[str] = field(default_factory=list)
    lives: int = 0
    # How many lives kept their batches open for how long.
    spans: Counter[str] = field(default_factory=Counter)
    readers: int = 0
    records: int = 0
    events: int = 0
    duplicates: int = 0
    estimates: int = 0
    broken: str = ""


def play(stack: EmbeddedStack, folder: Path, episode: Episode, tell: Callable[[Struck], None], bound_s: float = STALL_S) -> Outcome:
    """Play one episode; *tell* hears of every fault that was got over; none may stall the job for *bound_s* seconds."""
    outcome, variant, seed = Outcome(episode.variant, episode.seed), episode.variant, episode.seed
    dice = random.Random(seed)
    with _prepared(stack, folder, episode.needs) as (own_stack, clocks), world(own_stack, folder, variant, seed, clocks) as made:
        try:
            made.stall_s = bound_s
            made.until_new_cti(time.monotonic(), _FIRST_CTI_S, above={})
            for fault, following in zip(episode.faults, [*episode.faults[1:], None], strict=True):
                outcome.struck.append(_strike(made, fault, following))
                tell(outcome.struck[-1])
            found, truth = made.finish()
            starts = torn_starts(own_stack.bootstrap, made.ordered_topic, found, dice)
            check_readers(starts, found, truth, variant.output_partitions)
            outcome.readers, outcome.records, outcome.duplicates = len(starts), truth.records, found.duplicates
            outcome.events = len(found.all_events())
        except Exception as error:
            # Whatever a fault brings to light, in the product or in the campaign, is told; the other episodes are played.
            outcome.broken = f"{type(error).__name__}: {error}"
        outcome.kills, outcome.ended, outcome.lives, outcome.estimates = made.kills, made.ended, made.lives, made.facts.count
        outcome.spans = made.spans
    return outcome


def _strike(made: World, fault: Fault, following: Fault | None) -> Struck:
    """Make a fault, let the job recover, armed for the following one, and check."""
    if fault.held_at is not None and not made.armed:
        made.arm = fault.held_at
        slain(made, SESSION)
        made.start()
    made.arm = following.held_at if following is not None else None
    made.struck_s = 0.0
    hit = fault.strike(made)
    since_s = made.struck_s or time.monotonic()
    made.revive()
    made.watch.drain()
    recovered_s = made.until_new_cti(since_s)
    found, _ = made.check()
    return Struck(fault.name, hit, recovered_s, len(found.all_events()), found.duplicates, made.kills.total())


@contextlib.contextmanager
def _prepared(stack: EmbeddedStack, folder: Path, needs: str) -> Iterator[tuple[EmbeddedStack, Mapping[str, SteppedClock]]]:
    """Give the stack and the clocks that an episode needs."""
    folder.mkdir(parents=True)
    with contextlib.ExitStack() as undo:
        clocks = {}
        if needs == "small checkpoint disk":
            undo.enter_context(_small_disk(folder / ".tidegate", _CHECKPOINT_DISK))
        if needs == "clock of the job":
            clocks["job"] = SteppedClock(folder / "clock")
        if needs == "small broker disk":
            undo.enter_context(_small_disk(folder / "stack/kafka/data", _BROKER_DISK))
            stack = undo.enter_context(_own_stack(folder / "stack", {}))
        if needs == "clock of the broker":
            clocks["broker"] = SteppedClock(folder / "clock")
            stack = undo.enter_context(_own_stack(folder / "stack", clocks["broker"].environment))
        yield stack, clocks


@contextlib.contextmanager
def _own_stack(folder: Path, environment: Mapping[str, str]) -> Iterator[EmbeddedStack]:
    kept = dict(os.environ)
    os.environ.update(environment)
    try:
        stack = EmbeddedStack(folder, heap="384m")
        stack.start()
    finally:
        os.environ.clear()
        os.environ.update(kept)
    try:
        yield stack
    finally:
        stack.stop()


@contextlib.contextmanager
def _small_disk(folder: Path, size: str) -> Iterator[None]:
    """Mount a disk of a few megabytes on *folder*; only root can."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def can_fill_disks() -> bool:
    """Whether this user may mount small disks."""
    return os.geteuid() == 0 and shutil.which("mount") is not None
