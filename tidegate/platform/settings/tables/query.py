"""The table [query]: limits of all queries."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ordering.ticks import DAY_US, SECOND_US
from tidegate.platform.settings.kinds import Duration, Kind, Size
from tidegate.platform.settings.tables.base import Count, Table


class QuerySettings(Table):
    """[query]: the limits of all queries."""

    window_max_us: Duration = Field(
        default=7 * DAY_US, description="Longest window a query may have; its events are kept as state for that long."
    )
    max_events_per_batch: Count = Field(default=2_500_000, description="Most events one batch of a query reads, over all partitions.")
    max_bytes_per_batch: Annotated[Size, Field(ge=1024)] = Field(
        default=256 * 2**20,
        description="Most bytes of keys and payloads one batch of a query reads, over all partitions, about; what is final is computed "
        "after so many, however large records are. Tasks that run at the same time share them.",
    )
    batch_span_us: Duration = Field(
        default=30 * SECOND_US,
        description="How long a batch at the end of its topics stays open: meanwhile it goes on reading, computing and writing, so events "
        "wait for no batch. 0s: each batch reads a planned range. The results are the same.",
    )
    null_share_warn: Annotated[float, Field(ge=0, le=1), Kind("share, 0 to 1")] = Field(
        default=0.5,
        description="A column is reported if a larger share of the recent records of an input are NULL in it; 1: none ever is.",
    )
    join_pairs_max: Count = Field(
        default=1_000_000,
        description="Most pairs of rows that a join compares for one key at one instant, or for one row with reference data; the rest is "
        "left out, as one dead letter.",
    )
