"""
Spreading: into how many buckets the work of a query without OVER is split, and why.

Law: what all buckets give together is what one bucket would give, each row in its order. Three ways, the cheapest first:

- **By partition.** An ordered topic with substreams is spread by their keys: all events of a key, of every input partition, lie
  in one of its partitions, and each partition says how far every input partition has come. So where everything in a query that
  puts rows together - grouping, joining, looking back - keeps rows of different keys apart, each partition can be worked on
  alone, by a bucket of its own, and no row ever changes buckets. It holds if rows that a query takes for equal have equal key
  bytes. A field without a declared type groups by kind and value, and so do its bytes; but ``1 = 1.0`` in a join, while their
  bytes differ: there the key must be declared as text.
- **By exchange.** Where all of that has other keys in common (:mod:`query.plan.common_keys`), rows are split by their values: each
  bucket reads every partition, its CTIs included, and keeps the events whose keys fall to it (:mod:`query.engine.exchange`).
- **Not at all**: one bucket merges everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from query.plan.common_keys import Candidate, Keys, common_keys, meetings
from query.plan.nodes import Plan
from tidegate.expressions.kinds import Kind
from tidegate.expressions.tree import Cast, Expr


@dataclass(frozen=True, slots=True)
class Spreading:
    """
    Args:
        by_partition: Whether each partition of the ordered topics can be a bucket of its own.
        why: The reason, for people.
        keys: The keys by which rows can be exchanged, for each input whose rows meet; none where they cannot.
    """

    is_by_partition: bool
    reason: str
    keys: Keys = field(default_factory=dict)


def decide_spreading(plans: Sequence[Plan], overs: Mapping[str, Expr | None], partitions: Mapping[str, int]) -> Spreading:
    """
    Decide how a query without OVER is spread.

    Args:
        plans: What is computed.
        overs: The substream key of each input, None where its topic has no substreams.
        partitions: How many partitions the ordered topic of each input has.
    """
    obstacle = _not_by_partition(plans, overs, partitions)
    keys = common_keys(plans)
    found = {} if isinstance(keys, str) else keys
    if not obstacle:
        named = ", ".join(dict.fromkeys(str(over) for over in overs.values()))
        return Spreading(True, f"one bucket for each partition: everything keeps rows of different {named} apart", found)
    if not found:
        return Spreading(False, f"one bucket: {keys or obstacle}")
    return Spreading(False, f"exchange by {keys_text(found)}: {obstacle}", found)


def keys_text(keys: Keys) -> str:
    """Return keys for people: ``city``, or ``city, street of a; town, road of b`` where there are several inputs."""
    lists = {name: ", ".join(map(str, every)) for name, every in keys.items()}
    return "; ".join(f"{every} of {name}" for name, every in lists.items()) if len(lists) > 1 else "".join(lists.values())


def _not_by_partition(plans: Sequence[Plan], overs: Mapping[str, Expr | None], partitions: Mapping[str, int]) -> str:
    """Return why partitions cannot be worked on alone; empty where they can."""
    if len(set(partitions.values())) > 1:
        told = ", ".join(f"{name} {count}" for name, count in partitions.items())
        return f"the ordered topics have different numbers of partitions ({told})"
    without = [name for name, over in overs.items() if over is None]
    if without:
        return f"{', '.join(without)} has no substreams (over) that could be spread"
    for meeting in (meeting for plan in plans for meeting in meetings(plan.root)):
        if not any(_are_keys(candidate, overs) for candidate in meeting.candidates):
            return meeting.hint or f"rows of different substream keys meet: {meeting.place}"
    return ""


def _are_keys(candidate: Candidate, overs: Mapping[str, Expr | None]) -> bool:
    """Tell whether what is equal by a candidate has equal bytes as the substream keys."""
    # A declared number is read: 07 and 7 are equal then, but not their bytes.
    is_read = (isinstance(expr, Cast) and expr.declared and expr.kind is not Kind.NVARCHAR for expr in candidate.values())
    return not any(is_read) and all(expr == overs[name] for name, expr in candidate.items())
