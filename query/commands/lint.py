"""
The command ``tidegate lint``: errors in a script, and constructs that are allowed but probably mistakes.

With ``--config`` the brokers are asked for the newest records of the inputs, if they answer soon: columns without any value in them are
probably misspelled.

Law: it runs nothing and changes nothing; without ``--config`` it asks no service, and the same script gives the same findings.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.platform.observe.console import Format
from tidegate.platform.observe.terminal import Styled, print_text, standard_output

if TYPE_CHECKING:
    from query.lint import Finding, LintContext


def lint(
    script: Annotated[Path, typer.Argument(help="The query, a .sql file.")],
    config: Annotated[Path | None, typer.Option(help="Configuration with the inputs; without it any input may be named.")] = None,
    reference: Annotated[list[str] | None, typer.Option("--reference", help="A name that is reference data, without --config.")] = None,
    into: Annotated[str | None, typer.Option(help="The output of a script without INTO.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 after a warning too.")] = False,
    format: Annotated[Format, typer.Option("--format", help="How findings are printed; json: one object.")] = Format.TEXT,
) -> None:
    """Look for what is wrong, or seldom meant, in a script."""
    from ordering.errors import QueryError
    from query.lint import error_finding, lint_script
    from query.script import read_script

    surroundings = _surroundings(config, reference or [], into)
    unread, copies = "", list[str]()
    try:
        findings = lint_script(read_script(script), surroundings)
    except QueryError as error:
        findings = [error_finding(error)]
    if config is not None and not any(finding.is_error for finding in findings):
        absent, unread = _absent_columns(script, config, into)
        findings += absent
        misfits, copies = _store_findings(script, config, into)
        findings += misfits
    if format is Format.JSON:
        unread_field = {"records_unread": unread} if unread else {}
        fields = {"script": str(script), "findings": [asdict(finding) for finding in findings], "copies": copies, **unread_field}
        print_text(json.dumps(fields) + "\n")
    else:
        _print_findings(findings)
        print_text("".join(f"results of {line}\n" for line in copies))
        if unread:
            print_text(f"no records were looked at: {unread}\n")
    if any(finding.is_error or strict for finding in findings):
        raise typer.Exit(1)


def _absent_columns(script: Path, config: Path, into: str | None) -> tuple[list[Finding], str]:
    """Return a warning for each column without a value in the newest records; and why none were read, empty if some were."""
    from ordering.errors import TidegateError
    from query.absent_columns import CODE
    from query.lint import Finding
    from query.preview.forecast import newest_absent_columns
    from tidegate.platform.settings.load import load

    try:
        absent = newest_absent_columns(load(config), script, into)
    except TidegateError as error:
        return [], error.what
    return [Finding(CODE, str(script), what, fix) for what, fix in absent], ""


def _store_findings(script: Path, config: Path, into: str | None) -> tuple[list[Finding], list[str]]:
    """Return where the stores of the script's outputs do not fit (one that does not answer is a warning), and how results get there."""
    from ordering.errors import UnreachableError
    from query.job import read_plans
    from query.lint import Finding
    from query.plan.never_null import columns_never_null
    from sinks.stores.checking import check_stores, describe_copies, warn_of_null_keys
    from tidegate.platform.settings.load import load

    settings = load(config)
    if not any(table.stores for table in settings.outputs.values()):
        return [], []
    plans = [plan for plan in read_plans(settings, script, into) if plan.output in settings.outputs]
    errors = [error for plan in plans for error in check_stores(settings.outputs[plan.output], plan.columns)]
    found = [Finding(error.code, error.where, error.what, error.fix, is_error=not isinstance(error, UnreachableError)) for error in errors]
    for plan in plans:
        warnings = warn_of_null_keys(settings.outputs[plan.output], plan.columns, columns_never_null(plan))
        found += [Finding(warning.code, warning.where, warning.what, warning.fix) for warning in warnings]
    return found, [line for plan in plans for line in describe_copies(settings.outputs[plan.output], plan.columns)]


def _surroundings(config: Path | None, references: list[str], into: str | None) -> LintContext:
    from query.lint import LintContext
    from tidegate.language.expressions.binding.input_schema import InputSchema

    if config is None:
        return LintContext(references=references, settings={"into": into})
    from tidegate.platform.settings.load import load

    settings = load(config)
    schemas = [table.schema_of_events(name) for name, table in settings.inputs.items()]
    topics = {name: table for name, table in settings.outputs.items() if table.topic}
    schemas += [InputSchema(name, is_result=True) for name in topics]
    schemas += [InputSchema(name, fields=table.fields, is_reference=True) for name, table in settings.references.items()]
    limits = {"into": into, "window_us_max": settings.query.window_max_us}
    early_off = frozenset(name for name, table in settings.inputs.items() if table.timestamp_by is not None and table.early_us is None)
    return LintContext(schemas, retentions_us=settings.retentions_us(), early_off=early_off, topics=frozenset(topics), settings=limits)


def _print_findings(findings: list[Finding]) -> None:
    terminal = standard_output()
    for finding in findings:
        kind, style = ("error", "bold red") if finding.is_error else ("warning", "yellow")
        terminal.line(f"{finding.where}: ", Styled(kind, style), f" {finding.code}: {finding.what}")
        if finding.fix:
            terminal.line(Styled(f"    {finding.fix}", "dim"))
    errors = sum(finding.is_error for finding in findings)
    terminal.line(f"{errors} errors, {len(findings) - errors} warnings")
