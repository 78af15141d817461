"""Progress and summaries of commands on files, on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from ordering.model.step import Counts
from tidegate.order.blocks import Records

# Receives the number of records read so far of each file.
Show = Callable[[Sequence[int]], None]


@contextmanager
def show_progress(files: Sequence[tuple[str, Records]], *, is_shown: bool) -> Iterator[Show]:
    """Show how far the named files have been read, if standard error is a terminal; call the yielded function after each step."""
    if not is_shown or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    has_total = any(records.total for _, records in files)
    bar = [BarColumn(bar_width=20)] if has_total else []
    text = (TextColumn("{task.description}"), *bar, TextColumn("{task.fields[count]:,} records"))
    with Progress(SpinnerColumn(), *text, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as shown:
        tasks = [shown.add_task(name, total=records.total or None, count=0) for name, records in files]

        def show(counts: Sequence[int]) -> None:
            for task, (_, records), count in zip(tasks, files, counts, strict=True):
                shown.update(task, completed=records.done, count=count)

        yield show


def add_counts(total: Counts, counts: Counts) -> None:
    """Add the counts of one step of a model to *total*."""
    for counter in fields(Counts):
        setattr(total, counter.name, getattr(total, counter.name) + getattr(counts, counter.name))


def policy_numbers(counts: Counts) -> dict[str, Any]:
    """Return the counts of the policies as summaries show them."""
    return {
        "late_adjusted": counts.late_adjusted,
        "out_of_order_adjusted": counts.out_of_order_adjusted,
        "dropped": {"early": counts.early, "late": counts.late_dropped, "out_of_order": counts.out_of_order_dropped},
    }


def print_summary(numbers: Mapping[str, Any], sentences: Callable[[dict[str, Any]], Iterable[str]], *, as_json: bool) -> None:
    """Write *numbers* to standard error as JSON, or as *sentences* made from them."""
    if as_json:
        print(json.dumps(numbers), file=sys.stderr)
        return
    from rich.console import Console

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for line in sentences(dict(numbers)):
        console.print(line, markup=False)
