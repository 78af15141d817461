"""
Queries that the configuration lists: ``[queries.NAME]`` gives a script a name, an output and a start.

Law: a flag wins over the table, and a file that exists over a name: whoever writes a path means that file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a script that is named by its file needs no configuration
    from tidegate.platform.settings.load import Settings


@dataclass(frozen=True, slots=True)
class RequestedQuery:
    """A query as a command or the configuration asks for it."""

    # A file, or the name of a query that an installed package offers.
    script: Path
    # The output that takes the results; None: the script says so.
    into: str | None = None
    # As --start has it.
    start: str | None = None


def find_query(settings: Settings, script: Path, into: str | None = None, start: str | None = None) -> RequestedQuery:
    """Return the query called *script* in ``[queries]``, with *into* and *start* where given; any other name stands for itself."""
    listed = settings.queries.get(str(script))
    if listed is None or script.is_file():
        return RequestedQuery(script, into, start)
    return RequestedQuery(Path(listed.script), into or listed.into, start or listed.start)


def listed_query(settings: Settings, name: str) -> RequestedQuery:
    """Return the query that ``[queries.NAME]`` lists. Raises SettingError: none is called so."""
    listed = settings.listed_query(name)
    return RequestedQuery(Path(listed.script), listed.into, listed.start)
