"""Checks that Python finds our own packages. Law: a command runs only if all of them are found beside this very ``tidegate`` package."""

from __future__ import annotations

from ordering.errors import TidegateError
from tidegate.basics.own_packages import find_intruder


class ShadowedError(TidegateError):
    """A foreign module is imported under the name of one of this distribution's packages."""

    exit_code = 2
    default_code = "TG-SHADOWED"


def check_provenance() -> None:
    """Raise ShadowedError if Python finds another module under the name of one of this distribution's packages, or none."""
    if (intruder := find_intruder()) is not None:
        raise ShadowedError(intruder.what, where=str(intruder.own_location), fix=intruder.fix)
