"""The inputs that a script may name, as they are configured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ordering.errors import SettingError
from tidegate.expressions.kinds import DECLARABLE, Kind
from tidegate.expressions.syntax.errors import suggest

# A field that is known to exist but has the kind each event gives it.
ANY = "any"


@dataclass(frozen=True)
class InputSchema:
    """
    One input as the binder sees it.

    Args:
        name: The name FROM gives it.
        timestamp_by: The event time of its configuration, a field path or an expression; None: arrival time.
        over: The substream key of its configuration; None: one timeline per input partition.
        fields: Declared types by field path (``a.b``), as names of types, or ``any``. Others may occur.
        is_result: It is the result of another query: event time is its system timestamp.
        is_closed: No field occurs but those in ``fields``.
        is_reference: It is reference data: a table that JOIN looks records up in, without time of its own.
        is_free: Nothing has ordered it yet: the script decides on its event time and its substreams.

    Raises:
        SettingError: A declared type is unknown.
    """

    name: str
    timestamp_by: str | None = None
    over: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    is_result: bool = False
    is_closed: bool = False
    is_free: bool = False
    is_reference: bool = False

    def __post_init__(self) -> None:
        for name, declared in self.fields.items():
            if declared.lower() not in DECLARABLE and declared != ANY:
                raise SettingError(
                    f"{declared!r} is no type",
                    code="TG-SETTING-TYPE",
                    where=f"inputs.{self.name}.fields.{name}",
                    fix=suggest(declared, DECLARABLE, f"types are {', '.join(DECLARABLE)}"),
                    example=f'{name} = "bigint"',
                )

    def declared_kind(self, path: tuple[str, ...]) -> Kind | None:
        """Return the declared kind of a field, names compared ignoring case; None when it has none."""
        dotted = ".".join(path).lower()
        declared = next((kind for name, kind in self.fields.items() if name.lower() == dotted), ANY)
        return DECLARABLE.get(declared.lower())

    def may_have(self, path: tuple[str, ...]) -> bool:
        """Return whether an event may have this field."""
        first = path[0].lower()
        return not self.is_closed or any(name.lower().split(".")[0] == first for name in self.fields)
