"""
Objects made on first use, from a plan that travels as bytes.

Spark unpickles its arguments in several Python processes of a job: to create the source, to plan its read, to learn the state's schema.
Most of them never use the plan, and importing its modules would cost each process a second of CPU.
"""

from __future__ import annotations

import importlib
import pickle
from typing import Any


class Deferred:
    """Calls *maker* (``module:name`` of a callable) with the picklable *plan* in the process that asks."""

    def __init__(self, maker: str, plan: Any) -> None:
        self._maker, self._plan_bytes = maker, pickle.dumps(plan)

    def __call__(self) -> Any:
        module, _, name = self._maker.partition(":")
        return getattr(importlib.import_module(module), name)(pickle.loads(self._plan_bytes))
