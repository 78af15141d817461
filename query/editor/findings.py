"""
What is wrong, or seldom meant, in a script that is being written: what ``tidegate lint`` says of it.

Law: findings are those of the linter over the same text and configuration, each with the word at which it is; no service is asked.
"""

from __future__ import annotations

from dataclasses import dataclass

from ordering.errors import QueryError, TidegateError
from query import extensions
from query.editor.names import EditedScript
from query.editor.words import word_at
from query.javascript.declarations import declare_functions
from query.lint import Finding, error_finding, lint_script
from tidegate.language.expressions.syntax.parse import parse_script

# What a script is called in places.
_FILE = "script"


@dataclass(frozen=True, slots=True)
class PlacedFinding:
    """A finding with the offsets at which its word begins and ends."""

    start: int
    end: int
    finding: Finding


def find_mistakes(script: EditedScript) -> list[PlacedFinding]:
    """Return the findings of a script in the order of places; if it cannot be run, only its first error."""
    return [_placed(script, finding) for finding in _findings(script)] if script.text.strip() else []


def _findings(script: EditedScript) -> list[Finding]:
    settings = script.project.settings
    try:
        extensions.load()
        parsed = parse_script(script.text, _FILE)
        beside = script.path.parent if script.path is not None else None
        declared = declare_functions(parsed, settings.functions if settings is not None else {}, beside)
        return lint_script(declared, script.project.lint_context(script.path))
    except QueryError as error:
        return [error_finding(error)]
    except TidegateError as error:
        fix = "; e.g. ".join(part for part in (error.fix, error.example) if part)
        return [Finding(error.code, _FILE, error.what, fix, is_error=True)]


def _placed(script: EditedScript, finding: Finding) -> PlacedFinding:
    start = _offset(script.text, finding.where)
    number = word_at(script.words, start)
    # At the end of a script nothing stands that could be underlined: then its last word is.
    word = script.words[number] if number >= 0 else script.words[-1] if script.words and start >= len(script.text.rstrip()) else None
    if word is None or not word.start <= start <= word.end:
        return PlacedFinding(start, min(start + 1, len(script.text)), finding)
    return PlacedFinding(min(start, word.start) if start == word.end else start, word.end, finding)


def _offset(text: str, where: str) -> int:
    """Return the offset of ``script:line:column``, both from 1; 0 for the script as a whole, or another file."""
    file, _, place = where.partition(":")
    line, _, column = place.partition(":")
    if file != _FILE or not line.isdigit() or not column.isdigit():
        return 0
    start = sum(len(each) + 1 for each in text.split("\n")[: int(line) - 1])
    return min(start + int(column) - 1, len(text))
