"""
Sinks that run in the driver of the query that writes their topics (``sink_in_job``): the same copiers, without a process of their own.

Law: a store that is away holds up its copier alone; the query goes on, and its topic keeps what the store lacks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Self

from sinks.copying.job import SinkJob, prepare
from sinks.parquet_columns import Column
from tidegate.observe.metrics import Metrics
from tidegate.settings.load import Settings

_TURN_S = 0.5


class SinksBeside:
    """The sinks of those outputs whose settings ask for it, as a context manager; *columns* are those of each output that is written."""

    def __init__(self, settings: Settings, columns: Mapping[str, Sequence[Column]]) -> None:
        wanted = [name for name in columns if settings.outputs[name].sink_in_job]
        self._jobs = {name: SinkJob(prepare(settings, name, columns[name])) for name in wanted}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        for job in self._jobs.values():
            self._open.enter_context(job)
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def poll(self, metrics: Metrics) -> dict[str, tuple[str, str]]:
        """Publish their progress; return the state of each. Raises TidegateError: one cannot go on."""
        for name, job in self._jobs.items():
            job.poll()
            metrics.set_sink(name, job.counts(), job.lags)
        return {f"sink {name}": job.state for name, job in self._jobs.items()}

    def finish(self, each_turn: Callable[[], None], is_asked_to_stop: Callable[[], bool] = lambda: False) -> None:
        """Return once the stores have all results of topics that have ended, or when asked to stop."""
        while not all(job.is_done for job in self._jobs.values()) and not is_asked_to_stop():
            each_turn()
            time.sleep(_TURN_S)
