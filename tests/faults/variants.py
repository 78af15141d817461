"""What is ingested in an episode and how: drawn, so that every kind of fault meets every kind of input sooner or later."""

from __future__ import annotations

import random
from dataclasses import dataclass

from faults.workload import Manner
from support.stack.jobs import settings_of

from ordering.policies import Action, Policies, Shape
from ordering.ticks import SECOND_US

_TABLES = """
[inputs.events]
topic = "{topic}"
output_partitions = {outputs}
timestamp_by = "at"
early = "20s"
late = "3s"
late_action = "{late}"
reorder = "{reorder_s}s"
out_of_order_action = "{out_of_order}"
idle_margin = "200ms"
idle_cadence = "300ms"
{rest}
"""

SPANS = "0s", "1500ms", "30s"
"""For how long batches stay open, drawn for each life: micro-batches, batches with many ends, and the default."""


@dataclass(frozen=True, slots=True)
class Variant:
    """
    One way to ingest.

    Args:
        manner: What the producer sends.
        output_partitions: Of the ordered topic.
        over: Whether each key is a substream.
        log_append: Whether the broker stamps records; else the producer does.
        stamped: Whether ingest itself stamps arrivals (``arrival = "ingest"``).
        estimates: Whether silence advances time.
        late, out_of_order: What happens to such events.
        reorder_s: Reorder tolerance.
        batch_events: Most events a batch takes; None: the default.
        trigger: Least time between two batches.
        cores: Of Spark's local master.
        retries: How often a task may fail before the job does.
        tasks: Shuffle partitions.
    """

    manner: Manner
    output_partitions: int
    over: bool = True
    log_append: bool = True
    stamped: bool = False
    estimates: bool = True
    late: Action = Action.ADJUST
    out_of_order: Action = Action.ADJUST
    reorder_s: int = 1
    batch_events: int | None = None
    trigger: str = "0s"
    cores: int = 2
    retries: int = 1
    tasks: int = 2

    def tables(self, topic: str) -> str:
        """Return the ``[inputs]`` table for a raw topic."""
        rest = [f'idle = "{"on" if self.estimates else "off"}"']
        if self.stamped:
            rest.append('arrival = "ingest"')
        if self.over:
            rest.append('over = "k"')
        if self.manner.shape is not Shape.POINT:
            rest += [f'shape = "{self.manner.shape.value}"', 'end = "end"']
        if self.manner.source_ctis:
            rest.append("source_ctis = true")
        if self.batch_events is not None:
            rest.append(f"max_events_per_batch = {self.batch_events}")
        return _TABLES.format(
            topic=topic,
            outputs=self.output_partitions,
            late=self.late.value,
            reorder_s=self.reorder_s,
            out_of_order=self.out_of_order.value,
            rest="\n".join(rest),
        )

    def flags(self, span: str = SPANS[-1]) -> list[str]:
        """Return the flags for Spark, and for how long batches stay open."""
        master = f"local[{self.cores},{self.retries}]"
        spark = settings_of(spark__master=master, spark__shuffle_partitions=self.tasks, spark__trigger=self.trigger)
        return [*spark, *settings_of(inputs__events__batch_span=span)]

    def policies(self) -> Policies:
        """Return the time policies as the oracle takes them."""
        return Policies(20 * SECOND_US, 3 * SECOND_US, self.late, self.reorder_s * SECOND_US, self.out_of_order)

    def __str__(self) -> str:
        stamps = "stamped by ingest" if self.stamped else "LogAppendTime" if self.log_append else "CreateTime"
        parts = [f"{self.manner.partitions} -> {self.output_partitions} partitions", stamps, self.manner.shape.value]
        parts += ["over"] * self.over + ["estimates"] * self.estimates + ["source CTIs"] * bool(self.manner.source_ctis)
        parts += [f"late {self.late.value}", f"out of order {self.out_of_order.value}", f"reorder {self.reorder_s}s"]
        parts += [f"batches of {self.batch_events}"] if self.batch_events else []
        return ", ".join([*parts, f"trigger {self.trigger}", f"local[{self.cores},{self.retries}]"])


def draw_variant(dice: random.Random, per_s: int) -> Variant:
    """Draw one; every partition speaks again within seconds, so that time always has a reason to move."""
    partitions = dice.choice((1, 2, 2, 3, 4))
    shape = dice.choice((Shape.POINT, Shape.POINT, Shape.INTERVAL, Shape.EDGE))
    over = shape is Shape.EDGE or dice.random() < 0.7
    log_append, stamped = dice.random() < 0.6, dice.random() < 0.15
    estimates = log_append or stamped or dice.random() < 0.3
    manner = Manner(
        partitions,
        per_s,
        shape,
        source_ctis=dice.choice((0.0, 0.0, 0.001)),
        silences=True,
        all_silent=estimates,
        ahead=not log_append and not stamped,
    )
    return Variant(
        manner,
        output_partitions=partitions if not over else dice.choice((1, 2, 3)),
        over=over,
        log_append=log_append,
        stamped=stamped,
        estimates=estimates,
        late=dice.choice(tuple(Action)),
        out_of_order=dice.choice(tuple(Action)),
        reorder_s=dice.choice((0, 1, 2)),
        batch_events=dice.choice((None, None, 300, 1000)),
        trigger=dice.choice(("0s", "0s", "0s", "300ms", "1s")),
        cores=dice.choice((1, 2, 2, 4)),
        retries=dice.choice((1, 4)),
        tasks=dice.choice((1, 2, 3)),
    )
