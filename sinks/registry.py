"""
The sinks of an output: those of its settings, and those that other packages provide by entry point.

A package provides a sink as ``name = "package.module:make"`` under ``tidegate.sinks``; ``make(context)`` returns a
:class:`~sinks.base.Sink`. It is called in the worker that writes results, once for each job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sinks.base import Sink, SinkError
from sinks.console import ConsoleSink
from sinks.files import FileSink
from sinks.plain_topic import PlainTopicSink
from tidegate.basics.package_offers import find_offers, load_offer
from tidegate.language.expressions.syntax.errors import suggest
from tidegate.platform.settings.tables.outputs import OutputSettings
from tidegate.records.result_columns import Column

ENTRY_POINT_GROUP = "tidegate.sinks"
_FAIL = partial(SinkError, code="TG-EXTENSION")


@dataclass(frozen=True)
class SinkContext:
    """
    The output of a sink.

    Args:
        span_us: The length of a span, microseconds.
        options: The output's ``sink_options``.
        kafka: librdkafka properties, secrets included.
        columns: Name and type of each column of the query (:mod:`tidegate.records.result_columns`).
    """

    output: str
    span_us: int
    options: Mapping[str, str]
    kafka: Mapping[str, str]
    columns: Sequence[Column] = ()


def make_sinks(output: OutputSettings, kafka: Mapping[str, str], result_bytes_max: int | None, columns: Sequence[Column]) -> list[Sink]:
    """
    Return the sinks of an output beside its ordered topic. *result_bytes_max* is the most bytes of a result if the output has topics;
    *columns* are name and type of each column of its query. Raises SinkError: no package has a sink of that name (TG-SINK-UNKNOWN), or
    several have, or it cannot be imported (TG-EXTENSION).
    """
    sinks: list[Sink] = []
    if output.files is not None:
        sinks.append(FileSink(output.files, output.file_format, output.file_span_us, columns, by_date=output.file_folders == "date"))
    if output.plain_topic is not None:
        sinks.append(PlainTopicSink(kafka, output.plain_topic, output.file_span_us, result_bytes_max))
    if output.sink is not None:
        sinks.append(_make_named_sink(output.sink, SinkContext(output.name, output.file_span_us, output.sink_options, kafka, columns)))
    return sinks


_BUILT_IN: dict[str, Callable[[SinkContext], Sink]] = {"console": lambda context: ConsoleSink(context.span_us, context.output)}


def _make_named_sink(name: str, context: SinkContext) -> Sink:
    if name in _BUILT_IN:
        return _BUILT_IN[name](context)
    extensions = find_offers(ENTRY_POINT_GROUP, _FAIL, only=name.lower())
    if name not in extensions:
        known = [*_BUILT_IN, *sorted(extensions)]
        fix = suggest(name, known, f"there are {', '.join(known)}; others come with packages that offer them")
        raise SinkError(f"there is no sink {name}", code="TG-SINK-UNKNOWN", where=f"outputs.{context.output}.sink", fix=fix)
    sink: Sink = load_offer(extensions[name], _FAIL)(context)
    return sink
