"""
What a script says about its inputs and outputs, and its text with other names.

Law: only names change, and only those that name an input or an output.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from ordering.errors import QueryError
from tidegate.language.expressions.syntax.dialect import OVER, TIMESTAMP_BY
from tidegate.language.expressions.syntax.parse import Script, parse_script


@dataclass
class NamesInScript:
    """The names after FROM and JOIN with their times and keys, and those after INTO; names as they are spelled first."""

    inputs: dict[str, str] = field(default_factory=dict)
    times: dict[str, list[str]] = field(default_factory=dict)
    keys: dict[str, list[str]] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    has_unnamed_output: bool = False


def read_names(text: str, file: str) -> NamesInScript | QueryError:
    """Return what a script names, or the error of one that cannot be read."""
    try:
        script = parse_script(text, file)
    except QueryError as error:
        return error
    names = NamesInScript()
    steps = {str(step.alias).lower() for tree in script.statements for step in tree.find_all(exp.CTE)}
    for tree in script.statements:
        into = tree.find(exp.Into)
        names.has_unnamed_output |= into is None
        if into is not None:
            names.outputs.setdefault(into.this.name.lower(), into.this.name)
        for table in tree.find_all(exp.Table):
            name = table.name
            if not name or isinstance(table.parent, exp.Into) or name.lower() in steps:
                continue
            names.inputs.setdefault(name.lower(), name)
            if time := table.args.get(TIMESTAMP_BY):
                _add(names.times, name, _path(time))
            if over := table.args.get(OVER):
                _add(names.keys, name, ",".join(map(_path, over)))
    return names


def _add(found: dict[str, list[str]], name: str, text: str) -> None:
    texts = found.setdefault(name.lower(), [])
    if text not in texts:
        texts.append(text)


def _path(node: exp.Expr) -> str:
    """Return a field as a path, or an expression as it is written."""
    return node.sql(dialect="tsql") if not isinstance(node, exp.Column | exp.Dot) else ".".join(_steps(node))


def _steps(node: exp.Expr) -> Iterator[str]:
    for part in node.find_all(exp.Identifier, bfs=False):
        yield part.name


def rename(text: str, file: str, renamed: Mapping[str, str]) -> str:
    """Return a script in which inputs and outputs have other names; *renamed*: by the old name in small letters."""
    script: Script = parse_script(text, file)
    places: dict[tuple[int, int], str] = {}
    for tree in script.statements:
        parts = [table.this for table in tree.find_all(exp.Table)]
        # A column without a name before its own names a field.
        parts += [column.parts[0] for column in tree.find_all(exp.Column) if len(column.parts) > 1]
        for part in parts:
            new = renamed.get(part.name.lower()) if isinstance(part, exp.Identifier) and "start" in part.meta else None
            if new is not None:
                places[part.meta["start"], part.meta["end"]] = new
    for (start, end), new in sorted(places.items(), reverse=True):
        text = text[:start] + new + text[end + 1 :]
    return text
