"""
``kill -9`` of everything that takes part, at moments nobody chose and at named points.

A kill leaves the world as a crash does; starting again is the service manager's affair (:meth:`faults.lives.Lives.revive`).
Processes left over from a life whose driver was killed are part of the fault: they may go on for a while.
"""

from __future__ import annotations

import contextlib
import random
import signal
import time
from dataclasses import dataclass

import psutil
from faults.lives import Lives
from faults.points import LOGGED, OPEN, STATE, UNCOMMITTED, Checkpoint, strike_at

from tidegate.basics.fault_points import OPEN_POINTS, POINTS

SESSION, DRIVER, JVM, WORKER, PLANNER, BROKER, REDIS = "session", "driver", "jvm", "worker", "planner", "broker", "redis"
WATCHED = (LOGGED, STATE, UNCOMMITTED)
RECOVERY = "recovery"


@dataclass(frozen=True, slots=True)
class Kill:
    """
    One kill.

    Args:
        victim: Who is killed: the whole session, one of its processes, the broker or Redis.
        point: Where; empty: anywhere.
        nth: At a point inside a task: at which pass; in recovery: how many lives in a row.
        wait_s: Elsewhere: how long after the last fault was got over; in recovery after the start.
    """

    victim: str
    point: str = ""
    nth: int = 1
    wait_s: float = 0.0

    @property
    def name(self) -> str:
        """What the report calls it."""
        return f"kill {self.victim}" + (f" at {self.point}" if self.point else "")

    @property
    def held_at(self) -> tuple[str, int] | None:
        """Where a worker must hold itself still for it."""
        return (self.point, self.nth) if self.point in (*POINTS, *OPEN_POINTS) else None

    def strike(self, world: Lives) -> str:
        """Kill; return what was hit."""
        if self.held_at is not None:
            return self._strike_held(world)
        if self.point in (*WATCHED, OPEN):
            return self._strike_watched(world)
        if self.point == RECOVERY:
            return self._strike_recovery(world)
        time.sleep(self.wait_s)
        world.revive()
        slain(world, self.victim)
        return Checkpoint(world.checkpoint).where()

    def _strike_held(self, world: Lives) -> str:
        held = world.until_held(world.patience_s)
        hit = self.point if held is not None else "missed"
        if hit in POINTS and Checkpoint(world.checkpoint).where() == OPEN:
            hit = f"{hit}, {OPEN}"
        slain(world, self.victim, held)
        return hit

    def _strike_watched(self, world: Lives) -> str:
        checkpoint = Checkpoint(world.checkpoint)
        pids = [process.pid for process in world.processes("all")]
        strike_at(checkpoint, self.point, pids, world.patience_s)
        hit = checkpoint.where()
        slain(world, self.victim)
        return hit

    def _strike_recovery(self, world: Lives) -> str:
        """Kill lives that have just begun, as many as asked for in a row, before they have committed anything."""
        if world.job.running:
            slain(world, SESSION)
        before = Checkpoint(world.checkpoint).committed
        for _ in range(self.nth):
            world.start()
            time.sleep(self.wait_s)
            slain(world, self.victim)
            _until_ended(world)
        return RECOVERY if Checkpoint(world.checkpoint).committed == before else "missed"


def slain(world: Lives, victim: str, held: int | None = None) -> None:
    """Kill -9 *victim*; what a point or a watch has held still goes on, unless it was killed."""
    world.kills[victim] += 1
    world.struck_s = time.monotonic()
    if victim == SESSION:
        world.job.kill()
        return
    if victim == BROKER:
        world.stack.stop_kafka(grace_s=0)
    elif victim == REDIS:
        world.stack.stop_redis(grace_s=0)
    elif victim == WORKER and held is not None:
        _kill(held)
    else:
        _kill_one(world, victim)
    world.signal("all", signal.SIGCONT)
    if victim == BROKER:
        world.stack.start_kafka()
    if victim == REDIS:
        world.stack.start_redis()


def _until_ended(world: Lives) -> None:
    """Wait as a service manager does, which starts nothing beside what still runs; what was not there yet to be killed is killed now."""
    deadline_s = time.monotonic() + world.patience_s
    while world.job.running and time.monotonic() < deadline_s:
        time.sleep(0.05)
    if world.job.running:
        world.job.kill()


def _kill_one(world: Lives, victim: str) -> None:
    found = world.processes(victim)
    if victim in (WORKER, PLANNER):
        # The process that others are forked from stands first and is killed with them: a worker alone is a younger one.
        found = found[1:] or found
    if found:
        _kill(random.choice(found).pid)


def _kill(pid: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).kill()


def draw_kill(dice: random.Random) -> Kill:
    """Draw a kill: half of them anywhere, half at a named point."""
    kind = dice.random()
    if kind < 0.45:
        victim = dice.choice((SESSION, SESSION, DRIVER, JVM, WORKER, WORKER, PLANNER, BROKER, BROKER, REDIS))
        return Kill(victim, wait_s=dice.uniform(0.0, 4.0))
    if kind < 0.72:
        victim = dice.choice((SESSION, SESSION, DRIVER, JVM, WORKER, WORKER, BROKER))
        return Kill(victim, dice.choice((*POINTS, *OPEN_POINTS)), dice.choice((1, 2, 3, 4, 5, 6, 20)))
    if kind < 0.88:
        return Kill(dice.choice((SESSION, DRIVER, JVM)), dice.choice((*WATCHED, OPEN)))
    return Kill(dice.choice((SESSION, DRIVER, JVM)), RECOVERY, dice.randint(1, 3), dice.uniform(1.0, 9.0))
