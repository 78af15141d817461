"""Starts that cannot succeed: one clear error each, in time, with its exit code and without a traceback."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from integration.running import error_code, settings_of, workspace
from integration.topics import create, fresh

if TYPE_CHECKING:
    from integration.conftest import Stack

pytestmark = pytest.mark.integration

WAIT_S_MAX = 12.0
"""Fifteen seconds, less three for starting a Python program with all that a job imports on a machine at rest."""
NOBODY = "127.0.0.1:9"  # the discard port: nothing listens there
TABLES = """
[inputs.events]
topic = "{topic}"
timestamp_by = "at"

[outputs.counts]
topic = "{topic}-counts"
"""
SCRIPT = "SELECT COUNT(*) AS n FROM events TIMESTAMP BY at GROUP BY TumblingWindow(second, 1)"


def test_services_that_do_not_answer_are_named_within_fifteen_seconds(stack: Stack, tmp_path: Path) -> None:
    """Kafka or Redis unreachable at start: code, address and what to do; exit code 4."""
    topic = create(stack.bootstrap, fresh("unreachable"), 1)
    with workspace(tmp_path, stack, TABLES.format(topic=topic)) as space:
        script = space.script("counts.sql", SCRIPT)
        waits_for_nobody = space.start("ingest", "unknown")
        jobs = {
            "ingest without Kafka": ("TG-KAFKA-UNREACHABLE", space.start("ingest", "events", TIDEGATE_KAFKA__BOOTSTRAP=NOBODY)),
            "query without Kafka": (
                "TG-KAFKA-UNREACHABLE",
                space.start("query", script, "--into", "counts", TIDEGATE_KAFKA__BOOTSTRAP=NOBODY),
            ),
            "ingest without Redis": (
                "TG-REDIS-UNREACHABLE",
                space.start("ingest", "events", TIDEGATE_REDIS__URL=f"redis://:secret@{NOBODY}/0"),
            ),
        }
        for name, (code, job) in jobs.items():
            assert error_code(job) == code, name
            assert job.wait() == 4, name
            assert waits_for_nobody.wait() == 2
            assert job.took_s - waits_for_nobody.took_s < WAIT_S_MAX, name
            assert NOBODY in job.errors, name
            assert '"fix": ' in job.errors, name
            assert "secret" not in job.errors, name


def test_wrong_settings_are_refused_with_the_nearest_spelling(stack: Stack, tmp_path: Path) -> None:
    """An unknown setting in the file, a flag or the environment: its name and the nearest one that exists; exit code 2."""
    with workspace(tmp_path, stack, TABLES.format(topic="any")) as space:
        misspelt = space.script("misspelt.toml", '[redis]\nurll = "redis://localhost"\n' + TABLES.format(topic="any"))
        jobs = [
            (space.start("ingest", "events", "--config", misspelt), ("redis.urll", "did you mean url?")),
            (space.start("ingest", "events", *settings_of(inputs__events__reordr="5s")), ("reordr", "did you mean reorder?")),
            (space.start("ingest", "events", TIDEGATE_KAFKA__BOOTSTRAPS="any:1"), ("bootstraps", "did you mean bootstrap?")),
            (space.start("ingest", "event"), ("event", "did you mean events?")),
        ]
        for job, words in jobs:
            assert job.wait() == 2, job.errors
            assert "Traceback" not in job.errors
            assert all(word in job.errors.lower() for word in words), job.errors


def test_missing_topics_are_named(stack: Stack, tmp_path: Path) -> None:
    """Neither ingest nor a query makes the topic it reads: it refuses (exit code 3)."""
    topic = fresh("missing")
    with workspace(tmp_path, stack, TABLES.format(topic=topic)) as space:
        jobs = [space.start("ingest", "events"), space.start("query", space.script("counts.sql", SCRIPT), "--into", "counts")]
        for job in jobs:
            assert error_code(job) == "TG-TOPIC-MISSING"
            assert job.wait() == 3
            assert topic in job.errors
