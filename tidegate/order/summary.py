"""The summary of a command that ran on files: sentences for people, one JSON object for programs; on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def print_summary(numbers: Mapping[str, Any], sentences: Callable[[dict[str, Any]], Iterable[str]], *, as_json: bool) -> None:
    """Write *numbers*, as they are or as *sentences* of them."""
    if as_json:
        print(json.dumps(numbers), file=sys.stderr)
        return
    from rich.console import Console

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for line in sentences(dict(numbers)):
        console.print(line, markup=False)
