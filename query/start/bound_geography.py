"""
The libraries of geography in the binding of a checkpoint: GEOS computes how geometries lie, GeographicLib how far apart points are.

Law: a job goes on only with the versions of both that the run was begun with; other versions of the packages that carry them are taken.
A query without geography is bound to none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ordering.errors import RefusedError
from query.plan.nodes import Plan, exprs_in, walk
from tidegate.language.expressions.functions.geography import GEOGRAPHY_FUNCTIONS, library_versions, package_versions
from tidegate.language.expressions.tree import Call

_LIBRARIES = "geography"
_PACKAGES = "geography_packages"


def uses_geography(plans: Sequence[Plan]) -> bool:
    """Tell whether a query calls a function of geography."""
    exprs = (expr for plan in plans for node in walk(plan.root) for expr in exprs_in(node))
    return any(isinstance(expr, Call) and expr.name in GEOGRAPHY_FUNCTIONS for expr in exprs)


def geography_binding(plans: Sequence[Plan]) -> dict[str, str]:
    """Return the fields of a binding that hold the libraries of a query, and the packages that they come from."""
    return {_LIBRARIES: library_versions(), _PACKAGES: package_versions()} if uses_geography(plans) else {}


def settle_geography(bound: Mapping[str, str] | None, binding: Mapping[str, str], where: str) -> dict[str, str]:
    """
    Return *binding*, with the packages to which the checkpoint is *bound* if the libraries are the same in both. Raises RefusedError: one
    is another version now.
    """
    if bound is None or not {_LIBRARIES, _PACKAGES} <= bound.keys() & binding.keys():
        return dict(binding)
    if bound[_LIBRARIES] != binding[_LIBRARIES]:
        fix = (
            "install the packages that it was begun with; or write INTO a new output, or delete the checkpoint folder and continue from "
            "the last results, with the libraries of now (docs/operate/starting.md)"
        )
        raise RefusedError(
            f"geography is computed by {binding[_LIBRARIES]} now: the run was begun with {bound[_LIBRARIES]}",
            code="TG-CHECKPOINT-GEOGRAPHY",
            where=where,
            fix=fix,
            example=f"pip install {bound[_PACKAGES].replace(' ', '==').replace(',==', ' ')}",
        )
    return {**binding, _PACKAGES: bound[_PACKAGES]}
