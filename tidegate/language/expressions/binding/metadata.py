"""
Binding of GetMetadataPropertyValue: properties of an event's record that are not in its payload.

``'EventId'`` tells the events of an input apart. ``'[EventHub].[PartitionId]'``, ``Offset``, ``SequenceNumber`` and the two times are those
of the Kafka record; ``'[User].[X]'`` is its header X, if the ordered topic keeps it; ``'[IoTHub].[X]'`` is the member X of the payload's
record IoTHub, where bridges from IoT Hub put it.

Law: a replay of the same raw log gives the same values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlglot import exp

from tidegate.language.expressions.binding.names import Names
from tidegate.language.expressions.syntax.errors import Source, offset_of, suggest
from tidegate.language.expressions.tree import Arrival, EventId, Expr, Header, Leaf, PartitionId, RecordOffset

METADATA_FUNCTION = "getmetadatapropertyvalue"
_LEAVES: dict[tuple[str, ...], Leaf] = {
    ("eventid",): EventId(),
    ("eventhub", "partitionid"): PartitionId(),
    ("eventhub", "offset"): RecordOffset(),
    ("eventhub", "sequencenumber"): RecordOffset(),
    ("eventhub", "eventenqueuedutctime"): Arrival(),
}
_KNOWN = (
    "EventId",
    "[EventHub].[PartitionId]",
    "[EventHub].[Offset]",
    "[EventHub].[EventEnqueuedUtcTime]",
    "[IoTHub].[ConnectionDeviceId]",
    "[User].[NAME]",
)
_EXAMPLE = "GetMetadataPropertyValue(flights, 'EventId')"
_USER_PARTS = 2


@dataclass(frozen=True)
class MetadataBinder:
    """Binds calls of GetMetadataPropertyValue over *names*."""

    source: Source
    names: Names

    def bind(self, node: exp.Expr) -> Expr:
        """Bind a call. Raises QueryError: an argument is wrong, or the property is not known (TG-QUERY-NOT-YET)."""
        args, offset = node.expressions, offset_of(node)
        of_input = args[0] if args and isinstance(args[0], exp.Column) and len(args[0].parts) == 1 else None
        if of_input is None or len(args) != 2 or not isinstance(args[1], exp.Literal) or not args[1].is_string:
            message = f"{node.name} takes the name of an input and a constant text"
            raise self.source.error("FUNCTION", node, message, fix="write it as shown", example=_EXAMPLE)
        path = tuple(bracketed or bare for bracketed, bare in re.findall(r"\[([^\]]*)\]|([^.\[\]]+)", str(args[1].this)))
        folded = tuple(map(str.lower, path))
        if folded in _LEAVES:
            return self.names.of_row(of_input.name, _LEAVES[folded], offset)
        if folded == ("eventhub", "eventprocessedutctime") or folded[:1] == ("iothub",):
            return self.names.resolve((of_input.name, *(path[1:] if folded[0] == "eventhub" else path)), offset)
        if folded[:1] == ("user",) and len(path) == _USER_PARTS and path[1]:
            return self.names.of_row(of_input.name, Header(path[1]), offset)
        if folded[:1] in (("eventhub",), ("blob",), ("blobname",), ("bloblastmodifiedutctime",)):
            fix = "leave it out, or let the producer write the value into the payload or a header"
            if folded == ("eventhub",):
                fix = f"name the properties one by one: {', '.join(name for name in _KNOWN if name.startswith('[EventHub]'))}"
            raise self.source.not_yet(args[1], f"the property {args[1].this} is", fix=fix)
        fix = suggest(str(args[1].this), _KNOWN, f"properties are {', '.join(_KNOWN)}")
        raise self.source.error("FUNCTION", args[1], f"there is no property {args[1].this}", fix=fix, example=_EXAMPLE)
