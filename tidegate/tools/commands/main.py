"""
The ``tidegate`` program: one command for each entry point of the group ``tidegate.commands``.

Only the requested command is loaded. The list of all commands reads their help from their source, so that it is fast and one broken
package does not break the rest.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, version
from pathlib import Path

import typer

from ordering.errors import TidegateError
from tidegate.basics.early_stop import JOBS
from tidegate.basics.lean_imports import import_leanly
from tidegate.basics.own_packages import PACKAGES, end_unless_own
from tidegate.basics.package_offers import installed_offers
from tidegate.basics.safe_path import protect_processes
from tidegate.platform.observe.console import report_error, report_errors, run_stoppable, wants_json
from tidegate.platform.observe.terminal import print_text

GROUP = "tidegate.commands"
# Set by the scripts of :mod:`tidegate.tools.commands.completion`, which is loaded only for them.
VARIABLE, FLAGS = "_TIDEGATE_COMPLETE", ("--install-completion", "--show-completion")


class CommandError(TidegateError):
    """A registered command cannot be loaded."""

    default_code = "TG-COMMAND"


def main() -> None:
    """Run the program with the arguments of this process."""
    protect_processes()
    # No linear algebra is done here: numpy's library for it would start a thread a core in each process, which spin at first.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if sys.argv[1:] == ["--version"]:
        print_text(f"tidegate {version('tidegate')}\n")
        return
    if VARIABLE in os.environ:
        _answer_completion(sys.argv[1:])
        return
    asked_for = sys.argv[1] if len(sys.argv) > 1 else ""
    if asked_for in FLAGS:
        _set_up_completion(asked_for, sys.argv[2:])
        return
    # The threads of a job import pandas and more while others run.
    if asked_for not in JOBS:
        import_leanly()
    run_stoppable(lambda: _run(asked_for), is_job=asked_for in JOBS)


def _run(asked_for: str) -> None:
    try:
        app = build(asked_for)
    except TidegateError as error:
        report_error(error, as_json=wants_json(sys.argv[1:]))
        raise SystemExit(error.exit_code) from error
    app(prog_name="tidegate")


def _answer_completion(words: list[str]) -> None:
    """Tell a shell what may come after the words typed so far."""
    from tidegate.tools.commands.completion import answer

    entries = {entry.name: entry for entry in sorted(installed_offers(GROUP), key=lambda entry: _rank(entry.name))}

    def describe(name: str) -> str:
        # Bash shows no help.
        return "" if os.environ[VARIABLE] == "bash" else summarize_command(entries[name])

    lines = answer(words, entries, describe, lambda name: load_command(entries[name]))
    print_text("".join(f"{line}\n" for line in lines))


def _set_up_completion(flag: str, arguments: list[str]) -> None:
    """Install the completion of a shell, or print its script; by default that of the shell which has started this."""
    from tidegate.tools.commands.completion import install, shell_of_parent, show_script

    shell = arguments[0] if arguments else shell_of_parent()
    try:
        if flag == "--show-completion":
            print_text(show_script(shell))
            return
        path = install(shell, Path.home())
    except TidegateError as error:
        report_error(error, as_json=wants_json(sys.argv[1:]))
        raise SystemExit(error.exit_code) from error
    print_text(f"completion for {shell} is in {path}; shells that you open from now on have it\n")


def build(asked_for: str) -> typer.Typer:
    """Return the application, with only the command *asked_for* loaded; raise CommandError if it cannot be loaded."""
    app = typer.Typer(
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        help="Order event streams once, then query them.",
        epilog="tidegate --install-completion [bash|zsh|fish]: complete commands, options and names at the prompt.",
    )
    app.callback()(_program)
    entries = sorted(installed_offers(GROUP), key=lambda entry: _rank(entry.name))
    is_known = asked_for in {entry.name for entry in entries}
    for entry in entries:
        if entry.name == asked_for:
            app.command(entry.name)(report_errors(load_command(entry)))
        # The function is a placeholder: at most the name and the help of the other commands are shown.
        else:
            app.command(entry.name, help="" if is_known else summarize_command(entry))(_program)
    return app


def load_command(entry: EntryPoint) -> Callable[..., None]:
    """Import the function behind *entry*; raise CommandError if its module cannot be imported or has no such function.

    A module of somebody else in the place of our package ends the process, with the fix on standard error.
    """
    if (package := entry.module.partition(".")[0]) in PACKAGES:
        end_unless_own(package)
    try:
        command: Callable[..., None] = entry.load()
    except (ImportError, AttributeError) as error:
        what = f"the command {entry.name!r} cannot be loaded: {error}"
        fix = "reinstall tidegate with everything its lock file names, or the package that registers this command"
        raise CommandError(what, where=entry.value, fix=fix, example="make install") from error
    return command


def summarize_command(entry: EntryPoint) -> str:
    """Return the first line of documentation of the function behind *entry*, without running its module."""
    try:
        spec = importlib.util.find_spec(entry.module)
    except ImportError:
        spec = None
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return "(cannot be loaded)"
    return _summary_of(entry.attr, Path(spec.origin).read_text("utf-8"))


def _summary_of(function: str, source: str) -> str:
    """Return the first line of documentation of a function in *source*; to parse all sources would take most of the time of a list."""
    lines = iter(source.splitlines())
    for line in lines:
        if line.startswith(f"def {function}("):
            break
    for line in lines:
        if line.startswith('    """'):
            return line.strip().strip('"').rstrip()
        if line[:1] not in ("", " ", ")"):
            break
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return (ast.get_docstring(node) or "").partition("\n")[0]
    return ""


def _program() -> None:
    """Order event streams once, then query them."""


_USUAL_ORDER = (
    *("demo", "new", "convert", "run", "up", "status", "down", "config", "ingest", "query", "sink", "plan", "lint", "fmt", "lsp"),
    *("local", "test", "order", "peek", "compare", "watermarks", "explain"),
)


def _rank(name: str) -> tuple[int, str]:
    return (_USUAL_ORDER.index(name), name) if name in _USUAL_ORDER else (len(_USUAL_ORDER), name)
