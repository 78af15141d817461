"""
A failure as a case of ``tidegate test``: the script, the events, the policies, the results of the undisturbed run, and what disturbs it.

Law: ``tidegate test`` runs the case alone, without the test that failed, and says the same of it. What it cannot find by itself, a function
that no module names, the case says.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path

from ordering.errors import TidegateError
from query.local.case_files import SCRIPT, SETTINGS
from query.local.case_run import run_to_lines
from query.local.output import DEAD
from query.testing.fewest_events import BrokenRun
from query.testing.input_files import copy_inputs, ndjson_of
from query.testing.user_code import UserFunction, find_place
from query.testing.user_query import UserQuery
from query.testing.walk import walk
from tidegate.basics.visible_text import quote_toml


def write_case(folder: Path, query: UserQuery, failure: BrokenRun, functions: Mapping[str, UserFunction]) -> str:
    """Write the case into *folder*, which is made; *functions* are those that no package offers. Return its files as text."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {SETTINGS: _settings(query, failure, functions)}
    if query.script is None:
        texts = {SCRIPT: query.sql.rstrip() + "\n", **texts}
    texts |= {f"input.{name}.ndjson": ndjson_of(rows).decode() for name, rows in failure.rows.items()}
    texts |= {f"expected.{name}.ndjson": "".join(f"{line}\n" for line in lines) for name, lines in _expected(query, failure).items()}
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
    copy_inputs(query.references, folder, "reference")
    return "\n".join(f"--- {name}\n{text.rstrip()}" for name, text in texts.items())


def _settings(query: UserQuery, failure: BrokenRun, functions: Mapping[str, UserFunction]) -> str:
    settings = {"description": failure.sentence, "disturbance": str(failure.disturbance)}
    settings |= {name: str(value) for name, value in query.policies.items()}
    settings |= {name: str(path.resolve()) for name, path in (("script", query.script), ("config", query.config)) if path is not None}
    lines = [f"{name} = {quote_toml(value)}" for name, value in settings.items()]
    places = {name: find_place(function) for name, function in functions.items()}
    if places:
        lines += ["", "[functions]"]
        lines += [
            f"# {name} is no name of a module: tidegate test does not find it" if place is None else f"{name} = {quote_toml(place)}"
            for name, place in places.items()
        ]
    return "\n".join(lines) + "\n"


def _expected(query: UserQuery, failure: BrokenRun) -> dict[str, list[str]]:
    """
    Return the results of the undisturbed run, in the order in which ``tidegate test`` makes them; where its run on files gives others, the
    case shows that too. None if a run stops, which the case then shows.
    """
    with query.open(failure.rows) as opened:
        try:
            lines, dead = run_to_lines(opened.script, opened.setup)
            results = walk(opened.bucket, opened.order(1).pieces, len(opened.outputs)).results
        except TidegateError:
            return {output: [] for output in opened.outputs}
    for output, rows in zip(opened.outputs, results, strict=True):
        undisturbed = [value.decode() for _, _, value in (sorted(rows, key=itemgetter(0, 1)) if opened.script.has_over else rows)]
        if sorted(undisturbed) != sorted(lines[output]):
            lines[output] = undisturbed
    return lines | ({DEAD: dead} if dead else {})
