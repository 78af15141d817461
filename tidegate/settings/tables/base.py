"""
How the tables of ``tidegate.toml`` are built: their base class, and kinds of value that several of them use.

Law: a table that exists is usable. Each setting was checked by its kind, and the settings of one table against each other.
A field whose name ends in ``_us`` is written without that ending, as a duration with a unit.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from tidegate.settings.kinds import Kind, NotAllowed

FieldType = Literal["bigint", "float", "nvarchar(max)", "datetime", "bit", "record", "array"]
Count = Annotated[int, Field(ge=1), Kind("count")]
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


def _check_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise NotAllowed("letters, digits and _, not starting with a digit: queries use it as a name")
    return name


# The name of an input or output, as queries write it.
Name = Annotated[str, AfterValidator(_check_name)]


class _CertificateFiles(Protocol):
    """The settings of a table for a server with TLS: paths of PEM files."""

    @property
    def ca_file(self) -> str | None: ...
    @property
    def certificate_file(self) -> str | None: ...
    @property
    def key_file(self) -> str | None: ...


def tls_conflicts(table: _CertificateFiles, scheme: str, encrypted: bool) -> list[Conflict]:
    """Return the contradictions among certificate files; only a URL of *scheme* is *encrypted*."""
    conflicts: list[Conflict] = []
    given = [name for name in ("ca_file", "certificate_file", "key_file") if getattr(table, name)]
    if given and not encrypted:
        conflicts.append((given[0], f"{given[0]} means nothing without TLS", f"write {scheme} in url, or remove it"))
    if bool(table.certificate_file) != bool(table.key_file):
        named, other = ("certificate_file", "key_file") if table.certificate_file else ("key_file", "certificate_file")
        conflicts.append((named, f"{named} is of no use without {other}", f"give {other} as well"))
    return conflicts
