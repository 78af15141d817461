"""A failure as a case of ``tidegate test``: the script, the events, the policies and the results of the undisturbed run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from query.local.case_files import SCRIPT, SETTINGS
from tidegate.basics.visible_text import quote_toml
from tidegate.testing.input_files import ndjson_of
from tidegate.testing.user_query import UserQuery


def write_case(
    folder: Path,
    query: UserQuery,
    inputs: Mapping[str, Sequence[Mapping[str, Any]]],
    results: Mapping[str, Sequence[bytes]],
    sentence: str,
) -> str:
    """Write the case into *folder*, which is made; return its files as text."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {SCRIPT: query.sql.rstrip() + "\n"}
    settings = {"description": sentence, **{name: str(value) for name, value in query.policies.items()}}
    if query.config is not None:
        settings["config"] = str(query.config.resolve())
    texts[SETTINGS] = "".join(f"{name} = {quote_toml(value)}\n" for name, value in settings.items())
    texts |= {f"input.{name}.ndjson": ndjson_of(rows).decode() for name, rows in inputs.items()}
    texts |= {f"expected.{name}.ndjson": "".join(f"{value.decode()}\n" for value in values) for name, values in results.items()}
    for name, text in texts.items():
        (folder / name).write_text(text)
    return "\n".join(f"--- {name}\n{text.rstrip()}" for name, text in texts.items())
