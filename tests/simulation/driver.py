"""
The simulated driver: plans a batch, logs its offset, runs its tasks, commits; after a restart it runs the logged batch again.

Law: it is a sequence of named steps and keeps nothing but what a process keeps in memory, so to kill it is to take no
further step of it - and a zombie is one whose steps are taken although another has been started.
"""

from __future__ import annotations

from collections.abc import Iterator

from simulation.checkpoint import Checkpoint, ConflictError, Offset
from simulation.planner import Planner
from simulation.scenario import START_US
from simulation.skipping import SkipPlan, apply_skips
from simulation.stage import Memory, Task
from simulation.world import Producer, World

from ingest.planner.stage_progress import StageProgress
from ordering.model.step import Model
from ordering.protocol.punctuation import Roster, Spread

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
        lost: Folders before this one that were lost: what is told of them stands in the ordered topic.
    """

    def __init__(
        self,
        world: World,
        name: str,
        checkpoint: Checkpoint,
        until_end: bool,
        broken: frozenset[str],
        lost: tuple[Checkpoint, ...] = (),
    ) -> None:
        self._world, self.name, self.checkpoint, self._broken = world, name, checkpoint, broken
        self._clock = world.machine_clock()
        self._until_end, self._lost = until_end, lost
        self._memory = Memory()
        self._reached: dict[int, StageProgress] = {}
        self.tasks: list[Task] = []
        self.orphans: list[Task] = []
        """Attempts given up since they were last looked at: they may go on as zombies."""
        self.idle = self.recovering = False
        self._skips = SkipPlan()
        self.steps = self._run()

    def producers(self) -> list[Producer]:
        """Return what its tasks write with."""
        return [producer for task in self.tasks for producer in {task.producer, task.own_way}]

    def _run(self) -> Steps:
        batch = self.checkpoint.committed
        here = self.checkpoint.offset_before(batch)
        yield "checkpoint read"
        self._skips = yield from apply_skips(self._world, self.checkpoint, self._broken)
        checkpoints = [*self._lost, self.checkpoint]
        planner = Planner(self._world, self._clock, checkpoints, self._until_end, self._broken, self._skips)
        try:
            while not here.final:
                if batch == len(self.checkpoint.offsets):
                    self.idle = True
                    yield from planner.advance(here)
                    there = planner.there
                    if there == here:
                        yield "nothing to do"
                        continue
                    self.idle = False
                    self.checkpoint.log(batch, there)
                    self._tell_joins(there)
                    self._world.tell(f"{self.name}: logs batch {batch}: {_told(here, there)}")
                else:
                    self.recovering = True
                    self._world.happened["batch run again"] += 1
                    self._world.tell(f"{self.name}: runs batch {batch} again")
                there = self.checkpoint.offsets[batch]
                for kind, *_ in there.facts(here):
                    self._world.happened[kind] += 1
                yield "offset logged"
                yield from self._run_tasks(batch, here, there)
                yield "tasks done"
                self.checkpoint.reached.update(self._reached)
                yield "reports left"
                self.checkpoint.commit(batch)
                self.recovering = False
                yield "batch committed"
                here, batch = there, batch + 1
        except ConflictError:
            self._world.happened["zombie refused by the offset log"] += 1
            self._world.tell(f"{self.name}: finds that another driver goes on, and ends")

    def _tell_joins(self, there: Offset) -> None:
        for number in range(len(there.partitions) - len(there.joined), len(there.partitions)):
            self._world.logged(number, there.joined_us(number))

    def _run_tasks(self, batch: int, here: Offset, there: Offset) -> Steps:
        """Run one task for each input partition with something to do, their steps interleaved."""
        # One that joins starts where it ends.
        starts = here.partitions + there.partitions[len(here.partitions) :]
        pairs = enumerate(zip(starts, there.partitions, strict=True))

        def attempt(number: int) -> Task:
            planned = starts[number], there.partitions[number]
            model = model_of(self._world, number, there)
            return Task(self._world, model, self.checkpoint, self._memory, batch, number, planned, there.final, self._broken, self._skips)

        joining = len(here.partitions)
        numbers = [number for number, (start, end) in pairs if start != end or there.final or number >= joining]
        self.tasks, self._reached = [attempt(number) for number in numbers], {}
        while self.tasks:
            task = self._world.chance.choice(self.tasks)
            step = next(task.steps, None)
            if step is None:
                self.tasks.remove(task)
                self._reached[task.number] = task.reached
                continue
            try:
                yield step
            except TaskDied:
                self.orphans.append(task)
                self.tasks[self.tasks.index(task)] = attempt(task.number)
                yield "task started again"


def model_of(world: World, number: int, there: Offset) -> Model:
    """Return the time model of an input partition in a batch that ends *there*."""
    settings = world.settings
    return Model(
        settings.policies,
        settings.over,
        settings.output_partitions,
        number,
        roster_of(world, len(there.joined)),
        shape=settings.shape,
        generation=settings.generation,
        joined_us=there.joined_us(number),
    )


def roster_of(world: World, joined: int) -> Roster:
    """Return who writes into the ordered topic once so many input partitions have joined."""
    over = world.settings.over
    return Roster(1 + joined, world.settings.inputs + joined, Spread.ALL if over else Spread.ONE, over)


def _told(here: Offset, there: Offset) -> str:
    """Tell what a batch brings, for the tale."""
    facts = there.facts(here)
    parts = []
    parts += [
        f"raw {number} joins at {there.joined_us(number) - START_US:+}" for number in range(len(here.partitions), len(there.partitions))
    ]
    for number, (start, end) in enumerate(zip(here.partitions, there.partitions, strict=False)):
        if start != end:
            applied = [f", {kind} {us - START_US:+} at {position}" for kind, of, position, us in facts if of == number]
            parts.append(f"raw {number} {start.next_offset}..{end.next_offset}{''.join(applied)}")
    return "; ".join([*parts, "the end"] if there.final else parts)
