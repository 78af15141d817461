"""
Saves states of the version that this program writes: ``python tests/ordering/model/states/make.py``.

Run it once whenever ``STATE_VERSION`` has risen, after deleting the files of the version before; a file that exists is not
written again.
"""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Callable
from dataclasses import asdict, astuple, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[3]), str(HERE.parents[2])]

from support.model_runs import Disk, batch_of, model_of, walk  # noqa: E402 - found by the line above
from support.seeded_logs import long_log, spans_log  # noqa: E402
from support.strategies import TOLL_VARIANTS, Case, Range, toll_records  # noqa: E402

from ordering.model.state import STATE_VERSION, State  # noqa: E402
from ordering.model.step import Model  # noqa: E402
from ordering.policies import Action, Generation, Policies, Shape  # noqa: E402
from ordering.testing import Record  # noqa: E402
from ordering.ticks import MINUTE_US, SECOND_US  # noqa: E402

POLICIES = Policies(early_us=2 * MINUTE_US, late_us=3 * MINUTE_US, reorder_us=45 * SECOND_US, cti_violation_action=Action.ADJUST)
BATCH = 20


def cut_every(records: tuple[Record, ...], size: int) -> list[Range]:
    """Return batches of *size* offsets."""
    first, end = records[0].offset, records[-1].offset + 1
    return [Range(low, min(end, low + size)) for low in range(first, end, size)]


def a_case(records: tuple[Record, ...], over: bool, shape: Shape = Shape.POINT, **parts: Any) -> Case:
    """Return a case over a long log with an estimate and an import half-way."""
    cuts = cut_every(records, BATCH)
    half = len(cuts) // 2
    arrived_us = max(record.arrival_us for record in records if record.offset < cuts[half].start)
    estimate = (cuts[half].start, arrived_us + 20 * SECOND_US)
    brought = (cuts[half].start, arrived_us - 60 * SECOND_US)
    cuts[half] = replace(cuts[half], estimates=(estimate,), imports=(brought,))
    return replace(
        Case(POLICIES, over, 3, 2, records, dict([estimate]), tuple(cuts), finish=False, imports=dict([brought]), shape=shape), **parts
    )


def save(name: str, case: Case, batches: int, fresh: Callable[[Model], State] = Model.new_state, **about: Any) -> None:
    """Walk the first *batches* of a case and save the state, unless it was saved before."""
    path = HERE / f"v{STATE_VERSION}.{name}.json"
    if path.exists():
        print(f"{path.name} exists")
        return
    model = model_of(case)
    disk, state = Disk(), fresh(model)
    for cut in case.ranges[:batches]:
        model.step(state, batch_of(case, cut, finish=False))
        disk.save(state)
    document = {
        "version": STATE_VERSION,
        "policies": asdict(case.policies),
        "over": case.over,
        "output_partitions": case.output_partitions,
        "number": case.number,
        "shape": case.shape,
        "generation": asdict(case.generation),
        "joined_us": case.joined_us,
        "walked": case.ranges[batches - 1].end,
        "estimates": sorted(case.estimates.items()),
        "imports": sorted(case.imports.items()),
        "records": [[part.decode() if isinstance(part, bytes) else part for part in astuple(record)] for record in case.records],
        "head": json.loads(disk.head or b""),
        "chunks": {str(number): b64encode(octets).decode() for number, octets in disk.chunks.items()},
        **about,
    }
    path.write_text(json.dumps(document, separators=(",", ":")) + "\n")
    print(f"{path.name} written")


def main() -> None:
    """Save one state of each kind."""
    for variant in ("one_timeline", "over_device"):
        policies, over = TOLL_VARIANTS[variant]
        records = tuple(toll_records())
        save(f"toll_{variant}", Case(policies, over, 2, 0, records, {}, tuple(cut_every(records, 1)), finish=False), 8)
    points, edges = long_log(5, 400, 25), spans_log(6, 400, 12, Shape.EDGE)
    intervals = spans_log(7, 400, 12, Shape.INTERVAL)
    save("long", a_case(points, over=False), 13)
    save("long_over", a_case(points, over=True), 13)
    counted = Generation(every_events=7, every_us=MINUTE_US, delay_us=10 * SECOND_US)
    save("edges", a_case(edges, over=False, shape=Shape.EDGE, generation=counted), 13)
    listing = Generation(list_substreams=True)
    save("intervals_over", a_case(intervals, over=True, shape=Shape.INTERVAL, generation=listing), 13)
    save("joined_over", a_case(points, over=True, joined_us=points[100].arrival_us), 13)
    started = a_case(edges, over=True, shape=Shape.EDGE)
    start_us = edges[180].arrival_us
    first = edges[0].offset
    save("started_over", started, 13, lambda model: model.state_from(start_us, first), start_us=start_us)
    promises = {channel: ctis[len(ctis) // 2] for channel, ctis in walk(a_case(points, over=True)).channels().items()}
    numbered = {channel: cti.n for channel, cti in promises.items()}
    save("resumed_over", a_case(points, over=True), 9, lambda model: model.resume(promises, points[0].offset), numbered=numbered)


if __name__ == "__main__":
    main()
