"""Restarts of stages and their order, without services: what a stage does is played by stages of the test."""

from __future__ import annotations

from typing import Any

import pytest

from ordering.errors import GapError, QueryError, RefusedError, SettingError, TidegateError, UnreachableError
from tidegate.platform.checkpoint.ended_run import RunEnded
from tidegate.platform.settings.load import Settings
from tidegate.platform.spark.driver import GONE
from tidegate.tools.pipeline import keeping
from tidegate.tools.pipeline.choice import choose
from tidegate.tools.pipeline.keeping import PAUSE_MAX_S, KeptStage, Phase, describe, is_final, keep_going
from tidegate.tools.pipeline.stages import Figures, Stage


class Played(Stage):
    """A stage that opens and polls as the test has written down: an error is raised, anything else is returned."""

    kind = "query"

    def __init__(self, name: str, *script: TidegateError | bool) -> None:
        super().__init__(name, around=None)  # type: ignore[arg-type]
        self.script, self.calls = list(script), list[str]()

    def open(self) -> None:
        self.calls.append("open")
        if self.script and isinstance(self.script[0], TidegateError):
            raise self.script.pop(0)  # type: ignore[misc]

    def poll(self) -> bool:
        self.calls.append("poll")
        step = self.script.pop(0) if self.script else False
        if isinstance(step, TidegateError):
            raise step
        return step

    def close(self) -> None:
        self.calls.append("close")

    def state(self) -> tuple[str, str]:
        return "live", ""

    def figures(self) -> Figures:
        return Figures(1_234.5, 17, 1_700_000_000_000_000, "at work")

    def summary(self) -> dict[str, Any]:
        return {}


class Clock:
    """A clock that only the test moves."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def refused(code: str) -> RefusedError:
    """Return a refusal with a code."""
    return RefusedError("no", code=code)


@pytest.mark.parametrize(
    ("error", "final"),
    [
        (SettingError("x"), True),
        (QueryError("x"), True),
        (GapError("x"), True),
        (refused("TG-CHECKPOINT-SETTINGS"), True),
        (refused("TG-TOPIC-MISSING"), False),
        (refused("TG-CHECKPOINT-TAKEN"), False),
        (UnreachableError("x"), False),
        (TidegateError("a worker is gone", code="TG-SPARK"), False),
    ],
)
def test_what_would_fail_again_is_not_tried_again(error: TidegateError, final: bool) -> None:
    """Settings, scripts and the state of data do not mend themselves; brokers and workers may."""
    assert is_final(error) is final


def test_pauses_double_up_to_a_minute_and_a_steady_run_ends_them() -> None:
    """A stage that fails at each start is asked less and less often."""
    clock = Clock()
    kept = KeptStage(Played("q", *[UnreachableError("kafka is away") for _ in range(9)]), clock)
    pauses, opened_s = [], clock.now_s
    for _ in range(2_000):
        calls = len(kept.stage.calls)  # type: ignore[attr-defined]
        kept.turn()
        if "open" in kept.stage.calls[calls:]:  # type: ignore[attr-defined]
            pauses.append(clock.now_s - opened_s)
            opened_s = clock.now_s
        clock.now_s += 1
    assert pauses == [0, 1, 2, 4, 8, 16, 32, PAUSE_MAX_S, PAUSE_MAX_S, PAUSE_MAX_S]
    assert (kept.phase, kept.restarts, kept.failure) == (Phase.OPEN, 9, None)


def test_a_missing_topic_is_looked_for_every_second() -> None:
    """Another stage is about to make it: this is no failure that counts."""
    clock = Clock()
    kept = KeptStage(Played("q", *[refused("TG-TOPIC-MISSING") for _ in range(5)]), clock)
    for _ in range(6):
        assert kept.phase is Phase.WAITING
        kept.turn()
        clock.now_s += 1
    assert (kept.phase, kept.restarts) == (Phase.OPEN, 0)


def test_one_that_fails_for_good_stops_no_other() -> None:
    """Each comes to its own end, and all are closed."""
    wrong, good, done = Played("wrong", QueryError("no")), Played("good", False, False, True), Played("done", RunEnded("over"))
    stages = [KeptStage(stage) for stage in (wrong, good, done)]
    keep_going(stages, lambda: False, lambda: None, 0.0, 0.0)
    assert [kept.phase for kept in stages] == [Phase.FAILED, Phase.ENDED, Phase.ENDED]
    assert [stage.calls[-1] for stage in (wrong, good, done)] == ["close"] * 3
    assert stages[0].state() == ("failed", "TG-QUERY")


def test_the_end_of_the_jvm_ends_all() -> None:
    """None could go on without it."""
    stages = [KeptStage(Played("a", TidegateError("killed", code=GONE))), KeptStage(Played("b"))]
    with pytest.raises(TidegateError, match="killed"):
        keep_going(stages, lambda: False, lambda: None, 0.0, 0.0)


def test_when_asked_to_stop_the_last_of_the_data_is_closed_first() -> None:
    """What it reads is still written while it stops."""
    closed: list[str] = []

    class Noting(Played):
        def close(self) -> None:
            closed.append(self.name)

    stages = [KeptStage(Noting(name)) for name in ("first", "last")]
    turns = iter([False] * 8)
    keep_going(stages, lambda: next(turns, True), lambda: None, 0.0, 0.0)
    assert closed == ["last", "first"]


def test_a_line_shows_state_rate_lag_and_delay() -> None:
    """In columns, so that the lines of all stages are a table; before the first record and after the end there is no delay."""
    kept = KeptStage(Played("q"))
    assert kept.line() == "starting"
    kept.turn()
    assert kept.line().startswith("live ")
    figures = kept.stage.figures()
    assert describe(figures, lambda: 1_700_000_061_500_000) == "   1,234/s  lag        17  delay      1m1s  at work"
    assert describe(Figures()) == "         -  lag         0  delay         -"


def test_stages_are_looked_at_less_often_while_all_are_open_and_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page shows within half a second what has come, and a stage that waits is opened as soon."""
    pauses: list[float] = []
    monkeypatch.setattr(keeping, "_pause", lambda pause_s, _: pauses.append(pause_s))

    class Watched(Played):
        @property
        def is_watched(self) -> bool:
            return 2 <= len(pauses) < 4

    stages = [KeptStage(Watched("watched")), KeptStage(Played("waits", refused("TG-TOPIC-MISSING"))), KeptStage(Played("over", True))]
    stages[1]._next_s = 0.0
    keep_going(stages, lambda: len(pauses) == 6, lambda: stages[1].__setattr__("_next_s", 0.0), 0.5, 1.0)
    assert pauses == [0.5, 1.0, 0.5, 0.5, 1.0, 1.0]


def test_a_run_to_the_end_does_not_wait_for_topics_of_a_stage_that_has_failed() -> None:
    """Without an end it would: another process may make them."""
    missing = [refused("TG-TOPIC-MISSING") for _ in range(50)]
    stages = [KeptStage(Played("wrong", QueryError("no"))), KeptStage(Played("waits", *missing))]
    keep_going(stages, lambda: False, lambda: None, 0.0, 0.0, until_end=True)
    assert [kept.phase for kept in stages] == [Phase.FAILED, Phase.WAITING]


CONFIGURED: dict[str, Any] = {
    "inputs": {
        "b": {"topic": "b", "import_ctis_from": "a", "timestamp_by": "at"},
        "a": {"topic": "a", "timestamp_by": "at"},
    },
    "outputs": {"r": {"topic": "r"}},
    "queries": {"q": {"script": "q.sql", "into": "r"}},
}


def test_stages_are_chosen_by_name_and_come_in_the_order_of_their_data() -> None:
    """An input after the one whose CTIs it imports, whatever order was asked for."""
    settings = Settings.model_validate(CONFIGURED)
    assert choose(settings, []) == ["ingest:a", "ingest:b", "query:q"]
    assert choose(settings, ["query:q", "ingest:a", "query:q"]) == ["ingest:a", "query:q"]
    with pytest.raises(SettingError, match="there is no stage query:p") as raised:
        choose(settings, ["query:p"])
    assert "query:q" in raised.value.fix
    with pytest.raises(SettingError, match="no stage"):
        choose(Settings.model_validate({}), [])
