"""
One simulated run: who does the next step, what strikes between two steps, and how the run comes to its end.

First everything that can go wrong does, while messages arrive. Then it is calm: faults stop, zombies end, and the job has
a bounded time to bring every event below the floor to its readers. Some runs then read to the end and finish.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from simulation.checkpoint import Checkpoint, Offset, Planned
from simulation.checks import (
    add_used,
    check_accounts,
    check_facts,
    check_log,
    check_order,
    check_readers,
    facts_of,
    own_facts,
    truth_of,
)
from simulation.driver import Driver, TaskDied
from simulation.faults import BETWEEN_POINTS, OPEN_POINTS, TASK_POINTS, Fault
from simulation.open_batch import OpenTask
from simulation.reading import Following, start_in_the_middle
from simulation.resuming import resumed
from simulation.scenario import Scenario, steady_message
from simulation.skipping import Operator
from simulation.stage import Task
from simulation.world import Producer, World
from support.law_breaches import BrokenLawError, demand

from ordering.errors import RefusedError
from ordering.ticks import INFINITY, NEVER

CALM_PASSES_MAX = 150
"""Planning passes within which the job must have caught up once everything works again."""
_STEPS_MAX = 60_000


@dataclass(slots=True)
class Outcome:
    """What came of a run: the law it broke, if any; what happened how often; the tale, if it was asked for."""

    broken: BrokenLawError | None
    happened: Counter[str]
    tale: list[str]


def play(scenario: Scenario, broken: frozenset[str] = frozenset(), telling: bool = False) -> Outcome:
    """Run a scenario and check it. *broken* names rules the job breaks on purpose."""
    run = _Run(scenario, broken, telling)
    failure: BrokenLawError | None = None
    try:
        run.go()
    except BrokenLawError as error:
        failure = error
    except Exception as error:  # whatever a run raises, it is that seed's story
        failure = BrokenLawError("no errors", f"{type(error).__name__}: {error}")
    return Outcome(failure, run.world.happened, run.world.tale)


@dataclass(slots=True)
class _Zombie:
    """A process that should be gone: a driver, a task, or rows on their way. It sleeps, then takes so many more steps."""

    what: Driver | Task | Producer
    name: str
    left: int
    wakes_us: int


@dataclass(slots=True)
class _Run:
    scenario: Scenario
    broken: frozenset[str]
    telling: bool
    world: World = field(init=False)
    checkpoint: Checkpoint = field(init=False)
    checkpoints: list[Checkpoint] = field(init=False)
    driver: Driver | None = None
    drivers: int = 0
    lost: tuple[Checkpoint, ...] = ()
    until_end: bool = False
    starts_us: int = 0
    is_stormy: bool = True
    fails_until_us: int = 0
    zombies: list[_Zombie] = field(default_factory=list)
    reached: Counter[str] = field(default_factory=Counter)
    readers: list[Following] = field(default_factory=list)
    crashes: list[Fault] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world = World(self.scenario, self.telling)
        self.checkpoint = Checkpoint(Offset(tuple(Planned() for _ in self.world.raw)))
        self.checkpoints = [self.checkpoint]
        count = self.world.settings.output_partitions
        gaps = "readers pass over gaps" in self.broken
        self.readers = [Following(partition, count, over_gaps=gaps) for partition in range(count)]
        self.crashes = [fault for fault in self.scenario.faults if fault.kind == "crash"]

    def go(self) -> None:
        """Run to the end and check everything."""
        self._storm()
        self._calm()
        if self.world.settings.until_end:
            self._finish()
        self._read_to_the_end()
        self._check()

    def _storm(self) -> None:
        world, cadence_us = self.world, self.world.settings.cadence_us
        last_us = max([self.scenario.ends_us, *(fault.until_us for fault in self.scenario.faults)]) + 3 * cadence_us
        steps = 0
        while world.time.now_us < last_us and steps < _STEPS_MAX:
            steps += 1
            self._strike_by_time()
            self._one_step()
            self._zombie_step()
            if world.chance.random() < 0.15:
                self._reader_step()
            world.advance(self._pause_us())

    def _pause_us(self) -> int:
        chance, cadence_us = self.world.chance, self.world.settings.cadence_us
        if self.driver is not None and self.driver.is_open_idle:
            return chance.choice([0, 0, 0, cadence_us // 20, cadence_us // 4])
        if self.driver is not None and self.driver.going:
            return chance.choice([0, 0, cadence_us // 100, cadence_us // 10])
        if self.driver is not None and self.driver.idle:
            return chance.choice([0, 0, 0, cadence_us // 2])
        return chance.choice([0, 0, 0, 0, cadence_us // 100, cadence_us // 10])

    def _strike_by_time(self) -> None:
        world, now_us = self.world, self.world.time.now_us
        away, broker_away = now_us < self.fails_until_us, False
        for at, fault in enumerate(self.scenario.faults):
            within = fault.from_us <= now_us < fault.until_us
            once = fault.kind not in ("crash", "journal fails") and fault.from_us <= now_us and not self.reached[f"fault {at}"]
            if once:
                self.reached[f"fault {at}"] += 1
                world.happened[fault.kind] += 1
                world.tell(fault)
            if fault.kind == "journal away":
                away |= within
            elif fault.kind == "broker away":
                broker_away |= within
            elif fault.kind == "journal wiped" and once:
                world.journal.wipe()
                world.notes.clear()
            elif fault.kind in ("skip", "skip undone") and once:
                if fault.kind == "skip undone" or world.chance.random() < 0.7:
                    self._kill()
                operator = Operator(world, self.broken)
                (operator.ask if fault.kind == "skip" else operator.undo)(self.checkpoint)
            elif fault.kind == "checkpoint lost" and once:
                self._lose_checkpoint()
            elif fault.kind == "partition joins" and once:
                world.widen()
            elif fault.kind == "clock step" and once:
                world.clock.step(fault.partition, fault.by_us)
            elif fault.kind == "open transaction":
                raw = world.raw[fault.partition]
                if once and within:
                    raw.open_from = raw.end
                elif not within and raw.open_from is not None and now_us >= fault.until_us:
                    raw.open_from = None
        world.journal.away, world.broker_away = away, broker_away

    def _lose_checkpoint(self) -> None:
        """Kill the driver and take its folder away; a new one is made from the ordered topic."""
        if self.world.settings.policies.reorder_us < 0:
            return  # equals push later ones up without bound: no position before them is known to be early enough
        self._kill()
        self.lost += (self.checkpoint,)
        self.checkpoint = resumed(self.world)
        self.checkpoints.append(self.checkpoint)
        self.world.happened["resumed from CTIs"] += 1
        self.world.tell(f"a new checkpoint starts at {[at.next_offset for at in self.checkpoint.start.partitions]}")

    def _stop(self) -> None:
        """Stop the driver as a user does: between two of its steps, with everything it sent acknowledged or not."""
        if self.driver is not None:
            self.driver.die()
        self.driver = None

    def _kill(self) -> None:
        if self.driver is not None:
            self._bury(self.driver, "dead", self.driver.name)
        for zombie in self.zombies:
            _end(zombie.what)
        self.driver, self.zombies = None, []

    def _one_step(self) -> str:
        """Let the driver do its next step, starting one if there is none; crash it there if that is due. Return the step."""
        world = self.world
        if self.driver is None:
            if world.time.now_us < self.starts_us:
                return "waiting for a start"
            self.drivers += 1
            name = f"driver {self.drivers}"
            self.driver = Driver(world, name, self.checkpoint, self.until_end, self.broken, self.lost)
            world.tell(f"{name}: starts")
        try:
            point = next(self.driver.steps, None)
        except RefusedError as refusal:
            world.tell(f"{self.driver.name}: {refusal}")
            self._kill()
            Operator(world, self.broken).revert(refusal)
            return "refused"
        if point is None:
            self.driver = None
            return "ended"
        self.reached[point] += 1
        for fault in self.scenario.faults:
            if self.is_stormy and fault.kind == "journal fails" and fault.point == point and fault.nth == self.reached[point]:
                world.happened[fault.kind] += 1
                world.tell(fault)
                self.fails_until_us = world.time.now_us + fault.by_us
                world.journal.away = True
        for fault in self.crashes:
            if fault.point == point and fault.nth <= self.reached[point] <= fault.nth + fault.again:
                self._crash(fault, self.driver)
                return "crash"
        return point

    def _crash(self, fault: Fault, driver: Driver) -> None:
        world = self.world
        torn = any(producer.waits() for producer in driver.producers())
        world.happened[f"crash after {fault.point}"] += 1
        world.happened[f"{fault.victim} crash"] += 1
        world.happened["torn write"] += torn
        if fault.again and self.reached[fault.point] > fault.nth:
            world.happened["torn twice" if torn else "crash again"] += 1
        world.happened["crash in recovery"] += driver.recovering
        world.tell(f"{driver.name}: {fault}")
        if fault.victim == "task" and (fault.point in BETWEEN_POINTS or (fault.point in TASK_POINTS + OPEN_POINTS and driver.tasks)):
            driver.steps.throw(TaskDied())  # type: ignore[attr-defined]
            for task in driver.orphans:
                self._bury(task, fault.afterlife, f"a task of {driver.name}")
            driver.orphans.clear()
            return
        self.driver = None
        self.starts_us = world.time.now_us + world.chance.choice([0, 0, world.settings.cadence_us, 5 * world.settings.cadence_us])
        if fault.afterlife == "split":
            # The new driver has a backup of the folder; the old one goes on with the folder itself.
            self.checkpoint = self.checkpoint.copy()
            self.checkpoints.append(self.checkpoint)
        self._bury(driver, fault.afterlife, driver.name)

    def _bury(self, what: Driver | Task, afterlife: str, name: str) -> None:
        """Let a prefix of what a dead process had sent arrive; or let it go on."""
        world = self.world
        if afterlife in ("zombie", "split"):
            world.happened[f"{afterlife} {'driver' if isinstance(what, Driver) else 'task'}"] += 1
            self.zombies.append(_Zombie(what, f"zombie {name}", world.chance.choice([3, 10, 40, 150]), self._wakes_us()))
            return
        _end(what)
        producers = what.producers() if isinstance(what, Driver) else [what.producer, what.own_way]
        for producer in dict.fromkeys(producers):
            if afterlife == "holes":
                world.happened["arrival with holes"] += producer.tear() > 0
                continue
            producer.trickle()
            if afterlife == "late" and producer.waits():
                world.happened["late arrival of what was sent"] += 1
                self.zombies.append(_Zombie(producer, f"what {name} had sent", 1, self._wakes_us()))

    def _wakes_us(self) -> int:
        return self.world.time.now_us + self.world.chance.choice([0, 1, 3, 8]) * self.world.settings.cadence_us

    def _zombie_step(self) -> None:
        awake = [zombie for zombie in self.zombies if zombie.wakes_us <= self.world.time.now_us]
        if not awake or self.world.chance.random() < 0.4:
            return
        zombie = self.world.chance.choice(awake)
        self._move(zombie)
        if zombie.left <= 0:
            _end(zombie.what)
            self.zombies.remove(zombie)

    def _move(self, zombie: _Zombie) -> None:
        """Let a zombie take one step."""
        zombie.left -= 1
        before = sum(map(len, self.world.topic))
        if isinstance(zombie.what, Producer):
            zombie.what.trickle()
        elif next(zombie.what.steps, None) is None:
            zombie.left = 0
        if sum(map(len, self.world.topic)) > before:
            self.world.happened["rows written by zombies"] += not isinstance(zombie.what, Producer)
            self.world.tell(f"{zombie.name} reaches the log")

    def _reader_step(self) -> None:
        world = self.world
        chance, count = world.chance, world.settings.output_partitions
        reader = chance.choice(self.readers)
        log = world.topic[reader.partition]
        if log and chance.random() < 0.05 and len(self.readers) < count + 3:
            self.readers.append(self._middle(reader.partition))
            world.happened["reader from the middle"] += 1
        if chance.random() < 0.2:
            reader.save()
        elif chance.random() < 0.1:
            reader.restart()
            world.happened["reader restarted"] += reader.restarts > 0
        reader.read(log, chance.choice([1, 3, 20, 1000]))

    def _middle(self, partition: int) -> Following:
        """Return a reader from the middle of the log as it stands."""
        log, chance = self.world.topic[partition], self.world.chance
        stamps_us = [int.from_bytes(row[2][16:24], "little") for row in log if len(row[2]) > 8] or [self.world.time.now_us]
        start_us = chance.choice(stamps_us) + chance.choice([0, 0, 1, -1, 250_000])
        return start_in_the_middle(log, partition, self.world.settings.output_partitions, start_us, chance)

    def _calm(self) -> None:
        """Let everything work again; within bounded time all that may be read is readable."""
        world, settings = self.world, self.world.settings
        self.is_stormy = world.journal.away = world.broker_away = False
        for raw in world.raw:
            raw.open_from = None
        held_back, self.crashes = self.crashes, []
        for zombie in self.zombies:
            while zombie.left > 0:
                self._move(zombie)
            _end(zombie.what)
        self.zombies.clear()
        while len(world.joined) + settings.inputs < len(world.raw):
            self._pass()
        ends = [raw.end for raw in world.raw]
        target_us = self._last_floor_us()
        behind_us = world.time.now_us - 10**15
        for number in range(CALM_PASSES_MAX):
            world.telling = self.telling and number < 5  # it goes on like that
            self._pass()
            if settings.steady:
                world.append(steady_message(settings.shape, world.time.now_us))
            if self._readable(ends, target_us):
                world.happened["calm"] += 1
                break
            world.advance(settings.cadence_us + behind_us // 40)
        else:
            demand(False, "liveness", f"after {CALM_PASSES_MAX} passes: {self._readable_text()}, target {target_us}, ends {ends}")
        for _ in range(CALM_PASSES_MAX):
            self._pass()
            if self._readable([raw.end for raw in world.raw], target_us):
                break
        self.crashes = held_back

    def _pass(self) -> None:
        """Let the driver plan once and do all that comes of it."""
        while self._one_step() not in ("nothing to do", "batch committed", "ended"):
            if self.driver is None:
                self.world.advance(self.world.settings.cadence_us)
            elif self.driver.idle:
                self.world.advance(self.world.settings.cadence_us // 4)

    def _last_floor_us(self) -> int:
        """Return the floor that the last arrival of all must bring about, as far as silence may advance time."""
        world, late_us = self.world, self.world.settings.policies.late_us
        arrivals = [
            max((r.stamp_us for r in raw.records if self._sane(r.stamp_us) and r.offset not in world.skipped(number)), default=NEVER)
            for number, raw in enumerate(world.raw)
        ]
        settings = world.settings
        held = not settings.estimates and min(arrivals) == NEVER
        # CTIs that follow events come only with events that are accepted, or with silence.
        follow = not settings.generation.is_per_batch and (settings.steady or not settings.estimates)
        if late_us is None or held or follow:
            return NEVER
        return (max(arrivals) if world.settings.estimates else min(arrivals)) - late_us - world.settings.generation.delay_us

    def _sane(self, stamp_us: int) -> bool:
        return 0 < stamp_us < self.world.time.now_us + self.world.settings.arrival_max_ahead_us

    def _readable(self, ends: list[int], target_us: int) -> bool:
        """Whether all records before the calm are judged and every reader's frontier has passed the target."""
        world = self.world
        for reader in self.readers:
            while reader.read(world.topic[reader.partition], 1000):
                pass
        here = self.checkpoint.offset_before(self.checkpoint.committed)
        if any(at.next_offset < end for at, end in zip(here.partitions, ends, strict=True)):
            return False
        return all(reader.rule.frontier >= target_us for reader in self.readers if reader.start_us is None and self._has_channels(reader))

    def _has_channels(self, reader: Following) -> bool:
        settings = self.world.settings
        return settings.over or reader.partition < len(self.world.raw)

    def _readable_text(self) -> str:
        return str([(reader.partition, reader.rule.frontier, reader.rule.blocked_channels()) for reader in self.readers])

    def _finish(self) -> None:
        """Stop, then start with ``--until-end`` and run until the final CTI is out, crashes included."""
        self.world.happened["run to the end"] += 1
        self._stop()
        self.until_end, self.starts_us = True, 0
        for _ in range(_STEPS_MAX):
            self._one_step()
            self._zombie_step()
            self.world.advance(self.world.settings.cadence_us // 50)
            if self.driver is None and self._ended():
                break
        else:
            demand(False, "liveness", "the run to the end does not end")
        for zombie in self.zombies:
            while zombie.left > 0:
                self._move(zombie)

    def _ended(self) -> bool:
        offsets = self.checkpoint.offsets
        return len(offsets) > 0 and offsets[-1].final and self.checkpoint.committed == len(offsets)

    def _read_to_the_end(self) -> None:
        world = self.world
        for partition in range(world.settings.output_partitions):
            self.readers.append(self._middle(partition))
            world.happened["reader from the middle"] += 1
        for reader in self.readers:
            while reader.read(world.topic[reader.partition], world.chance.choice([1, 5, 1000])):
                pass

    def _check(self) -> None:
        world = self.world
        facts = facts_of(self.checkpoints)
        add_used(facts, self.checkpoints)
        truth = truth_of(world, facts, self._ended())
        world.happened["records"] += sum(len(raw.records) for raw in world.raw)
        world.happened["rows"] += sum(map(len, world.topic))
        world.happened["events"] += sum(len(story.ordered) for story in truth.stories)
        world.happened["arrival clamped"] += sum(story.counts["arrival_clamps"] for story in truth.stories)
        sent = [record.message for raw in world.raw for record in raw.records]
        world.happened["CTI of the source"] += sum(message.source_cti_us is not None for message in sent)
        world.happened["interval"] += sum(message.end_us is not None for message in sent)
        world.happened["edge"] += sum(message.start_us is not None for message in sent)
        world.happened["batches"] += len(self.checkpoint.offsets)
        world.happened["estimate unanswered"] += world.journal.unanswered
        # An old driver may have used an estimate at a position that the job itself has not reached.
        applied = own_facts(self.checkpoint, list(self.lost))
        own = truth if applied == facts else truth_of(world, applied, self._ended())
        check_order(world, truth)
        check_log(world, truth)
        check_readers(world, truth, own, self.readers)
        check_accounts(world, own, self.checkpoint)
        check_facts(world, truth, facts, [*self.lost, self.checkpoint])
        if self._ended():
            unfinished = [reader.partition for reader in self.readers if self._has_channels(reader) and reader.rule.frontier < INFINITY]
            middle = {reader.partition for reader in self.readers if reader.start_us is not None}
            demand(not set(unfinished) - middle, "the end", f"ordered partitions {unfinished} do not end")


def _end(what: Driver | Task | Producer) -> None:
    """End what goes on in a process that is gone."""
    if isinstance(what, Driver):
        what.die()
    elif isinstance(what, OpenTask):
        what.is_ended = True
