"""
Parallelism: how the work of a query without OVER is split between buckets.

Law: all buckets together give the results that one bucket would give, each row in its order. There are three ways, the cheapest first:

- **By partition.** An ordered topic with substreams is partitioned by their keys: all events of a key, from every input partition, are in
  one of its partitions, and each partition has the CTIs of every input partition. If every grouping, join and look-back of a query keeps
  rows of different keys apart, each partition has a bucket of its own, and no row changes buckets. This needs equal key bytes for rows that
  the query treats as equal. Grouping by a field without a declared type meets it: both compare kind and value. A join does not, since ``1 =
  1.0``: there the key must be declared as text.
- **By exchange.** If all of these have other keys in common (:mod:`query.plan.common_keys`), rows are split by the values of these keys.
  Each bucket reads every partition, CTIs included, and keeps the events of its own keys (:mod:`query.engine.exchange`).
- **Not at all.** One bucket merges everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from query.plan.common_keys import Candidate, Keys, common_keys, meetings
from query.plan.nodes import Plan
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Cast, Expr, keys_of


@dataclass(frozen=True, slots=True)
class Parallelism:
    """How the work of a query is split between buckets, and why."""

    # Whether each partition of the ordered topics can be a bucket of its own.
    is_by_partition: bool
    reason: str
    # For each input whose rows meet, the keys by which rows can be exchanged; empty: they cannot be.
    keys: Keys = field(default_factory=dict)


def decide_parallelism(plans: Sequence[Plan], overs: Mapping[str, Expr | None], partitions: Mapping[str, int]) -> Parallelism:
    """
    Decide how the work of a query without OVER is split between buckets.

    *overs* holds the substream key of each input, None if its topic has no substreams; *partitions* how many partitions its topic has.
    """
    obstacle = _not_by_partition(plans, overs, partitions)
    keys = common_keys(plans)
    common = {} if isinstance(keys, str) else keys
    if not obstacle:
        names = ", ".join(dict.fromkeys(str(over) for over in overs.values()))
        return Parallelism(True, f"one bucket for each partition: everything keeps rows of different {names} apart", common)
    if not common:
        return Parallelism(False, f"one bucket: {keys or obstacle}")
    return Parallelism(False, f"exchange by {keys_text(common)}: {obstacle}", common)


def keys_text(keys: Keys) -> str:
    """Format keys for people: ``city``, or ``city, street of a; town, road of b`` if there are several inputs."""
    texts = {name: ", ".join(map(str, exprs)) for name, exprs in keys.items()}
    return "; ".join(f"{text} of {name}" for name, text in texts.items()) if len(texts) > 1 else "".join(texts.values())


def _not_by_partition(plans: Sequence[Plan], overs: Mapping[str, Expr | None], partitions: Mapping[str, int]) -> str:
    """Return why partitions cannot have buckets of their own; empty if they can."""
    if len(set(partitions.values())) > 1:
        counts = ", ".join(f"{name} {count}" for name, count in partitions.items())
        return f"the ordered topics have different numbers of partitions ({counts})"
    without = [name for name, over in overs.items() if over is None]
    if without:
        return f"{', '.join(without)} has no substreams (over) that could be spread"
    listed = {name: keys_of(over) for name, over in overs.items()}
    if len(set(map(len, listed.values()))) > 1:
        return "the inputs have different numbers of substream keys"
    # Rows that are equal in each of the keys have equal bytes of the substream key.
    by_place = [dict(zip(listed, keys, strict=True)) for keys in zip(*listed.values(), strict=True)]
    for meeting in (meeting for plan in plans for meeting in meetings(plan.root)):
        if not all(any(_are_keys(candidate, keys) for candidate in meeting.candidates) for keys in by_place):
            return meeting.hint or f"rows of different substream keys meet: {meeting.place}"
    return ""


def _are_keys(candidate: Candidate, keys: Mapping[str, Expr]) -> bool:
    """Return whether rows that are equal by a candidate have equal bytes of these substream keys."""
    # A declared number is parsed: 07 and 7 are equal then, but their bytes differ.
    is_read = (isinstance(expr, Cast) and expr.declared and expr.kind is not Kind.NVARCHAR for expr in candidate.values())
    return not any(is_read) and all(expr == keys[name] for name, expr in candidate.items())
