"""
The task slots of this process's session. A batch that stays open keeps a slot for each of its tasks, so all open batches together must
leave one for the others.

Law: with ``batch_span`` a local session gets slots enough by itself for all stages of the settings, each with ``shuffle_partitions`` tasks;
an open task mostly waits, so it needs no core of its own. Only a checkpoint that has more tasks than the settings may find too few.
"""

from __future__ import annotations

import os
import re

from tidegate.platform.settings.load import Settings

# A local session with open batches has at least so many slots. They are threads of the JVM that are made when they are used.
_OPEN_SLOTS = 64
_LOCAL = re.compile(r"local(?:\[(\d+|\*)(,\d+)?\])?")


def master_of(settings: Settings) -> str:
    """Return Spark's master as configured, of a local one with slots for open batches if any stage may have some."""
    master = settings.spark.master
    may_open = settings.query.batch_span_us or any(table.batch_span_us for table in settings.inputs.values())
    local = _LOCAL.fullmatch(master)
    if not may_open or local is None:
        return master
    # Each query has an output of its own, one of them perhaps without a table.
    stages = len(settings.inputs) + len(settings.outputs) + 1
    slots = max(_slots(local[1]), _OPEN_SLOTS, stages * settings.spark.shuffle_partitions + 1)
    return f"local[{slots}{local[2] or ''}]"


def _slots(number: str | None) -> int:
    """Return the slots of ``local[number]``."""
    return (os.cpu_count() or 1) if number == "*" else int(number or 1)


class TaskSlots:
    """Who keeps slots for open batches in this process."""

    def __init__(self) -> None:
        self._kept: dict[str, int] = {}

    def keep(self, job: str, tasks: int, master: str) -> str:
        """
        Keep the slots of *tasks* for the open batches of a *job*, in place of those it had; *master*: that of the session. Return why that
        cannot be; empty if it is done.
        """
        self.release(job)
        local = _LOCAL.fullmatch(master)
        if local is None:
            return f"spark.master is {master}, and only local[N] is supported"
        slots = _slots(local[1])
        others = sum(self._kept.values())
        # Stages that read in micro-batches, and what hands out ranges, take turns on the last one.
        needed = others + tasks + 1
        if slots < needed:
            return (
                f'the stages of this process need {needed} task slots, and there are {slots}: set spark.master = "local[{needed}]" or more'
            )
        self._kept[job] = tasks
        return ""

    def release(self, job: str) -> None:
        """Give back what *job* keeps, if anything."""
        self._kept.pop(job, None)


TASK_SLOTS = TaskSlots()
