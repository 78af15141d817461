"""
Reads the flags of ``tidegate order`` as policies and shapes.

Law: a wrong flag is reported before anything is read or written; the error names it and shows a correct example.
"""

from __future__ import annotations

from dataclasses import replace

from ordering.errors import SettingError, TidegateError
from ordering.policies import Action, Policies, Shape
from ordering.ticks import parse_duration

OFF = "off"
NONE = "none"


def parse_policies(early: str, early_action: Action, late: str, late_action: Action, reorder: str, out_of_order_action: Action) -> Policies:
    """Return the policies that the flags mean; raise SettingError if a duration cannot be read or is out of range."""
    return Policies(
        early_us=_parse_duration(early, "--early"),
        early_action=early_action,
        late_us=_parse_duration(late, "--late"),
        late_action=late_action,
        # parse_duration refuses negative durations, but -1us is a valid reorder setting.
        reorder_us=-1 if reorder == "-1us" else _parse_tolerance(reorder),
        out_of_order_action=out_of_order_action,
    )


def without_arrival(policies: Policies, *, has_over: bool) -> Policies:
    """Return the policies for records without arrivals: nothing is early or late."""
    # Without arrivals the floor never moves. With OVER the model still demands a late tolerance.
    return replace(policies, early_us=None, late_us=0 if has_over else None)


def _parse_tolerance(text: str) -> int:
    duration_us = _parse_duration(text, "--reorder")
    if duration_us is None:
        fix, example = "give a duration", "--reorder 0s"
        raise SettingError("reorder cannot be off", code="TG-SETTING-VALUE", where="--reorder", fix=fix, example=example)
    return duration_us


def _parse_duration(text: str, flag: str) -> int | None:
    if text == OFF:
        return None
    try:
        return parse_duration(text)
    except TidegateError as error:
        fix = error.fix if flag == "--reorder" else f"{error.fix}; or off"
        raise SettingError(error.what, code=error.code, where=flag, fix=fix, example=f"{flag} 5s") from None


def check_shape(shape: Shape, end: str | None, key: str | None) -> None:
    """Raise SettingError if a flag of spans is given without the other ones that it needs."""
    if (shape is not Shape.POINT) != (end is not None):
        raise _conflict("--shape and --end go together", "--shape", "give both", "--shape interval --end until")
    if key is not None and shape is not Shape.EDGE:
        fix = "leave it out, or say that events are edges"
        raise _conflict("--key is for edges only", "--key", fix, f"--shape edge --end until --key {key}")


def _conflict(what: str, where: str, fix: str, example: str) -> SettingError:
    return SettingError(what, code="TG-SETTING-CONFLICT", where=where, fix=fix, example=example)
