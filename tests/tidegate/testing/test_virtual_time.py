"""The time of a test: it moves only when the test says so. Level 3: the same events, so the same results, on every run."""

from __future__ import annotations

from tidegate.testing import run_query
from tidegate.testing.virtual_time import VirtualTime

COUNTS = "SELECT COUNT(*) AS n FROM rides TIMESTAMP BY at GROUP BY TumblingWindow(second, 10)"


def test_events_arrive_at_its_present() -> None:
    """And happened earlier if they are late: the policies judge them so."""
    clock = VirtualTime()
    rows = [clock.event(k="a")]
    clock.advance("20s")
    rows += [clock.event(k="b"), clock.event(k="c", late="9s"), clock.event(k="d", late="3s")]
    assert clock.now.startswith("2026-01-01T00:00:20")
    run = run_query(COUNTS, {"rides": rows}, {"late": "5s", "late_action": "drop", "reorder": "4s"})
    assert [fate.reason for fate in run.fates] == ["", "", "late", ""]
    assert [row["n"] for row in run.rows] == [1, 2]
