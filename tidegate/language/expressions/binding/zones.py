"""The name of a time zone in a script -> the zone; an unknown one is refused with the nearest."""

from __future__ import annotations

from sqlglot import exp

from tidegate.language.expressions.syntax.errors import Source
from tidegate.language.time_zones.database import find_zone, suggest_zone
from tidegate.language.time_zones.zone import Zone


def bind_zone(node: exp.Expr, source: Source, example: str) -> Zone:
    """Return the zone that a constant names; its case does not matter. Raises QueryError: there is none, or it is no constant."""
    if not isinstance(node, exp.Literal) or not node.is_string:
        fix = "write its name, a text: every row has the same zone"
        raise source.error("TYPE", node, "a time zone is a constant", fix=fix, example=example)
    name = str(node.this)
    zone = find_zone(name)
    if zone is None:
        raise source.error("ZONE", node, f"there is no time zone {name}", fix=suggest_zone(name), example=example)
    return zone
