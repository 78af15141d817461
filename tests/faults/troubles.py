"""
Faults other than kills: what pauses, forgets, fills up, refuses, steps back or comes back from the dead.

Each leaves the world as it is to be recovered from, and tells what it hit; one that could not strike says ``missed``.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import redis
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType  # type: ignore[attr-defined]
from faults.kills import SESSION, slain
from faults.points import Checkpoint, send_signal
from faults.world import World

from ordering.ticks import SECOND_US
from tidegate.basics.dead_letter_reasons import LETTER_BYTES_MAX

ZOMBIE_ENDS_S = 90.0


@dataclass(frozen=True, slots=True)
class Trouble:
    """
    One fault.

    Args:
        name: What the report calls it.
        strike: Makes it; returns what was hit.
        held_at: (point, pass) at which a worker must hold itself still for it.
        needs: What the episode must have: ``small checkpoint disk``, ``clock of the job``, ``clock of the broker``, ``small broker disk``.
    """

    name: str
    strike: Callable[[World], str]
    held_at: tuple[str, int] | None = None
    needs: str = ""


# ----- services that pause or forget


def pause_broker(world: World, seconds: float = 30.0) -> str:
    """The broker stands still and comes back: connections stay, requests time out."""
    return _pause(world.stack.kafka_pid, seconds)


def pause_redis(world: World, seconds: float = 6.0) -> str:
    """Redis stands still for longer than the planner waits: answers are lost, what was asked is done afterwards."""
    return _pause(world.stack.redis_pid, seconds)


def _pause(pid: int | None, seconds: float) -> str:
    assert pid is not None, "the service runs"
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)
    return f"paused {seconds:g} s"


def _until_estimates(world: World) -> None:
    """Be silent until the journal knows more estimates, so that there is something to forget; then go on."""
    world.facts.look()
    before, deadline_s = world.facts.count, time.monotonic() + world.patience_s
    world.workload.hold(True)
    while world.facts.count <= before and time.monotonic() < deadline_s:
        time.sleep(0.3)
        world.facts.look()
    world.workload.hold(False)
    time.sleep(0.5)


def lose_redis(world: World) -> str:
    """Redis is away for a while and comes back with all it knew; the job is to go on without it."""
    world.stack.stop_redis()
    time.sleep(12.0)
    world.stack.start_redis()
    return "away 12 s"


def wipe_redis(world: World) -> str:
    """Redis is killed and comes back with an empty disk while the job runs."""
    _until_estimates(world)
    world.kills["redis"] += 1
    world.stack.stop_redis(grace_s=0)
    shutil.rmtree(world.stack.directory / "redis" / "data")
    time.sleep(1.0)
    world.stack.start_redis()
    return f"{world.facts.count} estimates lost"


def flush_redis(world: World) -> str:
    """Somebody empties Redis; no connection breaks."""
    _until_estimates(world)
    with redis.Redis.from_url(world.stack.redis_url) as client:
        client.flushall()
    return f"{world.facts.count} estimates lost"


def wipe_redis_and_kill(world: World) -> str:
    """Redis is wiped while the job is dead: only the checkpoint and the ordered topic know the facts."""
    _until_estimates(world)
    slain(world, SESSION)
    with redis.Redis.from_url(world.stack.redis_url) as client:
        client.flushall()
    return f"{world.facts.count} estimates lost"


# ----- old drivers


def zombie(world: World) -> str:
    """A whole job is held still, another takes its place, the first goes on."""
    old, held = world.job, world.processes("all")
    world.freeze()
    pids = [process.pid for process in held]
    world.old_drivers = True
    world.watch.drain()
    following, world.arm = world.arm, None
    world.start()
    world.until_new_cti(time.monotonic())
    world.arm = following
    time.sleep(2.0)
    for pid in pids:
        send_signal(pid, signal.SIGCONT)
    deadline_s = time.monotonic() + ZOMBIE_ENDS_S
    while old.running and time.monotonic() < deadline_s:
        time.sleep(0.2)
        world.revive()
    if old.running:
        old.kill()
        return "the zombie had to be killed"
    return "the zombie ended by itself"


def stale_cti(world: World) -> str:
    """A job is held still between its events and their CTIs; these come after newer ones of its successor."""
    if world.until_held(world.patience_s) is None:
        return "missed"
    return zombie(world)


def torn_twice(world: World) -> str:
    """A batch is killed with part of it written; the life that writes it again is killed in the middle of the same batch."""
    following, torn = world.arm, []
    for nth in (1, 2):
        if world.until_held(world.patience_s) is None:
            world.arm = following
            return "missed"
        torn.append(Checkpoint(world.checkpoint).planned)
        slain(world, SESSION)
        if nth == 1:
            world.arm = ("piece written", 1)
            world.start()
    world.arm = following
    return f"batch {torn[0]} torn twice" if torn[0] == torn[1] else "missed"


# ----- the raw topic


def careless_producer(world: World) -> str:
    """A producer gives up on records and repeats others while the broker stalls: gaps and duplicates in the raw topic."""
    before = world.workload.undelivered
    world.workload.be_sloppy(True)
    for _ in range(3):
        pause_broker(world, 1.5)
        time.sleep(0.7)
    world.workload.be_sloppy(False)
    return f"{world.workload.undelivered - before} records given up"


def append_across_estimates(world: World) -> str:
    """Records are appended while an estimate for their position is on its way to the journal."""
    for _ in range(4):
        world.workload.hold(True)
        time.sleep(1.2)
        pid = world.stack.redis_pid
        assert pid is not None, "Redis runs"
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.4)
        world.workload.hold(False)
        time.sleep(0.5)
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.5)
    return "4 times"


# ----- what is full or refused


def fill_checkpoint_disk(world: World) -> str:
    """The disk of the checkpoint is full for a while."""
    folder = world.checkpoint.parents[1]
    job = world.job
    filler = folder / "filler"
    _fill(filler)
    deadline_s = time.monotonic() + world.patience_s
    while job.running and time.monotonic() < deadline_s:
        _fill(filler)
        time.sleep(0.2)
    ended = not job.running
    filler.unlink()
    return "the job ended" if ended else "the job went on"


def fill_broker_disk(world: World) -> str:
    """The disk of the broker is full; Kafka ends itself, and is started when there is room."""
    filler = world.stack.directory / "kafka" / "data" / "filler"
    deadline_s = time.monotonic() + world.patience_s
    while world.stack.kafka_pid is not None and time.monotonic() < deadline_s:
        _fill(filler)
        time.sleep(0.2)
    ended = world.stack.kafka_pid is None
    time.sleep(1.0)
    filler.unlink()
    world.stack.start_kafka()
    return "Kafka ended itself" if ended else "Kafka went on"


def _fill(file: Path) -> None:
    try:
        with file.open("ab", buffering=0) as sink:
            while True:
                sink.write(b"\0" * 65_536)
    except OSError:
        pass


def refuse_record(world: World) -> str:
    """The ordered topic's largest record is made smaller while a big one is on its way; later that is undone."""
    _alter(world, "max.message.bytes", "2000")
    job = world.job
    world.workload.send_a_big_one()
    deadline_s = time.monotonic() + world.patience_s
    while job.running and time.monotonic() < deadline_s:
        time.sleep(0.2)
    ended = not job.running
    told = "TG-RECORD-TOO-LARGE" in job.errors
    _alter(world, "max.message.bytes", "2004096")
    return f"the job {'ended' if ended else 'went on'}{' with TG-RECORD-TOO-LARGE' if told else ''}"


def poison(world: World) -> str:
    """Records that cannot be used, one larger than any event may be, while the dead-letter topic takes little; later that is undone."""
    dead = f"{world.ordered_topic}.dead"
    _alter(world, "max.message.bytes", "2000", dead)
    world.workload.send_poison()
    time.sleep(5.0)
    _alter(world, "max.message.bytes", str(LETTER_BYTES_MAX), dead)
    return "sent 5 MB in a kilobyte"


def _alter(world: World, name: str, value: str, topic: str = "") -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic or world.ordered_topic, incremental_configs=[entry])
    client = AdminClient({"bootstrap.servers": world.stack.bootstrap})
    client.incremental_alter_configs([resource])[resource].result(10)


def lose_checkpoint(world: World) -> str:
    """The checkpoint is gone: the job resumes from the last CTIs."""
    slain(world, SESSION)
    planned = Checkpoint(world.checkpoint).planned
    shutil.rmtree(world.checkpoint)
    world.counts_hold = False
    return f"lost after batch {planned}"


# ----- clocks


def step_job_clock(world: World) -> str:
    """The wall clock of driver, planner and workers jumps an hour ahead, then back, then an hour behind."""
    for by_s in (3600, 0, -3600, 0):
        world.step_clock("job", by_s * SECOND_US)
        time.sleep(2.5)
    return "stepped by an hour"


def step_broker_clock(world: World) -> str:
    """The wall clock of the broker jumps ten seconds behind, back, and half a minute ahead: arrival goes back, then leaps."""
    for by_s in (-10, 0, 30, 0):
        world.step_clock("broker", by_s * SECOND_US)
        time.sleep(2.5)
    return "stepped by seconds"


TROUBLES = (
    Trouble("broker paused", pause_broker),
    Trouble("Redis paused", pause_redis),
    Trouble("Redis away", lose_redis),
    Trouble("Redis killed and wiped", wipe_redis),
    Trouble("Redis emptied", flush_redis),
    Trouble("Redis emptied, job killed", wipe_redis_and_kill),
    Trouble("zombie driver", zombie),
    Trouble("stale CTIs of a zombie", stale_cti, ("events acknowledged", 3)),
    Trouble("write torn twice", torn_twice, ("piece written", 2)),
    Trouble("careless producer", careless_producer),
    Trouble("append across an estimate", append_across_estimates),
    Trouble("record refused", refuse_record),
    Trouble("poison", poison),
    Trouble("checkpoint lost", lose_checkpoint),
    Trouble("checkpoint disk full", fill_checkpoint_disk, needs="small checkpoint disk"),
    Trouble("broker disk full", fill_broker_disk, needs="small broker disk"),
    Trouble("clock of the job steps", step_job_clock, needs="clock of the job"),
    Trouble("clock of the broker steps", step_broker_clock, needs="clock of the broker"),
)
