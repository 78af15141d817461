"""
Things made where they are needed, out of a plan that travels as bytes.

Spark starts several Python processes for a job - to create the source, to plan its read, to learn the state's shape -
and unpickles what it was given in each of them. Most need nothing of it; importing what it stands on would cost each a
second of CPU.
"""

from __future__ import annotations

import importlib
import pickle
from typing import Any


class Deferred:
    """
    Calls *maker* with *plan* in the process that asks.

    Args:
        maker: ``module:name`` of a callable with one argument.
        plan: What it is called with; must be picklable.
    """

    def __init__(self, maker: str, plan: Any) -> None:
        self._maker, self._plan_bytes = maker, pickle.dumps(plan)

    def __call__(self) -> Any:
        """Return what the maker makes of the plan."""
        module, _, name = self._maker.partition(":")
        return getattr(importlib.import_module(module), name)(pickle.loads(self._plan_bytes))
