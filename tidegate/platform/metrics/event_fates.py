"""
What has become of an input's records, from the totals that its stages report: moved, dropped, dead letters; with their shares.

Law: a share is of all records read, those without a plausible arrival included. An event counts for each policy that moved it, but at most
one policy drops it, and a record cannot be used for one reason only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEAD_LETTER = "dead_letter_"
# The policies in their order: the beginnings of their counts.
_POLICIES = ("early", "cti_violation", "late", "out_of_order")
# Records that the model never sees, since they have no usable arrival.
_NO_ARRIVAL = ("dead_letter_arrival_missing", "dead_letter_arrival_ahead")

Totals = Mapping[str, Any]


def count_records(totals: Totals) -> int:
    """Return how many records were read and not skipped."""
    return int(totals.get("events_in", 0)) + sum(int(totals.get(name, 0)) for name in _NO_ARRIVAL)


def count_moved(totals: Totals) -> dict[str, int]:
    """Return by policy how many events it moved, without those that are 0."""
    return _by_policy(totals, "adjusted")


def count_dropped(totals: Totals) -> dict[str, int]:
    """Return by policy how many events it dropped, without those that are 0."""
    return _by_policy(totals, "dropped")


def count_dead_letters(totals: Totals) -> dict[str, int]:
    """Return by reason how many records cannot be used, the most frequent first."""
    counts = {name.removeprefix(DEAD_LETTER): int(count) for name, count in totals.items() if name.startswith(DEAD_LETTER) and count}
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def describe_fates(totals: Totals) -> str:
    """Return how many events each policy moved and dropped, and what cannot be used, with their shares; empty if all were kept."""
    described = []
    for name, fates in fates_as_dict(totals).items():
        causes = [f"{fate['count']:,} {_in_words(cause)} ({format_share(fate['share'])})" for cause, fate in fates.items()]
        described.append(f"{_in_words(name)}: {', '.join(causes)}")
    return "; ".join(described)


def fates_as_dict(totals: Totals) -> dict[str, dict[str, dict[str, Any]]]:
    """Return ``moved`` and ``dropped`` by policy and ``dead_letters`` by reason, each with ``count`` and ``share``, without empty ones."""
    records = max(count_records(totals), 1)
    fates = {"moved": count_moved(totals), "dropped": count_dropped(totals), "dead_letters": count_dead_letters(totals)}
    return {
        name: {cause: {"count": count, "share": round(count / records, 6)} for cause, count in counts.items()}
        for name, counts in fates.items()
        if counts
    }


def format_share(share: float) -> str:
    """Return a share as percent, with enough digits that a few of many are not 0."""
    percent = 100 * share
    digits = 0 if percent >= 10 else 1 if percent >= 0.1 else 3
    return f"{percent:.{digits}f} %" if percent >= 0.001 else "under 0.001 %"


def _in_words(name: str) -> str:
    return name.replace("_", " ")


def _by_policy(totals: Totals, action: str) -> dict[str, int]:
    # Early events were dropped before there was a choice: that count has the bare name.
    names = {policy: "early" if (policy, action) == ("early", "dropped") else f"{policy}_{action}" for policy in _POLICIES}
    counts = {policy: int(totals.get(name, 0)) for policy, name in names.items()}
    return {policy: count for policy, count in counts.items() if count}
