"""The tables of stores that installed packages bring: entry points in the group ``tidegate.stores``, each the class of its table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticKnownError

from ordering.errors import SettingError
from tidegate.basics.package_offers import find_offers, load_offer, unusable_offer
from tidegate.platform.settings.tables.stores.base import StoreSettings

STORES = "tidegate.stores"
_FAIL = partial(SettingError, code="TG-EXTENSION")


@cache
def find_store_table(kind: str) -> type[StoreSettings] | None:
    """
    Return the class of the table ``[outputs.NAME.KIND]`` of an installed package; None: no package offers it. Raises SettingError
    (TG-EXTENSION): several packages offer it, or the offered class is unusable.
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
    """Yield the entries of an output's table, those of installed stores with their classes; *known* are the output's own settings."""
    for key, value in data.items():
        table = None if key in known else find_store_table(key)
        yield key, value if table is None else _Offered(table, value)


def validate_offered(value: object) -> BaseModel:
    """Return the validated table of an entry that :func:`find_offered` has yielded with its class; any other is an unknown setting."""
    if isinstance(value, StoreSettings):
        return value
    if isinstance(value, _Offered):
        return value.table.model_validate(value.given)
    raise PydanticKnownError("extra_forbidden")
