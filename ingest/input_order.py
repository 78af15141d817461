"""
The order in which inputs start: one whose CTIs drive another's time comes first.

Law: every input comes once. Two that import from each other are refused before, with the settings.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.platform.settings.load import Settings


def order_by_imports(settings: Settings, names: Sequence[str]) -> list[str]:
    """Return the inputs *names*, each once and after the input whose CTIs it imports; SettingError if an input is unknown."""
    ordered: dict[str, None] = {}

    def add(name: str) -> None:
        driver = settings.input(name).import_ctis_from
        if driver is not None and driver in names and driver not in ordered:
            add(driver)
        ordered[name] = None

    for name in names:
        add(name)
    return list(ordered)
