"""A script: the text of a file, or of a query that an installed package provides by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ordering.errors import QueryError
from query import extensions
from query.api import Query
from query.javascript.declarations import declare_functions
from tidegate.basics.bounded_files import read_file_text
from tidegate.language.expressions.syntax.parse import Script, parse_script

if TYPE_CHECKING:  # settings import pydantic, which is slow to load
    from tidegate.platform.settings.tables.functions import FunctionSettings


def read_script(script: Path, name: str | None = None, functions: Mapping[str, FunctionSettings] | None = None) -> Script:
    """
    Read and parse a script, a file or the name of a query that an installed package provides; register installed functions first.

    *name* is what errors call the script, by default the path; *functions* are the tables [functions.NAME]. Raises QueryError: it cannot be
    read, is no SQL of this dialect, or a function in JavaScript that it names cannot be used.
    """
    text = read_script_text(script)
    extensions.load()
    beside = script.parent if script.suffix or script.exists() else None
    return declare_functions(parse_script(text, name or str(script)), functions or {}, beside)


def read_script_text(script: Path) -> str:
    """Return the text of a script; QueryError: it cannot be read."""
    if not script.suffix and not script.exists():
        query = extensions.find_query(str(script))
        return query.sql if isinstance(query, Query) else str(query)
    try:
        return read_file_text(script)
    except (OSError, UnicodeDecodeError) as error:
        message, fix = f"the script cannot be read: {error}", "give the path of a text file in UTF-8"
        raise QueryError(message, code="TG-QUERY-FILE", where=str(script), fix=fix) from None
