"""
The simulated driver: plans a batch, logs its offset, runs its tasks, commits; after a restart it runs the logged batch again.

Law: it is a sequence of named steps and keeps nothing but what a process keeps in memory, so to kill it is to take no
further step of it - and a zombie is one whose steps are taken although another has been started.
"""

from __future__ import annotations

from collections.abc import Iterator

from simulation.checkpoint import Checkpoint, ConflictError, Offset
from simulation.clock import MonotonicClock
from simulation.planner import Planner
from simulation.scenario import START_US
from simulation.stage import Memory, Task
from simulation.world import Producer, World

from ordering.punctuation import Roster, Spread
from ordering.step import Model

Steps = Iterator[str]


class TaskDied(Exception):
    """Thrown into a driver after a step of a task: that task is to be run again."""


class Driver:
    """
    One life of the job's processes.

    Args:
        name: How the tale calls it.
        checkpoint: The job's folder.
        until_end: Whether it reads to the present end, writes the final CTI and stops.
        broken: Names of rules it breaks on purpose.
    """

    def __init__(self, world: World, name: str, checkpoint: Checkpoint, until_end: bool, broken: frozenset[str]) -> None:
        self._world, self.name, self.checkpoint, self._broken = world, name, checkpoint, broken
        drift = world.settings.drift_ppm
        # Time counts from an arbitrary moment, as after a boot.
        self._clock = MonotonicClock(world.time, world.time.now_us - world.chance.randrange(10**12), world.chance.randint(-drift, drift))
        self._until_end = until_end
        self._memory = Memory()
        self.tasks: list[Task] = []
        self.orphans: list[Task] = []
        """Attempts given up since they were last looked at: they may go on as zombies."""
        self.idle = self.recovering = False
        self.steps = self._run()

    def producers(self) -> list[Producer]:
        """Return what its tasks write with."""
        return [producer for task in self.tasks for producer in {task.producer, task.own_way}]

    def _run(self) -> Steps:
        batch = self.checkpoint.committed
        here = self.checkpoint.offset_before(batch)
        planner = Planner(self._world, self._clock, self.checkpoint, self._until_end, self._broken)
        yield "checkpoint read"
        try:
            while not here.final:
                if batch == len(self.checkpoint.offsets):
                    self.idle = True
                    yield from planner.advance(here)
                    if planner.there == here:
                        yield "nothing to do"
                        continue
                    self.idle = False
                    self.checkpoint.log(batch, planner.there)
                    self._world.tell(f"{self.name}: logs batch {batch}: {_told(here, planner.there)}")
                else:
                    self.recovering = True
                    self._world.happened["batch run again"] += 1
                    self._world.tell(f"{self.name}: runs batch {batch} again")
                there = self.checkpoint.offsets[batch]
                self._world.happened["estimate"] += len(there.estimates(here))
                yield "offset logged"
                yield from self._run_tasks(batch, here, there)
                yield "tasks done"
                self.checkpoint.commit(batch)
                self.recovering = False
                yield "batch committed"
                here, batch = there, batch + 1
        except ConflictError:
            self._world.happened["zombie refused by the offset log"] += 1
            self._world.tell(f"{self.name}: finds that another driver goes on, and ends")

    def _run_tasks(self, batch: int, here: Offset, there: Offset) -> Steps:
        """Run one task for each input partition with something to do, their steps interleaved."""
        pairs = enumerate(zip(here.partitions, there.partitions, strict=True))

        def attempt(number: int) -> Task:
            planned = here.partitions[number], there.partitions[number]
            model = model_of(self._world, number)
            return Task(self._world, model, self.checkpoint, self._memory, batch, number, planned, there.final, self._broken)

        self.tasks = [attempt(number) for number, (start, end) in pairs if start != end or there.final]
        while self.tasks:
            task = self._world.chance.choice(self.tasks)
            step = next(task.steps, None)
            if step is None:
                self.tasks.remove(task)
                continue
            try:
                yield step
            except TaskDied:
                self.orphans.append(task)
                self.tasks[self.tasks.index(task)] = attempt(task.number)
                yield "task started again"


def model_of(world: World, number: int) -> Model:
    """Return the time model of an input partition."""
    settings = world.settings
    return Model(settings.policies, settings.over, settings.output_partitions, number, roster_of(world))


def roster_of(world: World) -> Roster:
    """Return who writes into the ordered topic."""
    over = world.settings.over
    return Roster(1, world.settings.inputs, Spread.ALL if over else Spread.ONE, over)


def _told(here: Offset, there: Offset) -> str:
    """Tell what a batch brings, for the tale."""
    estimates = there.estimates(here)
    parts = []
    for number, (start, end) in enumerate(zip(here.partitions, there.partitions, strict=True)):
        if start != end:
            frontiers = [f", A = {frontier_us - START_US:+} at {position}" for of, position, frontier_us in estimates if of == number]
            parts.append(f"raw {number} {start.next_offset}..{end.next_offset}{''.join(frontiers)}")
    return "; ".join([*parts, "the end"] if there.final else parts)
