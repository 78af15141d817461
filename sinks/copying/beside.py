"""
Sinks that run in the driver of the query that writes their topics (``sink_in_job``): the same copiers, without a process of their own.

Law: a store that does not answer stops only its own copier. The query goes on, and its topic keeps the results that the store lacks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Self

from ordering.errors import RefusedError, UnreachableError
from sinks.copying.job import SinkJob, prepare
from sinks.stores.checking import check_stores
from tidegate.platform.metrics.job_metrics import Metrics
from tidegate.platform.observe.logs import Ticks
from tidegate.platform.observe.stopping import stop_on_signal
from tidegate.platform.settings.load import Settings
from tidegate.records.result_columns import Column

_TURN_S = 0.5


def check_beside(settings: Settings, selected: Mapping[str, Sequence[Column]]) -> None:
    """
    Raise StoreError if a store does not fit the columns that a script has *selected*, by output. Called before the query is bound to its
    checkpoint, while the script may still be changed. A store that does not answer is no error: the sink waits for it.
    """
    for output in (settings.outputs[name] for name in selected if name in settings.outputs):
        for error in check_stores(output, selected[output.name]) if output.sink_in_job else ():
            if not isinstance(error, UnreachableError):
                raise error


def copy_rest(settings: Settings, selected: Mapping[str, Sequence[Column]]) -> int:
    """Copy the results of an ended query that its stores lack; return their number."""
    try:
        beside = SinksBeside(settings, selected)
    except RefusedError as error:
        if error.code == "TG-TOPIC-MISSING":
            return 0
        raise
    with stop_on_signal() as stop, beside as sinks:
        metrics = Metrics(settings.metrics.port, settings.metrics.host)
        sinks.finish(lambda: sinks.poll(metrics), lambda: stop.is_asked)
    return sinks.copied


class SinksBeside:
    """The sinks of those outputs whose settings ask for it, as a context manager; the script has *selected* columns for each output."""

    def __init__(self, settings: Settings, selected: Mapping[str, Sequence[Column]]) -> None:
        wanted = [output for name in selected if (output := settings.outputs[name]).sink_in_job]
        self._jobs = {output.name: SinkJob(prepare(settings, output.name, output.columns_of(selected[output.name]))) for output in wanted}
        self._open = ExitStack()
        # The jobs that are to end at the present end of their topics, and do not know it yet.
        self._without_end: list[SinkJob] = []

    def __enter__(self) -> Self:
        for job in self._jobs.values():
            self._open.enter_context(job)
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    @property
    def are_done(self) -> bool:
        """Whether the stores have all results: their topics have ended, or :meth:`end_at_present` has read the present ends."""
        return all(job.is_done for job in self._jobs.values())

    @property
    def copied(self) -> int:
        """How many results the stores have taken or refused."""
        return sum(counts["rows"] + counts["refused"] for job in self._jobs.values() for counts in job.counts().values())

    def poll(self, metrics: Metrics) -> dict[str, tuple[str, str]]:
        """Publish the progress of the sinks; return the state of each. Raises TidegateError: a sink cannot go on."""
        self._give_ends()
        for name, job in self._jobs.items():
            job.poll()
            metrics.set_sink(name, job.stores())
        return {f"sink {name}": job.state for name, job in self._jobs.items()}

    def finish(self, each_turn: Callable[[], object], is_asked_to_stop: Callable[[], bool]) -> None:
        """Return once the stores have all results of the query, which has stopped, or when asked to stop."""
        self.end_at_present()
        take_turn = Ticks(each_turn)
        while not self.are_done and not is_asked_to_stop():
            take_turn()
            self._give_ends()
            time.sleep(_TURN_S)

    def end_at_present(self) -> None:
        """
        Be done once the stores have all results that are in the topics now. Called when the query has stopped: one with --until writes no
        final CTI that would show the copiers the end.
        """
        self._without_end = list(self._jobs.values())
        self._give_ends()

    def _give_ends(self) -> None:
        with suppress(UnreachableError):
            while self._without_end:
                self._without_end[-1].end_at_present()
                self._without_end.pop()
