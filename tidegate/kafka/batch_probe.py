"""
Whether a partition's bytes at an offset can be read, found out by a process of its own: ``python -m tidegate.kafka.batch_probe``.

Behind a wrong checksum librdkafka 2.16 goes on at a wrong place of the answer, fetches from whatever offset it meets there, and may then
never end. So only the first event of a connection is believed, no connection is closed, and the process ends without asking anybody.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tidegate.kafka.failures import error_text
from tidegate.kafka.unreadable import is_unreadable, next_readable

__all__ = ["UnreadableBatch", "find_unreadable_batch"]

_ANSWER_TIMEOUT_S = 10.0
# librdkafka may drop its first answer, and the error in it, and tell only what became of the wrong offset.
_TRIES = 5
_TIMEOUT_S = 300.0


class UnreadableBatch(NamedTuple):
    """*end*: the first offset behind it; *reason*: what the client said of it."""

    end: int
    reason: str


def find_unreadable_batch(properties: Mapping[str, str], topic: str, partition: int, offset: int) -> UnreadableBatch | None:
    """
    Return what broken bytes hide the records from *offset* on, or None if records come, or nothing does.

    *properties* are a consumer's; they go through a pipe, since the command line of a process is for all to read.
    """
    place = json.dumps({"properties": {**properties, "check.crcs": "true"}, "topic": topic, "partition": partition, "offset": offset})
    command = [sys.executable, "-m", "tidegate.kafka.batch_probe"]
    try:
        outcome = subprocess.run(command, input=place, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return None
    batch = json.loads(outcome.stdout) if outcome.returncode == 0 else None
    return UnreadableBatch(batch["end"], batch["reason"]) if batch else None


class _Probe:
    def __init__(self, properties: Mapping[str, str], topic: str, partition: int) -> None:
        self._properties, self._topic, self._partition = {**properties, "group.id": "tidegate"}, topic, partition
        self._open: list[Consumer] = []

    def reason_unreadable(self, offset: int, waits: int = 1) -> str | None:
        """Return what the client says of broken bytes at *offset*; None if they can be read, or nothing comes in so many *waits*."""
        for tried in range(1, _TRIES + 1):
            consumer = Consumer(self._properties)
            self._open.append(consumer)
            consumer.assign([TopicPartition(self._topic, self._partition, offset)])
            message = consumer.poll(_ANSWER_TIMEOUT_S)
            if message is None:
                if tried >= waits:
                    return None
                continue
            error = message.error()
            # An end elsewhere is that of the wrong offset to which the client went on.
            if error is None or (error.code() == KafkaError._PARTITION_EOF and message.offset() == offset):
                return None
            if is_unreadable(error):
                return error_text(error)
        return None

    def is_readable(self, offset: int) -> bool:
        """Return whether the bytes of an offset are not known to be broken; also if it is the end of the partition, or beyond."""
        # On a busy machine an answer may be late, and silence would make the range too short.
        return self.reason_unreadable(offset, waits=3) is None


def _main() -> None:
    place = json.load(sys.stdin)
    probe = _Probe(place["properties"], place["topic"], place["partition"])
    reason = probe.reason_unreadable(place["offset"])
    batch = None if reason is None else {"end": next_readable(probe.is_readable, place["offset"]), "reason": reason}
    sys.stdout.write(json.dumps(batch))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    _main()
