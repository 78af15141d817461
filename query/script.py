"""A script as it stands in a file."""

from __future__ import annotations

from pathlib import Path

from ordering.errors import QueryError
from tidegate.runtime.scalars.parse import Script, parse_script


def read_script(path: Path, name: str | None = None) -> Script:
    """
    Read and parse a script.

    Args:
        path: Its file.
        name: What errors call it; by default the path.

    Raises:
        QueryError: It cannot be read, or is no SQL of this dialect.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise QueryError(
            f"the script cannot be read: {error}", code="TG-QUERY-FILE", where=str(path), fix="give the path of a text file in UTF-8"
        ) from None
    return parse_script(text, name or str(path))
