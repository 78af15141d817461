"""
Output start times: from which time on a new ordered topic holds events (spec section 6).
Law: a run with output start S writes the events with s >= S of a run from the beginning, in the same order, numbered from 0. A run keeps
its start: the same start, no ``--start`` or ``last-stopped`` continues it; another one is refused, since it would leave a gap or repeat
events.
"""

from __future__ import annotations

from ordering.errors import RefusedError
from tidegate.checkpoint.output_start import Start, continues_run


def refuse_other_start(requested: Start | None, known: Start | None, ordered_topic: str, folder: str) -> None:
    """Raise RefusedError (TG-START-BOUND) if *requested* is not the run's *known* start."""
    if continues_run(requested, known):
        return
    assert requested is not None, "no wish goes on"
    first_start = "at a start that nobody remembers" if known is None else f"with --start {known.text}"
    raise RefusedError(
        f"ordered topic {ordered_topic} was begun {first_start}; "
        f"--start {requested.text} would leave a hole in it or repeat what is written",
        code="TG-START-BOUND",
        where=ordered_topic,
        fix="leave --start out (or --start last-stopped) to go on; to begin anew write to a new ordered topic (set ordered_topic), "
        f"or delete {ordered_topic} and {folder}",
        example="--start last-stopped",
    )
