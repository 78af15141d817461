"""
The scripts whose results are verified: those that the user names, and those that ``outputs.NAME.query`` names.

Law: an output is written by one script.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ordering.errors import SettingError
from query.plan.nodes import Plan
from query.script_plans import read_plans
from tidegate.platform.settings.load import Settings
from tidegate.records.result_columns import Column


def read_scripts(settings: Settings, queries: list[str]) -> dict[str, tuple[Plan, ...]]:
    """Return the plans of each script by the names of its outputs; SettingError if two scripts write one output."""
    scripts: dict[str, tuple[Plan, ...]] = {}
    for text in queries:
        into, equals, file = text.partition("=")
        plans = read_plans(settings, Path(file if equals else text), into if equals else None)
        for plan in plans:
            if plan.output in scripts:
                what, fix = f"two scripts write INTO {plan.output}", "name each script once"
                raise SettingError(what, code="TG-SETTING-CONFLICT", where="--query", fix=fix)
            scripts[plan.output] = plans
    return scripts


def add_configured_scripts(settings: Settings, scripts: Mapping[str, tuple[Plan, ...]], target: str) -> dict[str, tuple[Plan, ...]]:
    """Return *scripts*, and those that ``outputs.NAME.query`` names for *target* and for the outputs that it is made from."""
    scripts, pending, seen = dict(scripts), [target], set[str]()
    while pending:
        seen.add(name := pending.pop())
        query = settings.outputs[name].query if name in settings.outputs else None
        if query is not None and name not in scripts:
            plans = read_plans(settings, Path(query), name)
            scripts |= {plan.output: plans for plan in plans}
        pending += [each for plan in scripts.get(name, ()) for each in plan.inputs if each not in seen]
    return scripts


def find_columns(settings: Settings, output: str, queries: list[str]) -> Sequence[Column]:
    """Return the columns by which a verification reads an output's tables; RefusedError if neither settings nor a script say them."""
    from query.output_plan import columns_of

    plans = read_scripts(settings, queries).get(output, ()) if not settings.output(output).columns else ()
    return next((plan.columns for plan in plans if plan.output == output), None) or columns_of(settings, output, None)
