"""The embedded stack of the folder in which a command runs. Nothing is imported for a folder that has none, as most jobs have."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.platform.stack.embedded import EmbeddedStack

STACK_DIR = ".tidegate/stack"
STACK_VARIABLE = "TIDEGATE_STACK_DIR"


def find_stack(env: Mapping[str, str] = os.environ) -> EmbeddedStack | None:
    """Return the stack of this folder, or of the one that the environment names, if it runs; no server is asked."""
    folder = Path(env.get(STACK_VARIABLE, STACK_DIR))
    if not folder.is_dir():
        return None
    from tidegate.platform.stack.embedded import EmbeddedStack

    return EmbeddedStack.find(folder)
