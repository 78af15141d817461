"""
A project that is being made out of another one: its files, its settings, and what has to be said about each part.

Law: nothing of the other project is passed over in silence: a part is written, or a note says why not. No secret reaches a file: where one
was, there is ``env:NAME``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tidegate.basics.visible_text import quote_toml

_SECTIONS = ("kafka", "inputs", "references", "functions", "outputs", "queries")
Outcome = Literal["converted", "partly", "none"]
Value = str | bool | int | list[str] | dict[str, str]


@dataclass(frozen=True, slots=True)
class Note:
    """What became of one part: *outcome* none: it has no counterpart; *why*: the difference; *fix*: what is left to do."""

    part: str
    outcome: Outcome
    why: str = ""
    fix: str = ""


@dataclass
class Draft:
    """The files and tables of the new project, and the notes."""

    script: str
    script_name: str = "query.sql"
    tables: dict[str, dict[str, Value]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    # How the new project calls what had a name that cannot be a table's: by the old name in small letters.
    renamed: dict[str, str] = field(default_factory=dict)

    def note(self, part: str, outcome: Outcome, why: str = "", fix: str = "") -> None:
        """Say what became of a part; once, if it is said twice."""
        found = Note(part, outcome, why, fix)
        if found not in self.notes:
            self.notes.append(found)

    def name_of(self, name: str) -> str:
        """Return the name that an input or output has here: letters, digits and _."""
        plain = re.sub(r"\W", "_", name, flags=re.ASCII)
        plain = plain if re.match(r"[A-Za-z_]", plain) else f"n_{plain}"
        if plain != name and name.lower() not in self.renamed:
            self.renamed[name.lower()] = plain
            self.note(f"name {name}", "converted", f"it is called {plain} here: names have letters, digits and _")
        return plain

    def table(self, name: str) -> dict[str, Value]:
        """Return a table of tidegate.toml by its dotted name, made if it is missing."""
        return self.tables.setdefault(name, {})

    def configuration(self, origin: str) -> str:
        """Return the text of tidegate.toml."""
        lines = [f"# Converted from {origin}; conversion.md says what became of each part. All settings: tidegate config --schema"]
        for name, settings in sorted(self.tables.items(), key=lambda table: _SECTIONS.index(table[0].partition(".")[0])):
            lines += ["", f"[{name}]", *(f"{_key(key)} = {toml_value(value)}" for key, value in settings.items())]
        return "\n".join(lines) + "\n"

    def report(self, origin: str) -> str:
        """Return the text of conversion.md."""
        lines = [f"# Converted from {origin}", "", "| part | here | why | what is left to do |", "|---|---|---|---|"]
        lines += [f"| {_cell(note.part)} | {note.outcome} | {_cell(note.why)} | {_cell(note.fix)} |" for note in self.notes]
        return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_value(name)


def toml_value(value: Value) -> str:
    """Write a value of TOML."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_key(key)} = {toml_value(inner)}' for key, inner in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(quote_toml, value))}]"
    return quote_toml(value) if isinstance(value, str) else json.dumps(value)


def member(table: Any, *names: str) -> Any:
    """Return a member of a JSON object by the first of *names* that it has, whatever the case of its letters; None: there is none."""
    found = {str(key).lower(): value for key, value in table.items()} if isinstance(table, Mapping) else {}
    return next((found[name.lower()] for name in names if found.get(name.lower()) is not None), None)


def text_of(table: Any, *names: str) -> str:
    """Return a member as text; empty: it is missing, or masked."""
    value = member(table, *names)
    text = str(value).strip() if isinstance(value, str | int | float) else ""
    return "" if set(text) == {"*"} else text


def items_of(value: Any) -> list[Any]:
    """Return the items of a list; of anything else none."""
    return value if isinstance(value, list) else []


def env_name(*words: str) -> str:
    """Return the name of an environment variable made of words."""
    return "_".join(re.sub(r"\W+", "_", word, flags=re.ASCII).strip("_").upper() for word in words if word)


def unique_name(name: str, taken: Iterable[str]) -> str:
    """Return *name* as that of a folder, with a number if it is taken."""
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "case"
    known, number, found = set(taken), 1, plain
    while found in known:
        number += 1
        found = f"{plain}_{number}"
    return found
