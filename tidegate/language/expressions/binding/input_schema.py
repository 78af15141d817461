"""The schema of a configured input, as scripts may use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ordering.errors import SettingError
from tidegate.language.expressions.kinds import DECLARABLE, Kind
from tidegate.language.expressions.syntax.errors import suggest_type

ANY = "any"  # the type of a field that exists, but whose kind each event decides


@dataclass(frozen=True)
class InputSchema:
    """One input as the binder sees it. Raises SettingError: a declared type is unknown."""

    name: str
    # The configured event time, a field path or an expression; None: arrival time.
    timestamp_by: str | None = None
    # The configured substream key; None: one timeline per input partition.
    over: str | None = None
    # Declared types by field path (``a.b``): names of types, or ``any``. Other fields may occur unless *is_closed*.
    fields: Mapping[str, str] = field(default_factory=dict)
    # The input is the result of another query: event time is its system timestamp.
    is_result: bool = False
    is_closed: bool = False
    # The input is not ordered yet: the script decides on its event time and its substreams.
    is_free: bool = False
    # The input is reference data: a table without time, in which JOIN looks records up.
    is_reference: bool = False
    # Arrival is when ingest first planned to read the event (``arrival = "ingest"``), so it is the processing time too.
    is_stamped: bool = False
    # Headers of records that its ordered topic keeps; None: the payload's record ``User`` stands for them, as in files.
    headers: tuple[str, ...] | None = ()

    def __post_init__(self) -> None:
        for name, declared in self.fields.items():
            if declared.lower() not in DECLARABLE and declared != ANY:
                where = f"inputs.{self.name}.fields.{name}"
                fix = suggest_type(declared)
                raise SettingError(f"{declared!r} is no type", code="TG-SETTING-TYPE", where=where, fix=fix, example=f'{name} = "bigint"')

    def declared_kind(self, path: tuple[str, ...]) -> Kind | None:
        """Return the declared kind of a field, ignoring case; None if it has none."""
        dotted = ".".join(path).lower()
        declared = next((kind for name, kind in self.fields.items() if name.lower() == dotted), ANY)
        return DECLARABLE.get(declared.lower())

    def knows(self, name: str) -> bool:
        """Return whether a field *name* is declared, or is the event time or a key, ignoring case."""
        configured = (self.timestamp_by or "", *(self.over or "").split(","))
        return name.lower() in {*(field.split(".")[0].lower() for field in self.fields), *(text.strip().lower() for text in configured)}

    def may_have(self, path: tuple[str, ...]) -> bool:
        first = path[0].lower()
        return not self.is_closed or any(name.lower().split(".")[0] == first for name in self.fields)
