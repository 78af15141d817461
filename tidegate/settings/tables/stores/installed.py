"""The tables of stores that installed packages bring: entry points in the group ``tidegate.stores``, each the class of its table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticKnownError

from ordering.errors import SettingError
from tidegate.package_offers import find_offers, load_offer, unusable_offer
from tidegate.settings.tables.stores.base import StoreSettings

STORES = "tidegate.stores"
_FAIL = partial(SettingError, code="TG-EXTENSION")


@cache
def find_store_table(kind: str) -> type[StoreSettings] | None:
    """
    Return the class of the table ``[outputs.NAME.KIND]`` of an installed package; None: no package offers it. Raises SettingError
    (TG-EXTENSION): several do, or what is offered is unusable.
    """
    offer = find_offers(STORES, _FAIL, only=kind.lower()).get(kind)
    if offer is None:
        return None
    table = load_offer(offer, _FAIL)
    if not (isinstance(table, type) and issubclass(table, StoreSettings)):
        raise unusable_offer(offer, "it is not the class of a table of settings", _FAIL)
    return table


@dataclass(frozen=True)
class _Offered:
    """The table of a store as a user wrote it, and its class."""

    table: type[StoreSettings]
    given: Any


def find_offered(data: Mapping[str, Any], known: set[str]) -> Iterator[tuple[str, Any]]:
    """Yield the entries of the table of an output, those of installed packages' stores with their classes; *known* are its own settings."""
    for key, value in data.items():
        table = None if key in known else find_store_table(key)
        yield key, value if table is None else _Offered(table, value)


def validate_offered(value: object) -> BaseModel:
    """Return what an entry that :func:`find_offered` knows amounts to; any other is an unknown setting."""
    if isinstance(value, StoreSettings):
        return value
    if isinstance(value, _Offered):
        return value.table.model_validate(value.given)
    raise PydanticKnownError("extra_forbidden")
