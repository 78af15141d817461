"""
How the tables of ``tidegate.toml`` are built: their base class, and kinds of value that several of them use.

Law: a table that exists is usable. Each setting was checked by its kind, and the settings of one table against each other.
A field whose name ends in ``_us`` is written without that ending, as a duration with a unit.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from tidegate.settings.kinds import Kind, NotAllowed, Size

FieldType = Literal["bigint", "float", "nvarchar(max)", "datetime", "bit", "record", "array"]
Count = Annotated[int, Field(ge=1), Kind("count")]
# Largest dead letter: brokers and consumers take requests and answers of 100 MB by default.
LETTER_BYTES_MAX = 64 * 2**20
LetterSize = Annotated[Size, Field(ge=1024, le=LETTER_BYTES_MAX)]
# The wrong setting, the problem, the fix.
Conflict = tuple[str, str, str]


class Contradiction(ValueError):
    """Settings of one table that contradict each other."""

    def __init__(self, conflicts: list[Conflict]) -> None:
        super().__init__("; ".join(problem for _, problem, _ in conflicts))
        self.conflicts = conflicts


class Table(BaseModel):
    """One table: unknown settings are refused, values never change, ``_us`` is never written by the user."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=lambda name: name.removesuffix("_us"), hide_input_in_errors=True)

    @classmethod
    def table_of_package(cls, key: str) -> type[Table] | None:
        """Return the class of a table within this one that an installed package brings, None if there is none."""
        return None


def _check_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise NotAllowed("letters, digits and _, not starting with a digit: queries use it as a name")
    return name


# The name of an input or output, as queries write it.
Name = Annotated[str, AfterValidator(_check_name)]


def tls_conflicts(table: Table, scheme: str, encrypted: bool) -> list[Conflict]:
    """Return the contradictions among the certificate files of *table*; only a URL of *scheme* is *encrypted*."""
    conflicts: list[Conflict] = []
    # Paths of PEM files.
    given = [name for name in ("ca_file", "certificate_file", "key_file") if getattr(table, name)]
    if given and not encrypted:
        conflicts.append((given[0], f"{given[0]} means nothing without TLS", f"write {scheme} in url, or remove it"))
    if ("certificate_file" in given) != ("key_file" in given):
        named, other = ("certificate_file", "key_file") if "certificate_file" in given else ("key_file", "certificate_file")
        conflicts.append((named, f"{named} is of no use without {other}", f"give {other} as well"))
    return conflicts
