"""
A scenario: everything that decides a simulated run, drawn from one seed before the run begins.

Law: a run is a pure function of its scenario. Messages and faults are plain lists, so a failing scenario is shrunk by
leaving some of them out and running again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from simulation.faults import Breakage, Fault, draw_faults, draw_open_crashes, draw_skips, without_zombie_tasks

from ordering.policies import Action, Generation, Policies, Shape
from ordering.ticks import DAY_US, MILLISECOND_US, NEVER, SECOND_US

START_US = 10**15
"""Virtual time at which every run begins, microseconds."""

_KEYS = (b"", b"a", b"b", b"c", b"device 7", b"\x00\xff")


@dataclass(frozen=True, slots=True)
class Message:
    """
    One raw record to come.

    Args:
        partition: The input partition it goes to.
        at_us: When the broker appends it, virtual time.
        event_time_us: None: its payload cannot be read.
        key: The record's key; with OVER the substream's.
        hole: Offsets left out before it, as transaction markers leave them.
        stamp_us: Its producer's stamp; None: the broker's clock stamps it. Not above 0: it has none.
        end_us, start_us: Of intervals and edges, as in ``ordering.model.step.Batch``.
        source_cti_us: It is a CTI that its source enqueued, with this c.
    """

    partition: int
    at_us: int
    event_time_us: int | None
    key: bytes | None
    hole: int = 0
    stamp_us: int | None = None
    end_us: int | None = None
    start_us: int | None = None
    source_cti_us: int | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """
    One job and the world around it. Durations are microseconds.

    Args:
        shape: What an event is in time.
        generation: When CTIs are written.
        cti_bytes_max: A CTI whose body would be larger is split.
        imported_lag_us: How far the time of the other input, whose CTIs are imported, is behind; None: none are imported.
        estimates: Whether silence advances time.
        batch_events: Most records of one batch.
        piece_events: Most records of one step of the model.
        drift_ppm: How much faster the drivers' monotonic clocks run, each within plus or minus this.
        steady: Whether the first partition gets records all through the calm end, too.
        until_end: Whether the run ends with the final CTI.
        opens: Whether drivers may be started with batches that stay open.
        arrival_max_ahead_us: Arrivals further ahead of the planner's clock are dead-lettered.
    """

    policies: Policies
    over: bool
    inputs: int
    output_partitions: int
    shape: Shape
    generation: Generation
    cti_bytes_max: int
    imported_lag_us: int | None
    estimates: bool
    cadence_us: int
    margin_us: int
    batch_events: int
    piece_events: int
    drift_ppm: int
    steady: bool
    until_end: bool
    opens: bool = False
    arrival_max_ahead_us: int = DAY_US


@dataclass(frozen=True, slots=True)
class Scenario:
    """A seed's settings, messages and faults; *chances* seeds what is decided during the run: cuts and who goes next."""

    seed: int
    settings: Settings
    messages: tuple[Message, ...]
    faults: tuple[Fault, ...]
    chances: int
    ends_us: int

    @property
    def honest(self) -> bool:
        """Whether all clocks run alike: then no estimate may ever exceed a later arrival."""
        stamped = any(message.stamp_us is not None for message in self.messages)
        return not stamped and self.settings.drift_ppm < 500 and not any(fault.kind == "clock step" for fault in self.faults)


def draw(seed: int, breakage: Breakage | None = None) -> Scenario:
    """Return the scenario of *seed*; with a *breakage* one of those in which it shows."""
    chance = random.Random(seed)
    span_us = chance.choice([20, 60, 300]) * SECOND_US
    # Drawn apart, so that everything else of a seed stays what it was before there was a choice.
    early_action = random.Random(f"early action {seed}").choice(list(Action))
    drawn = _draw_settings(chance, span_us, early_action)
    settings = replace(drawn, **(breakage.settings if breakage else _draw_opening(seed, drawn)))  # type: ignore[arg-type]
    messages = _draw_messages(chance, settings, span_us)
    ends_us = max([START_US + span_us, *(message.at_us for message in messages)])
    wanted = (breakage.trouble, breakage.afterlife) if breakage else (None, None)
    faults = draw_faults(chance, settings.inputs, settings.estimates, START_US, ends_us, *wanted)
    if breakage.trouble == "skips" if breakage else _may_skip(faults) and seed % 4 == 0:
        faults = draw_skips(random.Random(seed), faults, START_US, ends_us)
        # What an open batch has written is not yet told from what other skips have changed: see `_pass_over_held` in `stage.py`.
        settings = replace(settings, opens=settings.opens and breakage is not None)
    if settings.opens:
        faults += draw_open_crashes(random.Random(f"crashes in open batches {seed}"), faults, breakage.afterlife if breakage else None)
        faults = without_zombie_tasks(faults)
    return Scenario(seed, settings, messages, faults, chance.getrandbits(64), ends_us)


def _draw_opening(seed: int, drawn: Settings) -> dict[str, bool | int | None]:
    """Draw whether batches may stay open: with a chance of its own, for the same reason. The planner alone reads imported time."""
    chance = random.Random(f"open batches {seed}")
    if chance.random() > 0.7 or drawn.imported_lag_us is not None:
        return {}
    # A job that is always behind never stays open.
    return {"opens": True, "batch_events": chance.choice([drawn.batch_events, 40, 1000])}


def _may_skip(faults: tuple[Fault, ...]) -> bool:
    """Whether nothing was drawn that :func:`draw_skips` excludes, or itself draws."""
    kinds = {fault.kind for fault in faults}
    return not kinds & {"journal away", "journal wiped", "checkpoint lost", "partition joins"}


def _draw_settings(chance: random.Random, span_us: int, early_action: Action) -> Settings:
    over = chance.random() < 0.5
    second = span_us // 60
    policies = Policies(
        early_us=chance.choice([None, None, 0, 2 * second, 10 * second]),
        early_action=early_action,
        late_us=chance.choice([0, second, 3 * second, 10 * second, *([] if over else [None])]),
        late_action=chance.choice([Action.ADJUST, Action.ADJUST, Action.DROP]),
        reorder_us=chance.choice([-1, 0, 0, second, 5 * second]),
        cti_violation_action=chance.choice(list(Action)),
        out_of_order_action=chance.choice([Action.ADJUST, Action.ADJUST, Action.DROP]),
    )
    return Settings(
        policies=policies,
        over=over,
        inputs=chance.choice([1, 2, 2, 3, 4]),
        output_partitions=chance.choice([1, 2, 3]),
        shape=chance.choice([Shape.POINT, Shape.POINT, Shape.INTERVAL, Shape.EDGE]),
        generation=_draw_generation(chance, over, second),
        cti_bytes_max=chance.choice([70, 900_000]),
        imported_lag_us=chance.choice([None, None, None, second, 10 * second]),
        estimates=chance.random() < 0.8,
        cadence_us=span_us // chance.randint(5, 25),
        margin_us=chance.choice([0, second // 2]) or 500 * MILLISECOND_US,
        batch_events=chance.choice([3, 10, 40, 1000]),
        piece_events=chance.choice([1, 4, 1000]),
        drift_ppm=chance.choice([0, 0, 100, 20_000, 200_000]),
        steady=chance.random() < 0.3,
        until_end=chance.random() < 0.4,
    )


def _draw_generation(chance: random.Random, over: bool, second: int) -> Generation:
    often = chance.random() < 0.4
    return Generation(
        every_events=chance.choice([None, 1, 3, 10]) if often else None,
        every_us=chance.choice([None, second, 5 * second]) if often else None,
        delay_us=chance.choice([0, 0, 0, second]),
        list_substreams=over and chance.random() < 0.5,
    )


def _draw_messages(chance: random.Random, settings: Settings, span_us: int) -> tuple[Message, ...]:
    """Draw each partition's traffic: busy, in bursts, slow, silent after a while, or never a record."""
    stamped = chance.random() < 0.2
    ctis = chance.random() < 0.3
    messages: list[Message] = []
    # Two more may join.
    for partition in range(settings.inputs + 2):
        habit = chance.choice(["busy", "busy", "bursts", "bursts", "slow", "silent", "never"])
        size = {"busy": 60, "bursts": 60, "slow": 8, "silent": 15, "never": 0}[habit]
        size = chance.randint(size // 4, size)
        at_us, mean_us = START_US, span_us // max(size, 1)
        for _ in range(size):
            at_us += _gap_us(chance, habit, mean_us)
            message = _draw_message(chance, settings, partition, at_us, span_us // 60, stamped)
            if ctis and chance.random() < 0.1:
                c_us = at_us + chance.choice([-3, -1, 0, 2, 40]) * span_us // 60
                message = Message(partition, at_us, None, None, source_cti_us=c_us)
            messages += _shaped(chance, settings.shape, message, span_us // 60)
    messages.sort(key=lambda message: message.at_us)
    return tuple(messages)


def _shaped(chance: random.Random, shape: Shape, message: Message, second: int) -> list[Message]:
    """Give a message its shape; a start edge is often followed by its end."""
    t = message.event_time_us
    if shape is Shape.POINT or message.source_cti_us is not None:
        return [message]
    if t is None:
        return [replace(message, end_us=0) if shape is Shape.INTERVAL else replace(message, start_us=NEVER)]
    end_us = t + chance.choice([-second, 0, 1, second, 3 * second, 20 * second])
    if shape is Shape.INTERVAL:
        return [replace(message, end_us=end_us)]
    start = replace(message, start_us=NEVER)
    at_us = message.at_us + chance.choice([0, 0, second, 3 * second])
    return [start] if chance.random() < 0.4 else [start, replace(message, at_us=at_us, event_time_us=end_us, start_us=t, hole=0)]


def steady_message(shape: Shape, now_us: int) -> Message:
    """Return a message of the first partition that happens and arrives now."""
    ends_us, starts_us = (now_us + 1 if shape is Shape.INTERVAL else None), (NEVER if shape is Shape.EDGE else None)
    return Message(0, now_us, now_us, b"a", end_us=ends_us, start_us=starts_us)


def _gap_us(chance: random.Random, habit: str, mean_us: int) -> int:
    if habit == "silent":
        return chance.randrange(mean_us // 4 + 1)
    if habit == "bursts":
        return chance.randrange(mean_us // 20 + 1) if chance.random() < 0.9 else chance.randrange(15 * mean_us)
    return chance.choice([0, 1, chance.randrange(2 * mean_us + 1)])


def _draw_message(chance: random.Random, settings: Settings, partition: int, at_us: int, second: int, stamped: bool) -> Message:
    # Times on a coarse grid, so that equal ones and full tolerances are common.
    grain = max(second // 4, 1)
    late = settings.policies.late_us or 2 * second
    around = chance.choice([0, late, late + (settings.policies.reorder_us if settings.policies.reorder_us > 0 else 0)])
    event_time_us = at_us // grain * grain - around + chance.choice([0, 0, 1, -1, 2, -3, 6, -9, 50]) * grain
    # Kafka's stamps are whole milliseconds.
    stamp_us = at_us + chance.choice([0, 0, -2, 3, -20]) * second if stamped else None
    if stamped and chance.random() < 0.05:
        stamp_us = chance.choice([-MILLISECOND_US, 0, at_us + 3 * DAY_US])
    return Message(
        partition,
        at_us,
        None if chance.random() < 0.05 else event_time_us,
        chance.choice(_KEYS[:3] if chance.random() < 0.7 else _KEYS) if settings.over or chance.random() < 0.8 else None,
        chance.choice([0] * 12 + [1, 3]),
        stamp_us,
    )
