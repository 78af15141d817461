"""
Which sinks an output has: those of its settings, and those that other packages offer by entry point.

A package offers a sink as ``name = "package.module:make"`` under ``tidegate.sinks``; ``make(context)`` returns a
:class:`~sinks.base.Sink`. It is made where results are written, in a worker, once for each job there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from sinks.base import Sink, SinkError
from sinks.console import ConsoleSink
from sinks.files import FileSink
from sinks.plain_topic import PlainTopicSink
from tidegate.expressions.syntax.errors import suggest
from tidegate.settings.tables import OutputSettings

GROUP = "tidegate.sinks"


@dataclass(frozen=True)
class Context:
    """
    What a sink is told of its output.

    Args:
        output: The output's name.
        span_us: Length of a span, microseconds.
        options: ``sink_options`` of the output.
        kafka: librdkafka properties, secrets included.
    """

    output: str
    span_us: int
    options: Mapping[str, str]
    kafka: Mapping[str, str]


def sinks_of(output: OutputSettings, kafka: Mapping[str, str]) -> list[Sink]:
    """
    Return the sinks of an output beside its ordered topic.

    Raises:
        SinkError: It names one that nobody offers (TG-SINK-UNKNOWN).
    """
    found: list[Sink] = []
    if output.files is not None:
        found.append(FileSink(output.files, output.file_format, output.file_span_us))
    if output.plain_topic is not None:
        found.append(PlainTopicSink(kafka, output.plain_topic, output.file_span_us))
    if output.sink is not None:
        found.append(_made(output.sink, Context(output.name, output.file_span_us, output.sink_options, kafka)))
    return found


def _console(context: Context) -> Sink:
    return ConsoleSink(context.span_us, context.output)


_OWN: dict[str, Callable[[Context], Sink]] = {"console": _console}


def _made(name: str, context: Context) -> Sink:
    offered: dict[str, Any] = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name in _OWN:
        return _OWN[name](context)
    if name not in offered:
        known = [*_OWN, *sorted(offered)]
        raise SinkError(
            f"there is no sink {name}",
            code="TG-SINK-UNKNOWN",
            where=f"outputs.{context.output}.sink",
            fix=suggest(name, known, f"there are {', '.join(known)}; others come with packages that offer them"),
        )
    sink: Sink = offered[name].load()(context)
    return sink
