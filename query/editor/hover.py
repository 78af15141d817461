"""
What a name in a script means, as the text that editors show beside it (Markdown).

Law: nothing is said of a name that the script does not resolve.
"""

from __future__ import annotations

from typing import NamedTuple

from query.editor.names import EditedScript, find_named
from query.editor.words import ScriptWord, path_before, word_at
from tidegate.language.expressions.functions.manual import MANUAL_PAGE, Fidelity, FunctionEntry, find_function


class Description(NamedTuple):
    """What is to be shown of the name from offset *start* until *end*."""

    start: int
    end: int
    text: str


def describe(script: EditedScript, offset: int) -> Description | None:
    """Return what is to be shown of the name at an offset; None: nothing is known of it."""
    number = word_at(script.words, offset)
    if number < 0 or not script.words[number].is_name:
        return None
    word, path = script.words[number], path_before(script.words, number)
    text = _describe(script, word, [each.name for each in path], number)
    return Description(path[0].start if path else word.start, word.end, text) if text else None


def _describe(script: EditedScript, word: ScriptWord, path: list[str], number: int) -> str:
    is_called = number + 1 < len(script.words) and script.words[number + 1].text == "("
    dotted = ".".join((*path, word.name))
    if path and path[0].lower() in ("udf", "uda"):
        return _of_script_function(script, dotted, word.name)
    if (is_called or dotted.lower() == "system.timestamp") and (entry := find_function(dotted)) is not None:
        return describe_function(entry)
    if not path and (text := _of_source(script, word, number)):
        return text
    return _of_column(script, path, word)


def describe_function(entry: FunctionEntry) -> str:
    """Return the page of a function."""
    parts = [f"```sql\n{entry.syntax}\n```", entry.meaning]
    if entry.example:
        parts.append(f"`{entry.example}` is `{entry.value}`")
    if entry.verdict is Fidelity.ONLY_HERE:
        parts.append("Stream Analytics has no such function.")
    elif entry.note:
        parts.append(f"Stream Analytics: {entry.verdict}; {entry.note}" if entry.verdict is not Fidelity.SAME else entry.note)
    page = f"docs/queries/{entry.page}" if entry.page else MANUAL_PAGE
    return "\n\n".join([*parts, f"Manual: {page}"])


def _of_script_function(script: EditedScript, called: str, name: str) -> str:
    place = find_named(script.project.functions(script.path), name)
    if place is None:
        return ""
    settings = script.project.settings
    table = None if settings is None else find_named(settings.functions, name)
    types = f"({', '.join(table.takes)})" if table is not None and table.takes is not None else "(...)"
    gives = f" gives {table.gives}" if table is not None and table.gives != "any" else ""
    return f"```sql\n{called}{types}\n```\n\nA function in JavaScript: {place}{gives}"


def _of_source(script: EditedScript, word: ScriptWord, number: int) -> str:
    """Return what an input, output, step or table is; empty if the name is none."""
    name = word.name.lower()
    if number and script.words[number - 1].is_word("INTO"):
        return _of_output(script, name)
    origins = script.origins_at(word.start)
    meant = next((origin.name for origin in origins if name in (origin.alias.lower(), origin.name.lower())), "").lower()
    for known, schema in script.project.streams.items():
        if meant == known.lower() and script.scopes.step(known) is None:
            return f"**{known}**: {_of_stream(script, known, schema.is_result)}{_columns_of(script, known)}"
    for known in script.project.references:
        if meant == known.lower():
            return f"**{known}**: reference data{_columns_of(script, known)}"
    step = script.scopes.step(meant) if meant else None
    return f"**{step.step}**: a step{_columns_of(script, step.step)}" if step is not None else ""


def _of_stream(script: EditedScript, name: str, is_result: bool) -> str:
    settings = script.project.settings
    if is_result or settings is None:
        return "the results of a query"
    table = settings.inputs[name]
    parts = [f"the input of {'topics' if len(table.topics) > 1 else 'topic'} {', '.join(table.topics)}"]
    parts += [f"TIMESTAMP BY {table.timestamp_by}"] if table.timestamp_by else ["at the time of arrival"]
    parts += [f"OVER {table.over}"] if table.over else []
    return ", ".join(parts)


def _of_output(script: EditedScript, name: str) -> str:
    settings = script.project.settings
    table = None if settings is None else find_named(settings.outputs, name)
    if table is None:
        return ""
    places = [f"topic {table.topic}"] if table.topic else []
    places += [f"plain topic {table.plain_topic}"] if table.plain_topic else []
    places += [f"files {table.files}"] if table.files else []
    return f"**{name}**: an output, {', '.join([*places, *table.stores]) or 'nowhere yet'}"


def _columns_of(script: EditedScript, name: str) -> str:
    lines = [f"- `{'.'.join(column.path)}`{f' {column.kind}' if column.kind else ''}" for column in script.columns_of(name)]
    return "\n\n" + "\n".join(lines) if lines else ""


def _of_column(script: EditedScript, path: list[str], word: ScriptWord) -> str:
    """Return what is known of a column; empty if none is called so."""
    full = [name.lower() for name in (*path, word.name)]
    for column in script.columns_at(word.start):
        known = [name.lower() for name in column.path]
        if known == full or (len(full) > 1 and known == full[1:]):
            kind = f" {column.kind}" if column.kind else ""
            return f"`{'.'.join(column.path)}`{kind}: a column of {column.owner}"
    return ""
