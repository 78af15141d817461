"""
The command ``tidegate lint``: errors in a script, and constructs that are allowed but probably mistakes.

With ``--config`` the brokers are asked for the newest records of the inputs, if they answer soon: columns without any value in them are
probably misspelled. Without a script all queries that the configuration lists are looked at, each with its output.

Law: it runs nothing and changes nothing; without ``--config`` it asks no service, and the same script gives the same findings.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.platform.observe.console import Format
from tidegate.platform.observe.terminal import Styled, print_text, standard_output

if TYPE_CHECKING:
    from query.lint import Finding, LintContext
    from query.listed import RequestedQuery


def lint(
    script: Annotated[
        Path | None, typer.Argument(help="The query: a .sql file, or the NAME of [queries.NAME]; default: all listed queries.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Configuration with the inputs; without it any input may be named.")] = None,
    reference: Annotated[list[str] | None, typer.Option("--reference", help="A name that is reference data, without --config.")] = None,
    into: Annotated[str | None, typer.Option(help="The output of a script without INTO.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 after a warning too.")] = False,
    format: Annotated[Format, typer.Option("--format", help="How findings are printed; json: one object.")] = Format.TEXT,
) -> None:
    """Look for what is wrong, or seldom meant, in a script."""
    looked_at = [_look_at(query, config, reference or []) for query, config in _queries(script, config, into)]
    if format is Format.JSON:
        reports = [looked.as_dict() for looked in looked_at]
        print_text(json.dumps(reports[0] if script is not None else {"queries": reports}) + "\n")
    else:
        for looked in looked_at:
            _print_findings(looked.findings, "" if script is not None else f"{looked.script}: ")
            print_text("".join(f"results of {line}\n" for line in looked.copies))
            if looked.unread:
                print_text(f"no records were looked at: {looked.unread}\n")
    if any(finding.is_error or strict for looked in looked_at for finding in looked.findings):
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class _Looked:
    """What was found in one script."""

    script: Path
    findings: list[Finding]
    # How its results get into stores.
    copies: list[str]
    # Why no records were looked at; empty if some were, or none had to be.
    unread: str

    def as_dict(self) -> dict[str, Any]:
        unread_field = {"records_unread": self.unread} if self.unread else {}
        return {"script": str(self.script), "findings": [asdict(each) for each in self.findings], "copies": self.copies, **unread_field}


def _queries(script: Path | None, config: Path | None, into: str | None) -> list[tuple[RequestedQuery, Path | None]]:
    """Return the queries to look at, each with the configuration that it is looked at with."""
    from ordering.errors import SettingError
    from query.listed import RequestedQuery, find_query, listed_query

    if script is not None and config is None and script.is_file():
        return [(RequestedQuery(script, into), None)]
    from tidegate.platform.settings.load import DEFAULT_FILE, load

    if script is not None and config is None and not Path(DEFAULT_FILE).exists():
        return [(RequestedQuery(script, into), None)]
    settings = load(config)
    if script is not None:
        query = find_query(settings, script, into)
        return [(query, config if query.script == script else config or Path(DEFAULT_FILE))]
    if not settings.queries:
        what, fix = "there is no query to look at", "name a script, or list queries in the configuration"
        raise SettingError(what, code="TG-SETTING-NAME", where="queries", fix=fix, example='[queries.revenue]\nscript = "revenue.sql"')
    return [(listed_query(settings, name), config or Path(DEFAULT_FILE)) for name in settings.queries]


def _look_at(query: RequestedQuery, config: Path | None, references: list[str]) -> _Looked:
    from ordering.errors import QueryError
    from query.lint import error_finding, lint_script
    from query.script import read_script

    script, into = query.script, query.into
    unread, copies = "", list[str]()
    try:
        functions = None
        if config is not None:
            from tidegate.platform.settings.load import load

            functions = load(config).functions
        findings = lint_script(read_script(script, functions=functions), _surroundings(config, references, into))
    except QueryError as error:
        findings = [error_finding(error)]
    if config is not None and not any(finding.is_error for finding in findings):
        absent, unread = _absent_columns(script, config, into)
        misfits, copies = _store_findings(script, config, into)
        findings += [*absent, *misfits]
    return _Looked(script, findings, copies, unread)


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
    from query.lint import Finding
    from query.plan.never_null import columns_never_null
    from query.script_plans import read_plans
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
    from query.lint import LintContext, context_of

    if config is None:
        return LintContext(references=references, settings={"into": into})
    from tidegate.platform.settings.load import load

    return context_of(load(config), into)


def _print_findings(findings: list[Finding], title: str = "") -> None:
    terminal = standard_output()
    for finding in findings:
        kind, style = ("error", "bold red") if finding.is_error else ("warning", "yellow")
        terminal.line(f"{finding.where}: ", Styled(kind, style), f" {finding.code}: {finding.what}")
        if finding.fix:
            terminal.line(Styled(f"    {finding.fix}", "dim"))
    errors = sum(finding.is_error for finding in findings)
    terminal.line(f"{title}{errors} errors, {len(findings) - errors} warnings")
