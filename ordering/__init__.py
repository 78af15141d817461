"""
The model: how disordered events become one order. Pure: no Spark, no Kafka, no Redis, no clock.

Law: the result of a batch depends on the log up to its end, the policies and the journaled estimates, not on how the log was cut into
batches. ``docs/learn/tutorial.md`` explains the terms, ``docs/learn/library.md`` the use from Python.

``model`` judges, holds and releases events; start reading at :mod:`ordering.model.step`. ``protocol`` is the ordered topic: its bytes, and
the rule by which it is read. ``proof`` explains the fate of single events, ``conformance`` questions other implementations, and ``columns``
has what both jobs do with whole columns.

>>> from ordering import MINUTE_US, Policies, log_of, transcript
>>> policies = Policies(early_us=5 * MINUTE_US, late_us=5 * MINUTE_US, reorder_us=2 * MINUTE_US)
>>> print(transcript(log_of([("12:07", "12:07", "a"), ("12:17", "12:11", "a"), ("12:12", "12:13", "b")]), policies))
   1 12:07 arriving 12:07 a: releases nothing; c = 12:05
   2 12:17 arriving 12:11 a: dropped as early; releases nothing; c = 12:06
   3 12:12 arriving 12:13 b: releases 1 at 12:07; c = 12:10
held: 3 at 12:12

The names below are public. Each is imported from its module at first use, so ``import ordering`` alone costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ordering.errors import ProtocolError, SettingError, TidegateError
    from ordering.model.state import Delta, State
    from ordering.model.step import Batch, Counts, Dropped, Model, Reason, Released, Step
    from ordering.policies import Action, Generation, Policies, Shape
    from ordering.proof.explain import Explainer
    from ordering.proof.explanation import Explanation
    from ordering.protocol.frontier import Frontier
    from ordering.protocol.partitioner import output_partitions
    from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
    from ordering.protocol.reader import Accepted, Log, PartitionReader
    from ordering.protocol.wire import (
        Flag,
        Kind,
        decode_cti,
        decode_event_headers,
        decode_source_cti,
        encode_ctis,
        encode_event_headers,
        encode_source_cti,
    )
    from ordering.testing import ManualClock, Record, Transcript, batch_of, log_of, transcript
    from ordering.ticks import HOUR_US, INFINITY, MINUTE_US, NEVER, SECOND_US, format_tick, parse_duration, parse_tick

__all__ = ["HOUR_US", "INFINITY", "MINUTE_US", "NEVER", "SECOND_US", "format_tick", "parse_duration", "parse_tick"]
__all__ += ["Action", "Generation", "Policies", "ProtocolError", "SettingError", "Shape", "TidegateError"]
__all__ += ["Batch", "Counts", "Delta", "Dropped", "Model", "Reason", "Released", "State", "Step"]
__all__ += ["Accepted", "Cause", "Cti", "Frontier", "Log", "PartitionReader", "Roster", "Spread"]
__all__ += ["Flag", "Kind", "decode_cti", "decode_event_headers", "decode_source_cti"]
__all__ += ["encode_ctis", "encode_event_headers", "encode_source_cti", "output_partitions"]
__all__ += ["Explainer", "Explanation", "ManualClock", "Record", "Transcript", "batch_of", "log_of", "transcript"]

_HOMES = {
    "errors": "ProtocolError SettingError TidegateError",
    "proof.explain": "Explainer",
    "proof.explanation": "Explanation",
    "protocol.frontier": "Frontier",
    "policies": "Action Generation Policies Shape",
    "protocol.punctuation": "Cause Cti Roster Spread",
    "protocol.reader": "Accepted Log PartitionReader",
    "model.state": "Delta State",
    "model.step": "Batch Counts Dropped Model Reason Released Step",
    "testing": "ManualClock Record Transcript batch_of log_of transcript",
    "ticks": "HOUR_US INFINITY MINUTE_US NEVER SECOND_US format_tick parse_duration parse_tick",
    "protocol.partitioner": "output_partitions",
    "protocol.wire": "Flag Kind decode_cti decode_event_headers decode_source_cti encode_ctis encode_event_headers encode_source_cti",
}
_HOME = {name: f"ordering.{module}" for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Import a public name from its module; Python calls this only once for each name."""
    if name not in _HOME:
        raise AttributeError(f"module 'ordering' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOME[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
