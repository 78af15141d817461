"""State that is large against the JVM's heap: stored, taken up by another process, and forgotten."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.stack.drawn_logs import START_MS, Raw
from support.stack.jobs import workspace
from support.stack.topics import create, fresh, produce, read_ordered

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = [pytest.mark.integration, pytest.mark.deep]

EVENTS, TEXT_BYTES = 60_000, 2_000
"""Their texts, 120 MB, are kept until the window ends: in chunks that a heap of 512 MB cannot hold several times."""
TABLES = """
[inputs.notes]
topic = "{topic}"

[outputs.found]
topic = "{topic}.found"
"""
SCRIPT = "SELECT k, MAX(note) AS last, COUNT(DISTINCT note) AS notes INTO found FROM notes GROUP BY k, TumblingWindow(day, 1)"


def note(number: int) -> str:
    """The text of an event, which no compression makes small."""
    return random.Random(number).randbytes(TEXT_BYTES // 2).hex()


def event(number: int) -> bytes:
    """An event."""
    return json.dumps({"k": number % 3, "note": note(number)}).encode()


def test_a_large_state_is_stored_and_restored(stack: Stack, tmp_path: Path) -> None:
    """Level 2: a query killed with 120 MB retained goes on with them in another process, and its results are those of plain Python."""
    topic = create(stack.bootstrap, fresh("notes"), 1)
    produce(stack.bootstrap, topic, [Raw(0, None, event(number), START_MS + 1 + number) for number in range(EVENTS)])
    with workspace(tmp_path, stack, TABLES.format(topic=topic)) as space:
        ingest = space.start("ingest", "notes").once_started()
        query = space.start_alone("query", space.script("found.sql", SCRIPT))
        query.until(lambda: query.last.get("events", 0) >= EVENTS - 1, "all but the last one are read")
        query.kill()
        ingest.stop()
        space.start("ingest", "notes", "--until-end").finish()
        space.start_alone("query", "found.sql", "--until-end").finish()
    found = read_ordered(stack.bootstrap, f"{topic}.found", 1)
    rows = [json.loads(event.value) for events in found.events.values() for event in events]
    notes: dict[int, set[str]] = defaultdict(set)
    for number in range(EVENTS):
        notes[number % 3].add(note(number))
    # The first event is a millisecond after midnight: windows are (start, end].
    assert rows == [{"k": k, "last": max(texts), "notes": len(texts)} for k, texts in sorted(notes.items())]
