"""
Finds out in a process of its own whether a partition's bytes at an offset can be read: ``python -m tidegate.platform.kafka.batch_probe``.

After a wrong checksum, librdkafka 2.16 goes on at a wrong place of the broker's answer, fetches from whatever offset it finds there, and
may never end. So only the first event of each connection counts, no connection is closed, and the process ends with ``os._exit``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tidegate.platform.kafka.failures import error_text
from tidegate.platform.kafka.unreadable import is_unreadable, next_readable

__all__ = ["UnreadableBatch", "find_unreadable_batch"]

_ANSWER_TIMEOUT_S = 10.0
# librdkafka may drop the first answer with the error in it, and report only an event of the wrong offset.
_TRIES = 5
_TIMEOUT_S = 300.0


class UnreadableBatch(NamedTuple):
    """*end*: the first offset behind the batch; *reason*: the client's error."""

    end: int
    reason: str


def find_unreadable_batch(properties: Mapping[str, str], topic: str, partition: int, offset: int) -> UnreadableBatch | None:
    """
    Return the broken batch that hides the records from *offset* on, or None if records come, or nothing does.

    *properties* are a consumer's; they go through a pipe, because any user can read the command line of a process.
    """
    question = json.dumps({"properties": {**properties, "check.crcs": "true"}, "topic": topic, "partition": partition, "offset": offset})
    command = [sys.executable, "-m", "tidegate.platform.kafka.batch_probe"]
    try:
        outcome = subprocess.run(command, input=question, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return None
    batch = json.loads(outcome.stdout) if outcome.returncode == 0 else None
    return UnreadableBatch(batch["end"], batch["reason"]) if batch else None


class _Probe:
    def __init__(self, properties: Mapping[str, str], topic: str, partition: int) -> None:
        self._properties, self._topic, self._partition = {**properties, "group.id": "tidegate"}, topic, partition
        self._open: list[Consumer] = []

    def reason_unreadable(self, offset: int, silences: int = 1, readings: int = 1) -> str | None:
        """
        Return the client's error if the bytes at *offset* are broken; None once they were read *readings* times, or *silences* tries gave
        nothing.
        """
        silent = read = 0
        for _ in range(_TRIES):
            consumer = Consumer(self._properties)
            self._open.append(consumer)
            consumer.assign([TopicPartition(self._topic, self._partition, offset)])
            message = consumer.poll(_ANSWER_TIMEOUT_S)
            error = message.error() if message is not None else None
            if error is not None and is_unreadable(error):
                return error_text(error)
            silent += message is None
            read += message is not None and message.offset() == offset and (error is None or error.code() == KafkaError._PARTITION_EOF)
            if silent >= silences or read >= readings:
                return None
        # A record or an end of another offset may come from the wrong place at which the client went on. Only if no try gives anything else
        # do records miss there, as in a compacted topic.
        return None

    def is_readable(self, offset: int) -> bool:
        """Return whether the bytes at *offset* are not known to be broken; so the end of the partition counts as readable."""
        # On a busy machine an answer may be late, and the client may answer from a wrong place: if one of these counted at once, the batch
        # would seem too short.
        return self.reason_unreadable(offset, silences=_TRIES, readings=2) is None


def _main() -> None:
    question = json.load(sys.stdin)
    probe = _Probe(question["properties"], question["topic"], question["partition"])
    reason = probe.reason_unreadable(question["offset"])
    batch = None if reason is None else {"end": next_readable(probe.is_readable, question["offset"]), "reason": reason}
    sys.stdout.write(json.dumps(batch))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    _main()
