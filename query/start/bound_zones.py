"""
Time zones in the binding of a checkpoint: the rules of the zones that a query uses decide its results.

Law: a job goes on only if each zone's clock shows what it showed when the run was begun. A database of another version in which these zones
are the same changes nothing, and is taken. A query without zones is bound to no database.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ordering.errors import RefusedError
from query.plan.local_windows import zones_of
from query.plan.nodes import Plan
from tidegate.language.time_zones.database import database_version

_ZONES = "time_zones"
_DATABASE = "time_zone_database"


def zones_binding(plans: Sequence[Plan]) -> dict[str, str]:
    """Return the fields of a binding that hold the zones of a query, and the database that they come from."""
    zones = {zone.name: zone.digest for zone in zones_of(plans)}
    return {_ZONES: json.dumps(zones), _DATABASE: database_version()} if zones else {}


def settle_zones(bound: Mapping[str, str] | None, binding: Mapping[str, str], where: str) -> dict[str, str]:
    """
    Return *binding*, with the database to which the checkpoint is *bound* if the zones are the same in both. Raises RefusedError: the clock
    of a zone that the run has used is another one now.
    """
    if bound is None or not {_ZONES, _DATABASE} <= bound.keys() & binding.keys():
        return dict(binding)
    before, now = (json.loads(fields[_ZONES]) for fields in (bound, binding))
    changed = [name for name in before if name in now and before[name] != now[name]]
    if changed:
        what = f"the clocks of {', '.join(changed)} have changed: the run was begun with the time zone database {bound[_DATABASE]}"
        package = bound[_DATABASE].partition("(tzdata ")[2].rstrip(")")
        fix = (
            "install the package that it was begun with; or write INTO a new output, or delete the checkpoint folder and continue from the "
            f"last results, by the clocks of {binding[_DATABASE]} (docs/operate/starting.md)"
        )
        raise RefusedError(what, code="TG-CHECKPOINT-ZONES", where=where, fix=fix, example=f"pip install tzdata=={package}")
    return {**binding, _DATABASE: bound[_DATABASE]}
