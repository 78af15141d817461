"""A job on a standalone Spark cluster, master and worker being processes: its executors must see the driver's checkpoint folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from faults.cluster import cluster
from support.stack.drawn_logs import draw
from support.stack.jobs import error_code, settings_of, workspace
from support.stack.keyed_input import TABLES
from support.stack.topics import create, fresh, produce

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = [pytest.mark.integration, pytest.mark.deep]

EVENTS = 50
_PROJECT = Path(__file__).parents[3]


def test_a_checkpoint_folder_that_executors_do_not_see_is_refused(stack: Stack, tmp_path: Path) -> None:
    """
    It is refused before the first batch, by the code that tells how to mend it.

    Every process has a working directory of its own, so a path below /proc/self/cwd is another folder for driver and executors.
    """
    topic = create(stack.bootstrap, fresh("unseen"), 1)
    produce(stack.bootstrap, topic, draw(3, EVENTS, 1))
    with cluster(tmp_path / "cluster", _PROJECT, workers=1) as master, workspace(tmp_path, stack, TABLES.format(topic=topic)) as space:
        flags = settings_of(spark__master=master, spark__shuffle_partitions=1, spark__checkpoint_dir="/proc/self/cwd/checkpoints")
        job = space.start_alone("ingest", "events", "--until-end", *flags)
        assert error_code(job) == "TG-CHECKPOINT-UNSEEN"
        assert "No such file" in job.errors
        assert not job.batches
