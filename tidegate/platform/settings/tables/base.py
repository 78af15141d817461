"""
The base class of the tables of ``tidegate.toml``, and kinds of value that several of them use.

Law: a table that exists is usable: each setting was checked by its kind, and the settings of one table against each other. A field whose
name ends in ``_us`` is written without that ending, as a duration with a unit.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from tidegate.basics.dead_letter_reasons import LETTER_BYTES_MAX
from tidegate.platform.settings.kinds import Kind, NotAllowed, Size

FieldType = Literal["bigint", "float", "nvarchar(max)", "datetime", "bit", "record", "array"]
Count = Annotated[int, Field(ge=1, le=10**12), Kind("count")]
# Kafka's clients take no more partitions of a topic, and nobody has so many brokers, connections or tasks.
PARTITIONS_MAX, COPIES_MAX = 100_000, 1_000
Partitions = Annotated[int, Field(ge=1, le=PARTITIONS_MAX), Kind("count")]
Copies = Annotated[int, Field(ge=1, le=COPIES_MAX), Kind("count")]
Connections = Annotated[int, Field(ge=1, le=1_000), Kind("count")]
Tasks = Annotated[int, Field(ge=1, le=10_000), Kind("count")]
LetterSize = Annotated[Size, Field(ge=1024, le=LETTER_BYTES_MAX)]
PemFile = Annotated[str | None, Kind("path of a PEM file; default: none")]
# Certificates to trust; by default those that the system trusts.
SystemPemFile = Annotated[str | None, Kind("path of a PEM file; default: the system's")]
# The wrong setting, the problem, the fix.
Conflict = tuple[str, str, str]
PASSWORD_TWICE: Conflict = ("password", "there is a password in url too", "give one of them")


class Contradiction(ValueError):
    """Settings of one table that contradict each other."""

    def __init__(self, conflicts: list[Conflict]) -> None:
        super().__init__("; ".join(problem for _, problem, _ in conflicts))
        self.conflicts = conflicts


class Table(BaseModel):
    """One table: unknown settings are refused, values never change, ``_us`` is never written by the user."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=lambda name: name.removesuffix("_us"),
        hide_input_in_errors=True,
        # A table is made ready when it is first used: most commands use few.
        defer_build=True,
    )

    @classmethod
    def table_of_package(cls, key: str) -> type[Table] | None:
        """Return the class of a table within this one that an installed package brings, None if there is none."""
        return None

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if conflicts := self._conflicts():
            raise Contradiction(conflicts)
        return self

    def _conflicts(self) -> list[Conflict]:
        """Return the contradictions among the settings of this table."""
        return []


def _check_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise NotAllowed("letters, digits and _, not starting with a digit: queries use it as a name")
    return name


# The name of an input or output, as queries write it.
Name = Annotated[str, AfterValidator(_check_name)]


def tls_conflicts(table: Table, scheme: str, encrypted: bool) -> list[Conflict]:
    """Return the contradictions among the certificate files of *table*; only a URL of *scheme* is *encrypted*."""
    given = next((name for name in ("ca_file", "certificate_file", "key_file") if getattr(table, name)), None)
    without_tls = [(given, f"{given} means nothing without TLS", f"write {scheme} in url, or remove it")] if given and not encrypted else []
    return [*without_tls, *certificate_conflicts(table)]


def certificate_conflicts(table: Table) -> list[Conflict]:
    """Return the contradiction of a certificate without its key, or of a key without its certificate."""
    names = ("certificate_file", "key_file")
    named, other = names if getattr(table, names[0]) else reversed(names)
    is_alone = bool(getattr(table, named)) and not getattr(table, other)
    return [(named, f"{named} is of no use without {other}", f"give {other} as well")] if is_alone else []
