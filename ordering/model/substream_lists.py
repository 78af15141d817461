"""
Lists in CTIs: the substreams whose watermark is ahead of the one that readers can derive (PROTOCOL.md; a setting).

From a released event at s a reader knows that all events of its substream below s are released. With a reorder tolerance, or after a drop,
the substream's watermark may be higher. Law: a list is exact at its CTI's point; a substream is listed again only if its watermark has
changed (or after a restore).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ordering.model.events import Batch
from ordering.model.state import State
from ordering.model.verdicts import TimelineWalk
from ordering.model.watermark import events_watermark_of
from ordering.protocol.punctuation import Cti


def list_substreams(state: State, batch: Batch, ctis: list[Cti], walk: TimelineWalk, reorder_us: int) -> list[Cti]:
    """Return *ctis*, the CTIs of *batch* in order, with lists added to the last ones; *state* is the state after the batch."""
    table = state.timelines
    rows = np.unique(np.concatenate([*state.unlisted_rows, walk.touched]))
    w = events_watermark_of(table.largest_us[rows], reorder_us)
    is_news = w > np.maximum(table.announced_us[rows], state.c)
    rows, w = rows[is_news], w[is_news]
    if not ctis:
        state.unlisted_rows = [rows]
        return ctis
    until = ctis[-1].next_offset
    last_ctis = {cti.output_partition: cti for cti in ctis if cti.next_offset == until}
    last_row = walk.rows[walk.starts[1:] - 1]
    # A timeline that moved after the CTI's point has another watermark now than it had there.
    later = walk.touched[batch.offset[last_row] >= until]
    is_listed = np.isin(table.partition[rows], list(last_ctis)) & ~np.isin(rows, later)
    state.unlisted_rows = [rows[~is_listed]]
    rows, w = rows[is_listed], w[is_listed]
    table.announced_us[rows] = w
    names, partition = table.keys(rows).to_pylist(), table.partition[rows].tolist()
    lists: dict[int, list[tuple[bytes, int]]] = {channel: [] for channel in last_ctis}
    for channel, name, w_us in zip(partition, names, w.tolist(), strict=True):
        lists[channel].append((name, w_us))
    lists_by_cti = {id(cti): tuple(sorted(lists[channel])) for channel, cti in last_ctis.items()}
    return [replace(cti, listed=lists_by_cti[id(cti)]) if id(cti) in lists_by_cti else cti for cti in ctis]
