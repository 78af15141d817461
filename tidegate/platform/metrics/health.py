"""
The health of the jobs of one process, for ``/live``, ``/ready`` and the metric ``tidegate_job_state``.

Law: *live* means that the driver's loop turns; a process that is not live hangs and may be killed. *Ready* means that each job works: it
has started, has not failed, and does not wait for brokers, stores or executors. A job that is behind its input works.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

STATES = ("starting", "replaying", "live", "waiting", "failed")
_WORKING = ("replaying", "live")
# The driver's loop turns about once a second. If it has not turned for this long, it hangs; seconds.
LIVE_WITHIN_S = 60.0


class Health:
    """The states of a process's jobs, as its driver reports them; *clock_s* is a clock that never goes back, in seconds."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        # None until the loop has begun: a start may take long.
        self._turned_s: float | None = None
        self._jobs: Mapping[str, tuple[str, str]] = {}

    def turn(self, jobs: Mapping[str, tuple[str, str]]) -> None:
        """Note that the driver's loop has turned; *jobs*: by name (``ingest flights``), the state, and why the job waits or has failed."""
        # The HTTP server's threads iterate over the mapping, so it is replaced, never changed.
        self._turned_s, self._jobs = self._clock_s(), dict(jobs)

    @property
    def states(self) -> Mapping[str, str]:
        return {name: state for name, (state, _) in self._jobs.items()}

    def live(self) -> tuple[bool, str]:
        """Return whether the process is live, and why not."""
        silent_s = 0.0 if self._turned_s is None else self._clock_s() - self._turned_s
        return (True, "live") if silent_s < LIVE_WITHIN_S else (False, f"the driver's loop has not turned for {silent_s:.0f} s")

    def ready(self) -> tuple[bool, str]:
        """Return whether each job works, and a line for each."""
        lines = [f"{name}: {state}{f': {reason}' if reason else ''}" for name, (state, reason) in sorted(self._jobs.items())]
        is_working = bool(self._jobs) and all(state in _WORKING for state in self.states.values())
        return is_working and self.live()[0], "\n".join(lines or ["starting"])
