"""Records that are arrays, through real jobs: killed, without their checkpoint, verified and explained."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.stack.drawn_logs import Raw
from support.stack.jobs import settings_of, workspace
from support.stack.topics import check_promises, create, fresh, header, produce, read_ordered, records
from support.stack.verifying import run_verify

from ordering.protocol.elements import OF_ELEMENTS

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

TABLE = """
[inputs.{name}]
topic = "{topic}"
timestamp_by = "at"
over = "k"
late = "20s"
reorder = "2s"
cti_every_events = 7
{more}
"""
PARTITIONS = 2
BASE_MS = 1_000_000_000


def drawn_logs() -> tuple[list[Raw], list[Raw], dict[tuple[int, int], list[int]]]:
    """Records that are arrays, the same elements as records, and by (partition, offset) the offsets of those elements there."""
    dice, arrays, elements = random.Random(4), [], list[Raw]()
    counts, places = [[0, 0] for _ in range(PARTITIONS)], dict[tuple[int, int], list[int]]()
    for number in range(600):
        partition, stamp_ms = dice.randrange(PARTITIONS), BASE_MS + 100 * number
        values = [
            json.dumps({"at": stamp_ms + dice.randrange(-30_000, 500), "k": f"k{dice.randrange(9)}", "n": number, "i": index}).encode()
            if dice.random() > 0.02
            else dice.choice((b"5", b'{"k":"x"}'))
            for index in range(dice.choice((0, 1, 1, 2, 3, 8)))
        ]
        whole = len(values) == 1 and dice.random() < 0.5
        key = b"r%d" % number
        arrays.append(Raw(partition, key, values[0] if whole else b"[" + b" , ".join(values) + b"]", stamp_ms))
        places[partition, counts[partition][0]] = [counts[partition][1] + at for at in range(len(values))]
        # An empty array is no event, but its arrival counts: so does that of a record that cannot be used.
        elements += [Raw(partition, key, value, stamp_ms) for value in values or [b"{}"]]
        counts[partition][0] += 1
        counts[partition][1] += max(len(values), 1)
    return arrays, elements, places


def test_arrays_are_ordered_as_their_elements_would_be(stack: Stack, tmp_path: Path) -> None:
    """Law, level 1: killed, and then without its checkpoint, the job writes what one writes that reads each element as a record."""
    arrays, elements, places = drawn_logs()
    raw, alone = (create(stack.bootstrap, fresh(name), PARTITIONS) for name in ("arrays", "elements"))
    produce(stack.bootstrap, raw, arrays)
    produce(stack.bootstrap, alone, elements)
    tables = TABLE.format(name="arrays", topic=raw, more='explode = "array"') + TABLE.format(name="alone", topic=alone, more="")
    with workspace(tmp_path, stack, tables) as space:
        small = settings_of(inputs__arrays__max_events_per_batch=40)
        for loses_checkpoint in (False, True):
            if loses_checkpoint:
                shutil.rmtree(space.folder / ".tidegate" / "checkpoints" / f"ingest-{raw}.ordered")
            job = space.start("ingest", "arrays", *small)
            job.until(lambda job=job: job.batches >= 3, "three batches")  # type: ignore[misc]
            job.kill()
        space.start("ingest", "arrays", "alone", "--until-end").finish()
        run_verify(space, "arrays")
    found, expected = (read_ordered(stack.bootstrap, f"{topic}.ordered", PARTITIONS) for topic in (raw, alone))
    check_promises(found, killed=True)
    assert {channel: [event[:4] + event[5:] for event in events] for channel, events in found.events.items()} == {
        channel: [event[:4] + event[5:] for event in events] for channel, events in expected.events.items()
    }
    for (number, _), events in found.events.items():
        offsets = [places[number, OF_ELEMENTS.offset_of(event[4])][OF_ELEMENTS.index_of(event[4])] for event in events]
        assert offsets == [event[4] for event in expected.events[number, _]]
    letters = {(header(message, "origin").decode(), message.value()) for message in records(stack.bootstrap, f"{raw}.ordered.dead")}
    unusable = {
        (f"{raw}-{partition}@{offset}[{index}]", value)
        for (partition, offset), known in places.items()
        for index, value in enumerate(_elements_of(arrays, partition, offset)[: len(known)])
        if value in (b"5", b'{"k":"x"}')
    }
    assert letters == unusable != set()


def _elements_of(arrays: list[Raw], partition: int, offset: int) -> list[bytes]:
    value = [raw.value for raw in arrays if raw.partition == partition][offset] or b""
    return value[1:-1].split(b" , ") if value.startswith(b"[") else [value]
