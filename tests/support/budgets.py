"""Small budgets, so that little work is cut into many steps."""

from __future__ import annotations

from contextlib import AbstractContextManager
from unittest.mock import patch

from tidegate.basics.budget import Budget


def budget_of(**shares: int) -> AbstractContextManager[object]:
    """Let steps have other shares (numbers and properties of ``Budget``); those that are not named stay as they are."""
    return patch.multiple(Budget, **shares)
