"""
Finds the extensions of installed packages by the group and the name of their entry points.

Law: a name means one extension. If two packages offer a name, both are refused: otherwise the order of installation would choose one.
A package is imported only if what it offers is used, so a broken one harms nobody else.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import lru_cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any, TypeVar

from ordering.errors import TidegateError

# Makes the error of a message from its parts what, where and fix.
Fail = Callable[..., TidegateError]
Extension = TypeVar("Extension")


def installed_offers(group: str) -> EntryPoints:
    """Return what installed packages offer in a group. All packages are read once, as long as Python's path stays the same."""
    return _read_offers(tuple(sys.path))(group=group)


@lru_cache(maxsize=1)
def _read_offers(path: tuple[str, ...]) -> Callable[..., EntryPoints]:
    return entry_points().select


def find_offers(group: str, fail: Fail, only: str | None = None) -> Mapping[str, EntryPoint]:
    """
    Return the entry points of a group by name. Raises the error that *fail* makes: two packages offer one name, case ignored. With *only*,
    no other name is checked.
    """
    entries: defaultdict[str, list[EntryPoint]] = defaultdict(list)
    for entry in installed_offers(group):
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
    what, fix = f"the extension {entry.name} ({entry.value}) cannot be used: {why}", "repair or remove the package that offers it"
    return fail(what, where=f"{entry.group}: {entry.name}", fix=fix)


class Registry(MutableMapping[str, Extension]):
    """Extensions by the name that scripts use, in lower case; of two with one name the later counts. An offer is registered when used."""

    def __init__(self) -> None:
        self._registered: dict[str, Extension] = {}
        self._offers: dict[str, Callable[[], None]] = {}

    def offer(self, name: str, register: Callable[[], None]) -> None:
        """Let *register* register the extension *name* when it is first looked up."""
        self._offers[name] = register

    def __getitem__(self, name: str) -> Extension:
        if name not in self._registered and name in self._offers:
            self._offers[name]()
        return self._registered[name]

    def __setitem__(self, name: str, extension: Extension) -> None:
        self._registered[name] = extension

    def __delitem__(self, name: str) -> None:
        del self._registered[name]

    def __contains__(self, name: object) -> bool:
        return name in self._registered or name in self._offers

    def __iter__(self) -> Iterator[str]:
        return iter({**self._registered, **self._offers})

    def __len__(self) -> int:
        return len({*self._registered, *self._offers})
