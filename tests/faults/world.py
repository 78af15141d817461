"""
The world of one episode: a stack, a raw topic with its producer, and an ingest job under a service manager's eye.

A job that has ended, whatever ended it, is started again at once, from the same folder. Time to the first new CTI is measured
from the fault to the moment a consumer meets a CTI above all it had met before.
"""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from faults.checks import (
    Truth,
    check_accounts,
    check_bytes,
    check_dead_letters,
    check_promises,
    read_dead_letters,
    truth_of,
)
from faults.clock import SteppedClock
from faults.facts import KnownFacts
from faults.lives import POLL_S, STALL_S, Lives
from faults.variants import SPANS, Variant
from faults.workload import LARGEST_BYTES, Workload, log_of
from support.law_breaches import BrokenLawError, demand
from support.stack.jobs import Job, Workspace
from support.stack.topics import ANY_TIME, APPEND_TIME, Channel, CtiWatch, Ordered, create, exists, fresh, read_ordered

from tidegate.basics.fault_points import OPEN_POINTS
from tidegate.platform.stack.embedded import EmbeddedStack

ORPHANS_S = 60.0
"""Python workers and JVM of a driver that was killed must have ended by then."""


class World(Lives):
    """
    One episode.

    Args:
        stack: Kafka and Redis.
        folder: The episode's own.
        variant: What is ingested and how.
        seed: Of the data.
        clocks: Wall clocks that can be stepped: of the ``job``, of the ``broker``.

    Attributes:
        old_drivers: Whether an old driver was let go on: its CTIs may come after newer ones.
        spans: How many lives kept their batches open for how long.
        counts_hold: Whether the job's counts go back to the beginning; not after its checkpoint was lost.
    """

    def __init__(
        self, stack: EmbeddedStack, folder: Path, variant: Variant, seed: int, clocks: Mapping[str, SteppedClock] | None = None
    ) -> None:
        self.variant = variant
        bootstrap, partitions = stack.bootstrap, variant.manner.partitions
        config = {**(APPEND_TIME if variant.log_append else ANY_TIME), "max.message.bytes": str(LARGEST_BYTES)}
        self.topic = create(bootstrap, fresh("faults"), partitions, config)
        self.ordered_topic = f"{self.topic}.ordered"
        super().__init__(stack, Workspace(folder, stack, variant.tables(self.topic)))
        self.workload = Workload(bootstrap, self.topic, variant.manner, seed)
        self.facts = KnownFacts(bootstrap, stack.redis_url, self.topic, partitions, variant.stamped)
        self.environment = dict(clocks["job"].environment) if clocks and "job" in clocks else {}
        self.old_drivers = False
        self.spans: Counter[str] = Counter()
        self._dice = random.Random(seed)
        self._watch: CtiWatch | None = None
        self.counts_hold = True
        self._clocks = dict(clocks or {})
        self.workload.start()
        self.start()

    # ----- the job's lives

    @property
    def checkpoint(self) -> Path:
        """The folder of Spark's checkpoint."""
        return self.space.folder / ".tidegate" / "checkpoints" / f"ingest-{self.ordered_topic}"

    @property
    def watch(self) -> CtiWatch:
        """The follower of the ordered topic, once there is one."""
        if self._watch is None:
            deadline_s = time.monotonic() + 4 * STALL_S
            while not exists(self.stack.bootstrap, self.ordered_topic):
                assert time.monotonic() < deadline_s, f"no ordered topic: {self.job.errors[-3000:]}"
                self.revive()
                time.sleep(0.5)
            self._watch = CtiWatch(self.stack.bootstrap, self.ordered_topic, self.variant.output_partitions)
        return self._watch

    def _begin(self, environment: dict[str, str]) -> Job:
        span = self._dice.choice(SPANS)
        point, nth = self.arm or ("", 0)
        if point in OPEN_POINTS and span == SPANS[0]:
            span = self._dice.choice(SPANS[1:])
        if point == "walked" and nth > 1 and span == SPANS[-1]:
            # Only the end of a batch passes there.
            span = self._dice.choice(SPANS[:-1])
        self.spans[span] += 1
        return self.space.start_alone("ingest", "events", *self.variant.flags(span), **environment)

    def freeze(self) -> None:
        """Hold the whole job still."""
        for _ in range(3):  # also what is being forked
            self.signal("all", signal.SIGSTOP)

    def step_clock(self, whose: str, us: int) -> None:
        """Set a wall clock *us* microseconds off the machine's."""
        self._clocks[whose].step(us)

    # ----- after a fault

    def until_new_cti(self, since_s: float, bound_s: float | None = None, above: dict[Channel, int] | None = None) -> float | None:
        """
        Keep the job alive until it has written a CTI above *above* (default: all met by now); return seconds since *since_s*.

        None: a worker has held itself still before, so that a fault may strike in the recovery from this one.

        Raises:
            BrokenLawError: None came within *bound_s* (default: :attr:`stall_s`).
        """
        watch = self.watch
        above = dict(watch.highest) if above is None else above
        bound_s = self.stall_s if bound_s is None else bound_s
        deadline_s = time.monotonic() + bound_s
        while not watch.rises(above, POLL_S):
            self.revive()
            if self.release_or_held():
                return None
            if time.monotonic() > deadline_s:
                raise BrokenLawError("no stall", f"no new CTI for {bound_s:g} s; lives ended: {self.ended}: {self.job.errors[-2500:]}")
        return time.monotonic() - since_s

    def check(self, whole: bool = False) -> tuple[Ordered, Truth]:
        """Hold what stands in the ordered topic against the oracle; with *whole* nothing may be missing."""
        # What is written first is read last: nothing may stand in a topic of which the raw topic read later knows nothing.
        found = read_ordered(self.stack.bootstrap, self.ordered_topic, self.variant.output_partitions)
        dead = read_dead_letters(self.stack.bootstrap, f"{self.ordered_topic}.dead")
        self.facts.look()
        truth = self.truth()
        check_bytes(found, truth, whole)
        # An open batch that was killed is repeated with other cuts, and promises less at first.
        check_promises(found, truth, rising=not self.old_drivers and self.spans.total() == self.spans[SPANS[0]])
        check_dead_letters(dead, truth, whole)
        return found, truth

    def truth(self) -> Truth:
        """Let the oracle hear the raw topic as it is now."""
        variant = self.variant
        logs = log_of(self.stack.bootstrap, self.topic, variant.manner.partitions, self.workload.said)
        if variant.stamped:
            logs = [self.facts.stamped(number, log) for number, log in enumerate(logs)]
        estimates = self.facts.estimates
        return truth_of(self.topic, logs, variant.policies(), variant.output_partitions, over=variant.over, estimates=estimates)

    def finish(self) -> tuple[Ordered, Truth]:
        """Stop producer and job, order what is left to the end, and check everything."""
        self.workload.stop()
        if self.job.running:
            self.job.stop()
        self.space.clear()
        self._check_orphans()
        self.job = self.space.start_alone("ingest", "events", "--until-end", *self.variant.flags(), **self.environment)
        code = self.job.wait(10 * self.stall_s)
        demand(code == 0, "nothing is lost", f"the run to the end failed with exit code {code}: {self.job.errors[-2500:]}")
        summary = self.job.last
        found, truth = self.check(whole=True)
        demand(summary["finished"], "nothing is lost", "the run to the end has not ended every channel")
        if self.counts_hold:
            check_accounts(summary, truth)
        return found, truth

    def _check_orphans(self) -> None:
        """Of lives whose driver was killed nothing may be left after a while."""
        deadline_s = time.monotonic() + ORPHANS_S
        while left := self.left_over():
            demand(time.monotonic() < deadline_s, "no orphans", f"still there: {[process.cmdline() for process in left]}")
            time.sleep(0.5)

    def close(self) -> None:
        """Leave nothing running."""
        with contextlib.suppress(AssertionError):
            self.workload.stop()
        super().close()
        if self._watch is not None:
            self._watch.close()


@contextlib.contextmanager
def world(
    stack: EmbeddedStack, folder: Path, variant: Variant, seed: int, clocks: Mapping[str, SteppedClock] | None = None
) -> Iterator[World]:
    """Give a world and leave nothing of it running."""
    made = World(stack, folder, variant, seed, clocks)
    try:
        yield made
    finally:
        made.close()
