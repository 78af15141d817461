"""
The query of the plugin as a job on a real Kafka, over flights as disordered as real ones: killed with all it has started, it gives the same
bytes. Level 3.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

# It starts servers and jobs, each with a JVM; leave it out with -m "not stack".
pytestmark = pytest.mark.stack

CONFIGURATION = """
[inputs.flights]
topic = "flights"
timestamp_by = "scheduled"
over = "origin"
late = "2h"
reorder = "30m"

[outputs.far_flights]
topic = "{topic}"
"""
QUERY = ["query", "far_flights", "--until-end"]
PROFILE = Path(__file__).with_name("flights.toml")


def test_a_killed_job_gives_the_same_bytes(tidegate_stack: Any, kill_and_restart: Any, assert_same_bytes: Any, tmp_path: Path) -> None:
    """Produced from a profile, ordered once, queried by a job that nothing disturbs, and by one that is killed."""
    calm = tmp_path / "calm"
    calm.mkdir()
    (calm / "tidegate.toml").write_text(CONFIGURATION.format(topic="far-calm"))
    (tmp_path / "tidegate.toml").write_text(CONFIGURATION.format(topic="far-killed"))
    (calm / "examples.ndjson").write_text('{"distance": 1200}\n{"distance": 300}\n')
    produce = ["produce", "--like", str(PROFILE), "flights", "--count", "3000", "--examples", "examples.ndjson"]
    for command in (["topic", "create", "flights", "--timestamp-type", "create"], produce, ["ingest", "flights", "--until-end"], QUERY):
        done = tidegate_stack.run(*command, folder=calm)
        assert done.returncode == 0, done.stderr
    assert kill_and_restart(QUERY)
    assert_same_bytes("far-calm", "far-killed")
