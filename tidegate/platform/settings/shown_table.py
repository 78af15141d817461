"""A table of the configuration as texts that a history may keep: what the user has set, without tables of its own and without secrets."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from ordering.ticks import format_duration


def show_table(table: BaseModel) -> dict[str, str]:
    """Return the settings that the user has given, by their names in the file."""
    shown = {}
    for name in sorted(table.model_fields_set):
        value = getattr(table, name)
        if name != "name" and _is_plain(value):
            is_duration = name.endswith("_us") and isinstance(value, int) and not isinstance(value, bool)
            shown[name.removesuffix("_us")] = format_duration(value) if is_duration else str(value)
    return shown


def _is_plain(value: Any) -> bool:
    # Tables of stores hold passwords.
    return value is None or isinstance(value, (bool, int, float, str, list, tuple))
