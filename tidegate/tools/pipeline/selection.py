"""
The stages that run, made in the order of their data: an input before those that import its CTIs, a query after what it reads, a sink
after its query.

Law: the order decides only how soon all stages run. A stage whose topic is not there yet waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from ordering.errors import SettingError, TidegateError
from query.listed import listed_query
from tidegate.platform.settings.load import Settings
from tidegate.tools.pipeline.choice import KINDS
from tidegate.tools.pipeline.stages import PipelineIngest, PipelineQuery, SinkStage, Stage, Surroundings


def make_stages(
    settings: Settings, labels: Sequence[str], around: Surroundings, on_failure: Callable[[str, TidegateError], None]
) -> list[Stage]:
    """
    Make the stages *labels* in the order of their data. A stage that cannot be made, since its script is wrong for example, is left out:
    *on_failure* gets its label and the error.
    """
    names = {kind: [label.partition(":")[2] for label in labels if label.startswith(f"{kind}:")] for kind in KINDS}
    queries: dict[str, PipelineQuery] = {}
    # Scripts of queries that do not run here are read for the columns of their outputs.
    for name in settings.queries:
        try:
            queries[name] = PipelineQuery(name, listed_query(settings, name), around)
        except TidegateError as error:
            if name in names["query"]:
                on_failure(f"query:{name}", error)
    stages: list[Stage] = [PipelineIngest(name, around) for name in names["ingest"]]
    stages += [query for query in _by_data(queries) if query.name in names["query"]]
    for name in names["sink"]:
        try:
            stages.append(SinkStage(name, _columns_of(settings, name, queries), around))
        except TidegateError as error:
            on_failure(f"sink:{name}", error)
    return stages


def _by_data(queries: Mapping[str, PipelineQuery]) -> list[PipelineQuery]:
    writers = {output: query for query in queries.values() for output in query.writes}
    needs = {query.name: {writers[name].name for name in query.reads if name in writers} - {query.name} for query in queries.values()}
    try:
        return [queries[name] for name in TopologicalSorter(needs).static_order()]
    except CycleError as error:
        what = f"queries read each other's results in a circle: {', '.join(error.args[1])}"
        raise SettingError(what, code="TG-SETTING-CONFLICT", where="queries", fix="take one of them out of the circle") from None


def _columns_of(settings: Settings, output: str, queries: Mapping[str, PipelineQuery]) -> Sequence[tuple[str, str]]:
    for query in queries.values():
        if output in query.writes:
            return query.columns_of(output)
    from query.output_plan import columns_of

    return columns_of(settings, output, None)
