"""
Finds logs that were truncated under the job: records that it has read are gone, and others will take their offsets.
Law: a partition that ends below its planned position for more than a minute is refused. A new leader may report an older end for a while.
After an unclean election the end stays there, and new records would be skipped as already read.
"""

from __future__ import annotations

from collections.abc import Mapping

from ingest.offsets import Partition, Positions
from ordering.errors import RefusedError
from ordering.ticks import MINUTE_US


class TruncatedLogs:
    """Watches for partitions that end below their planned positions."""

    def __init__(self) -> None:
        self._since_us: dict[Partition, int] = {}

    def check(self, positions: Positions, ends: Mapping[Partition, int], now_us: int) -> None:
        """Raise RefusedError (TG-LOG-CUT) if a partition has ended below its position for a minute of *now_us*, a monotonic clock."""
        for partition, position in positions.items():
            if ends[partition] >= position.next_offset:
                self._since_us.pop(partition, None)
            elif now_us - self._since_us.setdefault(partition, now_us) > MINUTE_US:
                raise RefusedError(
                    f"the log ends at offset {ends[partition]}, below {position.next_offset}, up to which it was read: it was cut short",
                    code="TG-LOG-CUT",
                    where=f"{partition[0]}-{partition[1]}@{ends[partition]}",
                    fix="write to a new ordered topic: what is appended now takes the places of records that were read; "
                    "and switch unclean.leader.election.enable off",
                    example="kafka-configs.sh --alter --topic TOPIC --add-config unclean.leader.election.enable=false",
                )
