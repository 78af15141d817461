"""What a job needs of a cluster: executors, and a checkpoint folder that they share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tidegate.platform.settings.load import Settings
from tidegate.platform.settings.tables.spark import SparkSettings
from tidegate.platform.spark.cluster import SAID_AFTER_S, Cluster, look_at


def no_session() -> SparkSession:
    """A session that must not be asked for."""
    raise AssertionError


def cluster_of(clock_s: list[float], **spark: Any) -> Cluster:
    """A cluster whose clock shows the first number."""
    return Cluster(Settings(spark=SparkSettings.model_validate(spark)), Path(), no_session, lambda: clock_s[0])


def test_on_one_machine_nothing_is_waited_for() -> None:
    """The driver's process runs the tasks."""
    clock_s = [0.0]
    local = cluster_of(clock_s, master="local[2]")
    clock_s[0] = 100.0
    assert local.is_ready()
    assert (local.waiting(), local.executors_wanted) == ("", 0)


@pytest.mark.parametrize(
    ("spark", "executors", "cores"),
    [
        ({"master": "spark://a:1", "shuffle_partitions": 3}, 1, 3),
        ({"master": "spark://a:1", "shuffle_partitions": 3, "conf": {"spark.cores.max": "1"}}, 1, 1),
        ({"master": "spark://a:1", "conf": {"spark.cores.max": "4", "spark.executor.cores": "2"}}, 2, 4),
        ({"master": "yarn", "conf": {"spark.executor.instances": "3", "spark.executor.cores": "2"}}, 3, 6),
        ({"master": "yarn"}, 2, 2),
    ],
)
def test_what_a_job_asks_its_cluster_for(spark: dict[str, Any], executors: int, cores: int) -> None:
    """By the rules of the cluster's kind."""
    asked = cluster_of([0.0], **spark)
    assert (asked.executors_wanted, asked.cores_wanted) == (executors, cores)


def test_a_job_without_executors_says_so_after_some_seconds() -> None:
    """At a start as after a lost worker; an executor that comes ends it."""
    clock_s = [0.0]
    cluster = cluster_of(clock_s, master="spark://a:1", shuffle_partitions=2)
    texts = []
    for at_s, held in ((1, 0), (SAID_AFTER_S, 0), (SAID_AFTER_S + 1, 1), (SAID_AFTER_S + 2, 0), (2 * SAID_AFTER_S + 2, 0)):
        clock_s[0] = at_s
        cluster.note_executors(held)
        texts.append(cluster.waiting_text())
    said = "waiting for a Spark worker: 0 cores free, 2 wanted"
    assert texts == ["", said, "", "", said]


def test_an_executor_says_why_it_cannot_use_the_folder(tmp_path: Path) -> None:
    """It is not there, or may not be written, or is another machine's; a folder that it shares is left as it was."""
    mark = tmp_path / "probe"
    mark.write_text("token")
    assert look_at(str(mark), "token", 0) == ""
    assert [file.name for file in tmp_path.iterdir()] == ["probe"]
    assert look_at(str(mark), "another", 0).endswith(": another file")
    assert "No such file" in look_at(str(tmp_path / "elsewhere" / "probe"), "token", 0, within_s=0.3)
