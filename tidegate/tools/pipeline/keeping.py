"""
Keeps the stages of a pipeline going: each is opened, looked at once a second, and opened again after a failure that may pass.

Law: a stage that fails stops no other. One that fails by its settings, its script or its data's state would fail again: it stays failed,
and says so. Any other failure, such as a killed worker or a broker that does not answer, is tried again after a pause that doubles from
``PAUSE_MIN_S`` to ``PAUSE_MAX_S``. The end of the JVM ends them all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import StrEnum

from ordering.errors import ProtocolError, QueryError, RefusedError, SettingError, TidegateError
from ordering.ticks import INFINITY, NEVER, SECOND_US, format_duration
from tidegate.platform.checkpoint.ended_run import RunEnded
from tidegate.platform.observe.logs import get_logger
from tidegate.platform.spark.driver import GONE
from tidegate.tools.pipeline.stages import Figures, Stage, describe_pause

PAUSE_MIN_S, PAUSE_MAX_S = 1.0, 60.0
# How long a stage has to run until its next failure counts as its first.
_STEADY_S = 120.0
# How often a pause is interrupted to look for a request to stop, seconds.
_LOOK_EVERY_S = 0.25
# Refusals that pass by themselves: what another stage makes, or another process still holds.
_PASSING = ("TG-TOPIC-MISSING", "TG-CHECKPOINT-TAKEN")


class Phase(StrEnum):
    """What becomes of a stage."""

    WAITING = "waiting"
    OPEN = "open"
    ENDED = "ended"
    FAILED = "failed"


class KeptStage:
    """One stage with its restarts; *clock_s* is a clock that never goes back."""

    def __init__(self, stage: Stage, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.stage, self._clock_s = stage, clock_s
        self.phase = Phase.WAITING
        self.failure: TidegateError | None = None
        self.restarts = 0
        # What the stage has said last.
        self.last_line = ""
        self._next_s, self._pause_s, self._opened_s = clock_s(), PAUSE_MIN_S, 0.0
        self._log = get_logger("run", stage=stage.label)

    @property
    def is_over(self) -> bool:
        """Whether the stage neither runs nor will run again."""
        return self.phase in (Phase.ENDED, Phase.FAILED)

    @property
    def is_calm(self) -> bool:
        """Whether nobody waits for the next look at the stage: it is over, or open and not watched."""
        return self.is_over or (self.phase is Phase.OPEN and not self.stage.is_watched)

    @property
    def lacks_topic(self) -> bool:
        """Whether the stage waits for a topic that another stage makes."""
        return self.phase is Phase.WAITING and self.failure is not None and self.failure.code == "TG-TOPIC-MISSING"

    def turn(self) -> None:
        """Open the stage if it is time, or look at it. Raises TidegateError: the JVM has ended, so all stages have."""
        try:
            if self.phase is Phase.WAITING and self._clock_s() >= self._next_s:
                self.stage.open()
                self.phase, self._opened_s = Phase.OPEN, self._clock_s()
            if self.phase is Phase.OPEN:
                has_ended = self.stage.poll()
                self.last_line = describe(self.stage.figures())
                if has_ended:
                    self._end(Phase.ENDED)
                elif self.failure is not None and self._clock_s() - self._opened_s > _STEADY_S:
                    self.failure, self._pause_s = None, PAUSE_MIN_S
        except RunEnded as ended:
            self._log.info(ended.line("a new output takes them"))
            self._end(Phase.ENDED)
        except TidegateError as error:
            self._fail(error)

    def stop(self) -> None:
        """Close the stage."""
        with suppress(TidegateError):
            self.stage.close()

    def state(self) -> tuple[str, str]:
        """Return the state for health checks and ``status``, and the reason for it."""
        if self.phase is Phase.OPEN:
            return self.stage.state()
        if self.phase is Phase.WAITING and self.failure is not None:
            return "waiting", f"{self.failure.code}: {self.failure.what}"
        state = {Phase.WAITING: "starting", Phase.ENDED: "ended", Phase.FAILED: "failed"}[self.phase]
        return state, self.failure.code if self.failure else ""

    def line(self) -> str:
        """Return what the stage does in a line."""
        if self.phase is Phase.OPEN:
            state, reason = self.stage.state()
            return f"{state:<9} {reason or self.last_line}"
        if self.failure is None:
            return f"has ended: {self.last_line}" if self.phase is Phase.ENDED else "starting"
        again = f"; again in {describe_pause(self._next_s)}" if self.phase is Phase.WAITING else ""
        return f"{self.phase}: {self.failure.code}: {self.failure.what}{again}"

    def _end(self, phase: Phase) -> None:
        self.phase = phase
        if phase is Phase.ENDED:
            self.failure = None
        self.stop()

    def _fail(self, error: TidegateError) -> None:
        is_new = self.failure is None or (self.failure.code, self.failure.what) != (error.code, error.what)
        self.failure = error
        if error.code == GONE:
            self._end(Phase.FAILED)
            raise error
        if is_final(error):
            self._end(Phase.FAILED)
            self._log.error("this stage has failed; the others go on", error=error)
            return
        self._end(Phase.WAITING)
        if error.code in _PASSING:
            self._next_s = self._clock_s() + PAUSE_MIN_S
            if is_new:
                self._log.info("this stage waits", error=error)
            return
        self._log.warning("this stage has failed and is started again", error=error, pause_s=self._pause_s)
        self.restarts += 1
        self._next_s, self._pause_s = self._clock_s() + self._pause_s, min(2 * self._pause_s, PAUSE_MAX_S)


def describe(figures: Figures, now_us: Callable[[], int] = lambda: time.time_ns() // 1000) -> str:
    """Return rate, lag, watermark delay and what was written, in columns."""
    rate = "-" if figures.rate is None else f"{figures.rate:,.0f}/s"
    is_known = NEVER < figures.complete_us < INFINITY
    delay = format_duration(max(now_us() - figures.complete_us, 0) // SECOND_US * SECOND_US) if is_known else "-"
    return f"{rate:>10}  lag {figures.lag:>9,}  delay {delay:>9}  {figures.written}".rstrip()


def is_final(error: TidegateError) -> bool:
    """Return whether a stage that has failed so would fail again."""
    if isinstance(error, (SettingError, QueryError, ProtocolError)):
        return True
    return isinstance(error, RefusedError) and error.code not in _PASSING


def keep_going(
    stages: Sequence[KeptStage],
    is_asked_to_stop: Callable[[], bool],
    each_turn: Callable[[], None],
    pause_s: float,
    calm_pause_s: float,
    *,
    until_end: bool = False,
) -> None:
    """
    Return when all stages are over, or when asked to stop; all are closed then, the last of the data first. Between two looks at the stages
    it pauses: *calm_pause_s* if none is waiting to be opened and no client watches one. With *until_end* stages that only wait for topics
    are over too if a stage has failed: nobody here makes those topics any more.
    """
    try:
        while not is_asked_to_stop() and not all(kept.is_over for kept in stages):
            for kept in stages:
                if not kept.is_over and not is_asked_to_stop():
                    phase = kept.phase
                    kept.turn()
                    if kept.phase is not phase:
                        # It was opened, which takes a while, or has ended.
                        each_turn()
            each_turn()
            if (
                until_end
                and any(kept.phase is Phase.FAILED for kept in stages)
                and all(kept.is_over or kept.lacks_topic for kept in stages)
            ):
                break
            _pause(calm_pause_s if all(kept.is_calm for kept in stages) else pause_s, is_asked_to_stop)
    finally:
        for kept in reversed(stages):
            if kept.phase is Phase.OPEN:
                kept.stop()


def _pause(pause_s: float, is_asked_to_stop: Callable[[], bool]) -> None:
    until_s = time.monotonic() + pause_s
    while (left_s := until_s - time.monotonic()) > 0 and not is_asked_to_stop():
        time.sleep(min(left_s, _LOOK_EVERY_S))
