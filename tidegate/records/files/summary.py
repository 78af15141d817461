"""Progress and summaries of commands on files, on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from ordering.model.step import Counts
from tidegate.platform.observe.terminal import print_text, standard_error
from tidegate.records.files.blocks import FileRecords

# Receives the number of records read so far of each file.
Show = Callable[[Sequence[int]], None]


@contextmanager
def show_progress(files: Sequence[tuple[str, FileRecords]], *, is_shown: bool) -> Iterator[Show]:
    """Show how far the named files have been read, if standard error is a terminal; call the yielded function after each step."""
    if not is_shown or not sys.stderr.isatty():
        yield lambda _: None
        return
    with standard_error().progress([(name, records.total) for name, records in files]) as update:

        def show(counts: Sequence[int]) -> None:
            for number, ((_, records), count) in enumerate(zip(files, counts, strict=True)):
                update(number, records.done, f"{count:,} records")

        yield show


def add_counts(total: Counts, counts: Counts) -> None:
    """Add the counts of one step of a model to *total*."""
    for counter in fields(Counts):
        setattr(total, counter.name, getattr(total, counter.name) + getattr(counts, counter.name))


def policy_numbers(counts: Counts) -> dict[str, Any]:
    """Return the counts of the policies as summaries show them."""
    return {
        "early_adjusted": counts.early_adjusted,
        "late_adjusted": counts.late_adjusted,
        "out_of_order_adjusted": counts.out_of_order_adjusted,
        "dropped": {"early": counts.early, "late": counts.late_dropped, "out_of_order": counts.out_of_order_dropped},
    }


def print_summary(numbers: Mapping[str, Any], sentences: Callable[[dict[str, Any]], Iterable[str]], *, as_json: bool) -> None:
    """Write *numbers* to standard error as JSON, or as *sentences* made from them."""
    if as_json:
        print_text(f"{json.dumps(numbers)}\n", sys.stderr)
        return
    terminal = standard_error()
    for line in sentences(dict(numbers)):
        terminal.line(line)
