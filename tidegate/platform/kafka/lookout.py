"""
Waits in silence for the next record of some partitions, with a consumer at the end of each: so whoever waits need not ask the brokers ten
times a second, and learns of a record sooner.

Law: a lookout only makes a wait shorter. Whether there is a record the brokers say, who are asked after each wait. So a failure of its own
ends nothing: it warns, waits without looking, and connects again at the next wait.
"""

from __future__ import annotations

import select
import time
from collections.abc import Mapping

from confluent_kafka import KafkaException

from ordering.errors import TidegateError
from tidegate.platform.kafka.native import usable_library
from tidegate.platform.kafka.ranges import RangeReader, SharedConnections, wait_for_any
from tidegate.platform.observe.logs import get_logger

# How long a wait is without the native part, whose readers can be waited for, or after a failure, seconds.
_BLIND_WAIT_S = 0.1
# A lookout ends with the first record, so it fetches little.
_PREFETCH_BYTES = 2**14
# A broker holds a request for so long in silence; the next one would be another wake of its thread and of the client's.
_HELD = {"fetch.wait.max.ms": "1000"}

_log = get_logger("kafka.reader")


class Lookout:
    """A lookout for records of a cluster: *kafka* has the properties of its clients. It connects at its first wait."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        self._kafka, self._connections = kafka, SharedConnections()
        self._ends: dict[tuple[str, int], int] = {}
        self._readers: dict[tuple[str, int], RangeReader] = {}
        # Why the last wait has failed; empty if it has not.
        self._failure = ""

    def wait(self, ends: Mapping[tuple[str, int], int], wait_s: float, other: int = -1) -> None:
        """
        Return once a partition has a record at its end or above, or once the descriptor *other* can be read, at the latest after *wait_s*,
        seconds.
        """
        if usable_library() is None:
            time.sleep(min(wait_s, _BLIND_WAIT_S))
            return
        until_s = time.monotonic() + wait_s
        try:
            self._go_to(ends)
            while (left_s := until_s - time.monotonic()) > 0 and not self._finds_record():
                wait_for_any(list(self._readers.values()), round(left_s * 1_000), other)
                if other >= 0 and select.select([other], [], [], 0)[0]:
                    break
            self._failure = ""
        except (KafkaException, TidegateError) as error:
            # Those who ask the brokers meet the same, and know what to do.
            self._warn(str(error))
            self.stop_fetching()
            time.sleep(max(min(until_s - time.monotonic(), _BLIND_WAIT_S), 0.0))

    def _go_to(self, ends: Mapping[tuple[str, int], int]) -> None:
        if self._ends != ends:
            self.stop_fetching()
            for partition in ends:
                self._readers[partition] = RangeReader(self._kafka, *partition, False, _PREFETCH_BYTES, self._connections, overrides=_HELD)
            self._ends = dict(ends)

    def _finds_record(self) -> bool:
        found = any(reader.read_on(self._ends[partition], 0) is not None for partition, reader in self._readers.items())
        if found:
            self.stop_fetching()
        return found

    def _warn(self, reason: str) -> None:
        if reason != self._failure:
            _log.warning("waiting for records by asking the brokers", reason=reason)
        self._failure = reason

    def stop_fetching(self) -> None:
        """Fetch no more until the next wait; the connections stay."""
        for reader in self._readers.values():
            reader.close()
        self._ends, self._readers = {}, {}
