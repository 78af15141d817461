"""A job in a folder full of files named like the modules it imports: none of its processes runs one of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.hostile_modules import plant_modules
from support.stack.drawn_logs import draw
from support.stack.jobs import workspace
from support.stack.topics import create, fresh, produce, read_ordered

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

EVENTS, PARTITIONS = 500, 2
TABLES = """
[inputs.events]
topic = "{topic}"
timestamp_by = "at"
late = "1d"

[outputs.all]
topic = "{topic}.all"

[queries.all]
script = "all.sql"
"""


def test_no_process_of_a_job_imports_a_file_of_the_working_folder(stack: Stack, tmp_path: Path) -> None:
    """Driver, planner, worker daemon, workers and probes of ingest and of a query; the results are all there."""
    topic = create(stack.bootstrap, fresh("safe-path"), PARTITIONS)
    produce(stack.bootstrap, topic, draw(31, EVENTS, PARTITIONS))
    with workspace(tmp_path, stack, TABLES.format(topic=topic)) as space:
        space.script("all.sql", "SELECT k INTO all FROM events TIMESTAMP BY at")
        names = plant_modules(tmp_path)
        assert {"ordering", "ingest", "query", "sinks", "tidegate", "random", "json", "numpy", "pyspark", "confluent_kafka"} <= names
        # Both stages: one driver and one JVM start what two jobs would.
        space.start_alone("run", "--until-end").finish()
    assert not (tmp_path / "imported").exists()
    assert read_ordered(stack.bootstrap, f"{topic}.all", 1).events
