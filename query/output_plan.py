"""
The plan of an output's query, and the columns of its results, for those who read or copy results.

Law: they follow from what the settings say of the output, else from the query that is known to have written its topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ordering.errors import RefusedError, TidegateError
from query.javascript.declarations import declare_recorded
from query.plan.nodes import Plan, Project, WindowedAggregate, walk
from query.plan.windows import Window, windows_of
from query.script_plans import bind_plans, read_plans
from tidegate.language.expressions.syntax.parse import parse_script
from tidegate.language.expressions.tree import SystemTimestamp, WindowEnd
from tidegate.platform.checkpoint.query_history import read_runs
from tidegate.platform.kafka.admin import Topic
from tidegate.platform.settings.load import Settings
from tidegate.platform.settings.tables.outputs import OutputSettings
from tidegate.records.result_columns import Column, are_known


def find_plan(settings: Settings, output: OutputSettings, folder: Path, find_topic: Callable[[], Topic | None]) -> Plan | None:
    """Return the plan of an output's query: that of its settings, else of the query that last wrote its topic; None: unknown."""
    return read_plan(settings, output, folder) or _plan_of_last_run(settings, output, find_topic())


def read_plan(settings: Settings, output: OutputSettings, folder: Path) -> Plan | None:
    """Return the plan of an output's query by its settings; None: they name none. *folder* is where the configuration's paths begin."""
    script = output.query or _listed_script(settings, output.name)
    if script is None:
        return None
    plans = read_plans(settings, folder / script, output.name)
    return next((plan for plan in plans if plan.output == output.name), None)


def _listed_script(settings: Settings, output: str) -> str | None:
    """Return the script of a listed query that says it writes into *output*."""
    queries: Mapping[str, Any] = getattr(settings, "queries", {})
    return next((str(table.script) for name, table in queries.items() if output in (table.into, name)), None)


def _plan_of_last_run(settings: Settings, output: OutputSettings, topic: Topic | None) -> Plan | None:
    """Return the plan of the query that last wrote the topic, as Redis knows it; None if it does not, or if that is no plan here."""
    if topic is None:
        return None
    with suppress(TidegateError):
        for run in reversed(read_runs(settings.redis, topic.name, topic.topic_id)):
            if run.script:
                plans = bind_plans(settings, declare_recorded(parse_script(run.script, topic.name), run.functions), run.into, topic.name)
                return next((plan for plan in plans if plan.output == output.name), None)
    return None


def time_column(plan: Plan) -> str | None:
    """Return the column that is the results' System.Timestamp, if the last SELECT has one."""
    if not isinstance(plan.root, (Project, WindowedAggregate)):
        return None
    return next((column.name for column in plan.root.columns if isinstance(column.expr, (SystemTimestamp, WindowEnd))), None)


def window_of(plan: Plan) -> Window | None:
    """Return the window whose ends are the times of a plan's results; None if its last step has none, or windows of another kind."""
    root = plan.root
    return root.window if isinstance(root, WindowedAggregate) and isinstance(root.window, Window) else None


def windows_inside(plan: Plan) -> Iterator[Window]:
    """Yield the tumbling and hopping windows of all steps of a plan."""
    for node in walk(plan.root):
        for window in windows_of(node.window) if isinstance(node, WindowedAggregate) else ():
            if isinstance(window, Window):
                yield window


def columns_of(settings: Settings, output: str, script: Path | None) -> Sequence[Column]:
    """
    Return the columns of an output, from its settings or from the script that writes it. Raises RefusedError: neither is given, or the
    script does not say which columns there are.
    """
    table = settings.output(output)
    if table.columns and script is None:
        return tuple(table.columns.items())
    named = script or (Path(table.query) if table.query else None)
    fix = f'name the script with --query, or as outputs.{output}.query = "{output}.sql"; or give outputs.{output}.columns'
    if named is None:
        what = f"nothing says which columns the results of {output} have"
        raise RefusedError(what, code="TG-STORE-COLUMNS", where=f"outputs.{output}", fix=fix)
    plans = {plan.output: plan for plan in read_plans(settings, named, output)}
    columns: Sequence[Column] = plans[output].columns if output in plans else ()
    if not are_known(columns):
        what = f"{named} does not say which columns the results of {output} have"
        raise RefusedError(what, code="TG-STORE-COLUMNS", where=str(named), fix=f"write them in its SELECT instead of *, or {fix}")
    return columns
