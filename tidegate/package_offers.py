"""
Finds the extensions of installed packages by the group and the name of their entry points.

Law: a name means one extension. If two packages offer a name, both are refused: otherwise the order of installation would choose one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from ordering.errors import TidegateError

# Makes the error of a message from its parts what, where and fix.
Fail = Callable[..., TidegateError]


def find_offers(group: str, fail: Fail, only: str | None = None) -> Mapping[str, EntryPoint]:
    """
    Return the entry points of a group by name. Raises the error that *fail* makes: two packages offer one name, case ignored. With *only*,
    no other name is checked.
    """
    entries: defaultdict[str, list[EntryPoint]] = defaultdict(list)
    for entry in entry_points(group=group):
        entries[entry.name.lower()].append(entry)
    for name, alike in entries.items():
        # A package is found twice if Python's path has its folder twice.
        offers = {(entry.value, entry.dist.name if entry.dist else "") for entry in alike}
        if len(offers) > 1 and only in (None, name):
            offered = " and ".join(sorted(f"{package or 'a package'} ({value})" for value, package in offers))
            what, fix = f"{name} is offered more than once: by {offered}", "remove one of the packages, or rename what it offers"
            raise fail(what, where=f"{group}: {name}", fix=fix)
    return {entry.name: entry for alike in entries.values() for entry in alike}


def load_offer(entry: EntryPoint, fail: Fail) -> Any:
    """Import and return the extension of an entry point. Raises the error that *fail* makes: it cannot be imported."""
    try:
        return entry.load()
    except Exception as error:
        raise unusable_offer(entry, f"{type(error).__name__}: {error}", fail) from error


def unusable_offer(entry: EntryPoint, why: str, fail: Fail) -> TidegateError:
    """Return the error of an offer that cannot be used."""
    what, fix = f"the extension {entry.name} ({entry.value}) cannot be used: {why}", "mend or remove the package that offers it"
    return fail(what, where=f"{entry.group}: {entry.name}", fix=fix)
