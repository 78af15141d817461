"""
The plans of a script: what it computes for each output, bound to the configured inputs, outputs and reference data.

Law: no service is asked, but for reference data that lies elsewhere. Nothing that runs a plan is imported: a command that only shows it is
quick.
"""

from __future__ import annotations

from pathlib import Path

from query.plan.nodes import Plan
from query.script import read_script
from query.sql.bind import bind_outputs
from query.sql.input_clauses import names_in
from query.start.bucket_layout import check_over
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import Script
from tidegate.platform.settings.load import Settings


def read_plans(settings: Settings, script: Path, into: str | None) -> tuple[Plan, ...]:
    """
    Parse and bind a script (a file, or the name of a query that an installed package provides) against the configured inputs and outputs;
    return a plan for each output, in the order of the script. *into* is the output given beside the script. QueryError: the script is
    wrong, or cannot be read. RefusedError: reference data that it names cannot be read.
    """
    return bind_plans(settings, read_script(script, functions=settings.functions), into, str(script))


def bind_plans(settings: Settings, parsed: Script, into: str | None, where: str) -> tuple[Plan, ...]:
    """As :func:`read_plans`, for a script that has been parsed; *where* is what errors call it."""
    inputs = [table.schema_of_events(name) for name, table in settings.inputs.items()]
    results = [InputSchema(name, is_result=True) for name, table in settings.outputs.items() if table.topic]
    plans = bind_outputs(
        parsed, [*inputs, *results, *_reference_schemas(settings, parsed)], into=into, window_us_max=settings.query.window_max_us
    )
    check_over(plans, where)
    return plans


def _reference_schemas(settings: Settings, parsed: Script) -> list[InputSchema]:
    if not settings.references:
        return []
    # They import the clients of object stores and of tables.
    from query.reference.files import load_references
    from query.reference.polling import fill_empty

    fill_empty(settings.references, names_in(parsed))
    return [table.schema for table in load_references(settings.references, names_in(parsed)).values()]
