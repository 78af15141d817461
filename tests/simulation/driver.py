"""
The simulated driver: plans a batch, logs its offset, runs its tasks, commits; after a restart it runs the logged batch again.

Law: it is a sequence of named steps and keeps nothing but what a process keeps in memory, so to kill it is to take no
further step of it - and a zombie is one whose steps are taken although another has been started.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from simulation.checkpoint import Checkpoint, ConflictError, Offset, Saved
from simulation.open_batch import OpenTask
from simulation.planner import Planner
from simulation.scenario import START_US
from simulation.skipping import SkipPlan, apply_skips
from simulation.stage import Assignment, Memory
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
        self._memories: dict[int, list[Memory]] = {}
        self.going: list[OpenTask] = []
        """Tasks of the last batches that go on in memory."""
        self._may_open = world.settings.opens and not until_end and world.chance.random() < 0.85
        self._reached: dict[int, StageProgress] = {}
        self._saved: dict[int, Saved] = {}
        self.tasks: list[OpenTask] = []
        self.orphans: list[OpenTask] = []
        """Attempts given up since they were last looked at: they may go on as zombies."""
        self._is_idle = self.recovering = False
        self._skips = SkipPlan()
        self.steps = self._run()

    def producers(self) -> list[Producer]:
        """Return what its tasks write with."""
        return [producer for task in (*self.tasks, *self.going) for producer in {task.producer, task.own_way}]

    @property
    def idle(self) -> bool:
        """Whether it waits for something to come."""
        return self._is_idle or self.is_open_idle

    @property
    def is_open_idle(self) -> bool:
        """Whether its open batch does."""
        return bool(self.tasks) and all(task.is_waiting for task in self.tasks)

    def die(self) -> None:
        """End what would go on."""
        for task in self.going:
            task.is_ended = True

    def _run(self) -> Steps:
        batch = self.checkpoint.committed
        here = self.checkpoint.offset_before(batch)
        yield "checkpoint read"
        self._skips = yield from apply_skips(self._world, self.checkpoint, self._broken)
        checkpoints = [*self._lost, self.checkpoint]
        planner = Planner(self._world, self._clock, checkpoints, self._until_end, self._broken, self._skips, self._may_open)
        was_open = False
        try:
            while not here.final:
                if batch == len(self.checkpoint.offsets):
                    # Between two open batches no time is lost.
                    self._is_idle = self._is_idle or not self._may_open
                    yield from self._beside(planner.advance(here))
                    there = planner.there
                    if there == here:
                        self._is_idle = True
                        yield "nothing to do"
                        continue
                    self._is_idle = False
                    self.checkpoint.log(batch, there)
                    opens, end_request = planner.opens, planner.end_request
                    self._tell_joins(there)
                    self._world.tell(f"{self.name}: logs batch {batch}: {_told(here, there)}")
                else:
                    self.recovering, opens, end_request = True, False, 0
                    self._world.happened["batch run again"] += 1
                    self._world.tell(f"{self.name}: runs batch {batch} again")
                there = self.checkpoint.offsets[batch]
                for kind, *_ in there.facts(here):
                    self._world.happened[kind] += 1
                self._world.happened["open batch"] += opens
                if opens != was_open and batch:
                    self._world.happened["micro-batch after an open batch" if was_open else "open batch after a micro-batch"] += 1
                was_open = opens
                yield from self._beside(["offset logged"])
                yield from self._run_tasks(batch, here, there, opens, end_request)
                yield from self._beside(["tasks done"])
                self.checkpoint.reached.update(self._reached)
                self.checkpoint.boots.update(dict.fromkeys(self._reached, self._clock.boot))
                yield from self._beside(["reports left"])
                self.checkpoint.commit(batch, self._saved)
                self.recovering = False
                yield from self._beside(["batch committed"])
                here, batch = there, batch + 1
        except ConflictError:
            self._world.happened["zombie refused by the offset log"] += 1
            self._world.tell(f"{self.name}: finds that another driver goes on, and ends")

    def _tell_joins(self, there: Offset) -> None:
        for number in range(len(there.partitions) - len(there.joined), len(there.partitions)):
            self._world.logged(number, there.joined_us(number))

    def _beside(self, steps: Iterable[str]) -> Steps:
        """Take some steps, and some of what goes on beside them."""
        for step in steps:
            yield step
            while self.going and self._world.chance.random() < 0.7:
                yield from self._step_beside(self._world.chance.choice(self.going))

    def _step_beside(self, task: OpenTask) -> Steps:
        """Take a step of what goes on after a task."""
        step = next(task.steps, None)
        if step is None:
            self.going.remove(task)
            return
        try:
            yield step
        except TaskDied:
            # Its process is gone, with all that it remembers.
            self.going.remove(task)
            task.is_ended = True
            self._begin_process(task)
            self.orphans.append(task)
            yield "what went on has died"

    def _run_tasks(self, batch: int, here: Offset, there: Offset, opens: bool, end_request: int) -> Steps:
        """Run one task for each input partition with something to do, their steps interleaved."""
        # One that joins starts where it ends.
        starts = here.partitions + there.partitions[len(here.partitions) :]
        pairs = enumerate(zip(starts, there.partitions, strict=True))

        span_us = self._world.chance.choice([1, 4, 20]) * self._world.settings.cadence_us if opens else 0

        def attempt(number: int, memory: Memory) -> OpenTask:
            start = starts[number]
            if "positions of torn batches are believed" in self._broken:
                start = replace(start, next_offset=min(self.checkpoint.judged(here).get(number, 0), there.partitions[number].next_offset))
            assigned = Assignment(batch, number, start, there.partitions[number], there.final, opens, end_request, span_us)
            model = model_of(self._world, number, there)
            task = OpenTask(self._world, model, self.checkpoint, memory, assigned, self._broken, self._skips)
            task.prepare(self._clock)
            return task

        joining = len(here.partitions)
        numbers = [number for number, (start, end) in pairs if start != end or there.final or number >= joining or opens]
        self.tasks, self._reached, self._saved = [], {}, {}
        for number in numbers:
            memory = self._process(number)
            yield from self._end_beside(memory)
            self.tasks.append(attempt(number, memory))
        while self.tasks:
            if self.going and self._world.chance.random() < 0.3:
                yield from self._step_beside(self._world.chance.choice(self.going))
                continue
            task = self._world.chance.choice(self.tasks)
            step = next(task.steps, None)
            if step is None:
                self._end_task(task, opens)
                continue
            try:
                yield step
            except TaskDied:
                self.orphans.append(task)
                self.tasks[self.tasks.index(task)] = attempt(task.number, self._begin_process(task))
                yield "task started again"
            if opens and len(self._world.raw) > len(there.partitions) and self._world.chance.random() < 0.1:
                # The driver has found new partitions (``NewPartitions``).
                self._world.happened["open batch ended for new partitions"] += 1
                self.checkpoint.end_request += 1

    def _process(self, number: int) -> Memory:
        """Return the memory of the process that runs a partition's task."""
        memories = self._memories.setdefault(number, [Memory(), Memory()])
        if not self._world.settings.opens:
            return memories[0]
        if self._world.chance.random() < 0.3:
            memories.reverse()
        return memories[0]

    def _begin_process(self, task: OpenTask) -> Memory:
        """Return the memory of the process that takes the place of a task's, which has died."""
        memories, memory = self._memories[task.number], Memory()
        # What went on in a process that another one has replaced already has died with it.
        if task.memory in memories:
            memories[memories.index(task.memory)] = memory
        return memory

    def _end_beside(self, memory: Memory) -> Steps:
        """The first task that begins in a process ends what goes on there, and waits for its last round."""
        for task in [task for task in self.going if task.memory is memory]:
            task.is_over = True
            while task in self.going:
                yield from self._step_beside(task)

    def _end_task(self, task: OpenTask, opens: bool) -> None:
        """Take note of what a task has saved; it may go on in memory."""
        self.tasks.remove(task)
        assert task.saved is not None, "it has ended"
        self._reached[task.number], self._saved[task.number] = task.reached, task.saved
        if opens and task.memory.journal is not None and task.has_notes:
            task.steps = task.go_on()
            self.going.append(task)
            self.checkpoint.fellows.append(task)


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
