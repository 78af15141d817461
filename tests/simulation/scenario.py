"""
A scenario: everything that decides a simulated run, drawn from one seed before the run begins.

Law: a run is a pure function of its scenario. Messages and faults are plain lists, so a failing scenario is shrunk by
leaving some of them out and running again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from simulation.faults import Fault, draw_faults

from ordering.policies import Action, Policies
from ordering.ticks import DAY_US, MILLISECOND_US, SECOND_US

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
    """

    partition: int
    at_us: int
    event_time_us: int | None
    key: bytes | None
    hole: int = 0
    stamp_us: int | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """
    One job and the world around it. Durations are microseconds.

    Args:
        estimates: Whether silence advances time.
        batch_events: Most records of one batch.
        piece_events: Most records of one step of the model.
        drift_ppm: How much faster the drivers' monotonic clocks run, each within plus or minus this.
        steady: Whether the first partition gets records all through the calm end, too.
        until_end: Whether the run ends with the final CTI.
        arrival_max_ahead_us: Arrivals further ahead of the planner's clock are dead-lettered.
    """

    policies: Policies
    over: bool
    inputs: int
    output_partitions: int
    estimates: bool
    cadence_us: int
    margin_us: int
    batch_events: int
    piece_events: int
    drift_ppm: int
    steady: bool
    until_end: bool
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


def draw(seed: int) -> Scenario:
    """Return the scenario of *seed*."""
    chance = random.Random(seed)
    span_us = chance.choice([20, 60, 300]) * SECOND_US
    settings = _draw_settings(chance, span_us)
    messages = _draw_messages(chance, settings, span_us)
    ends_us = max([START_US + span_us, *(message.at_us for message in messages)])
    faults = draw_faults(chance, settings.inputs, settings.estimates, START_US, ends_us)
    return Scenario(seed, settings, messages, faults, chance.getrandbits(64), ends_us)


def _draw_settings(chance: random.Random, span_us: int) -> Settings:
    over = chance.random() < 0.5
    second = span_us // 60
    policies = Policies(
        early_us=chance.choice([None, None, 0, 2 * second, 10 * second]),
        late_us=chance.choice([0, second, 3 * second, 10 * second, *([] if over else [None])]),
        late_action=chance.choice([Action.ADJUST, Action.ADJUST, Action.DROP]),
        reorder_us=chance.choice([-1, 0, 0, second, 5 * second]),
        out_of_order_action=chance.choice([Action.ADJUST, Action.ADJUST, Action.DROP]),
    )
    return Settings(
        policies=policies,
        over=over,
        inputs=chance.choice([1, 2, 2, 3, 4]),
        output_partitions=chance.choice([1, 2, 3]),
        estimates=chance.random() < 0.8,
        cadence_us=span_us // chance.randint(5, 25),
        margin_us=chance.choice([0, second // 2]) or 500 * MILLISECOND_US,
        batch_events=chance.choice([3, 10, 40, 1000]),
        piece_events=chance.choice([1, 4, 1000]),
        drift_ppm=chance.choice([0, 0, 100, 20_000, 200_000]),
        steady=chance.random() < 0.3,
        until_end=chance.random() < 0.4,
    )


def _draw_messages(chance: random.Random, settings: Settings, span_us: int) -> tuple[Message, ...]:
    """Draw each partition's traffic: busy, in bursts, slow, silent after a while, or never a record."""
    stamped = chance.random() < 0.2
    messages: list[Message] = []
    for partition in range(settings.inputs):
        habit = chance.choice(["busy", "busy", "bursts", "bursts", "slow", "silent", "never"])
        size = {"busy": 60, "bursts": 60, "slow": 8, "silent": 15, "never": 0}[habit]
        size = chance.randint(size // 4, size)
        at_us, mean_us = START_US, span_us // max(size, 1)
        for _ in range(size):
            at_us += _gap_us(chance, habit, mean_us)
            messages.append(_draw_message(chance, settings, partition, at_us, span_us // 60, stamped))
    messages.sort(key=lambda message: message.at_us)
    return tuple(messages)


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
