"""
Lists in CTIs: the substreams whose watermark is ahead of what readers can know (spec section 4; a setting).

A reader knows from a released event at s that all below s of its substream is out. With a reorder tolerance, or after a
drop, the substream's watermark may be further. Law: what a list says is exact at its CTI's point; a substream is told
again only when its watermark has changed (after a restore it may be told again).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ordering.model.events import Batch
from ordering.model.state import State
from ordering.model.verdicts import TimelineWalk
from ordering.protocol.punctuation import Cti


def list_substreams(state: State, batch: Batch, ctis: list[Cti], walk: TimelineWalk, reorder_us: int) -> list[Cti]:
    """
    Return *ctis* with lists in the last of them.

    Args:
        state: After the batch.
        batch: What was walked.
        ctis: The CTIs it gave, in order.
        walk: Which timelines it touched, and where.
        reorder_us: The reorder tolerance.
    """
    table = state.timelines
    rows = np.unique(np.concatenate([*state.unlisted_rows, walk.touched]))
    w = table.largest_us[rows] - reorder_us
    news = w > np.maximum(table.announced_us[rows], state.c)
    rows, w = rows[news], w[news]
    if not ctis:
        state.unlisted_rows = [rows]
        return ctis
    until = ctis[-1].next_offset
    told = {cti.output_partition: cti for cti in ctis if cti.next_offset == until}
    last_row = walk.rows[walk.starts[1:] - 1]
    # What moved after the CTI's point stands elsewhere now than it did there.
    later = walk.touched[batch.offset[last_row] >= until]
    listed = np.isin(table.partition[rows], list(told)) & ~np.isin(rows, later)
    state.unlisted_rows = [rows[~listed]]
    rows, w = rows[listed], w[listed]
    table.announced_us[rows] = w
    names, partition = table.keys(rows).to_pylist(), table.partition[rows].tolist()
    lists: dict[int, list[tuple[bytes, int]]] = {channel: [] for channel in told}
    for channel, name, reached_us in zip(partition, names, w.tolist(), strict=True):
        lists[channel].append((name, reached_us))
    last = {id(cti): tuple(sorted(lists[channel])) for channel, cti in told.items()}
    return [replace(cti, listed=last[id(cti)]) if id(cti) in last else cti for cti in ctis]
