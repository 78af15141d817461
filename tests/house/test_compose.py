"""
docker-compose.yml, read without an engine. .ci/cluster.sh plays it where one runs.

Law: a variable that the file reads may be exported on the host: it is no setting of the commands there.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.repository import ROOT

from tidegate.platform.settings.load import load

STAGES, SERVICES = (ROOT / "docker-compose.yml").read_text("utf-8").split("\nservices:\n")
SERVICE = re.compile(r"^  ([a-z-]+):\n((?:    .*\n|\n|  #.*\n)+)", re.MULTILINE)
PARTS = {match[1]: match[2] for match in SERVICE.finditer(SERVICES)}
VARIABLES = sorted({*re.findall(r"\$\{(TIDEGATE_\w+)", STAGES + SERVICES), *re.findall(r"(TIDEGATE_\w+)=", STAGES)})


def test_what_the_file_reads_breaks_no_command_on_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exported as the file's header says, TIDEGATE_SPARK_MASTER was an unknown setting to every command."""
    monkeypatch.chdir(tmp_path)
    assert {"TIDEGATE_DEMO_MASTER", "TIDEGATE_KAFKA_PORT"} <= set(VARIABLES)
    assert load(None, env=dict.fromkeys(VARIABLES, "x")) == load(None, env={})


@pytest.mark.parametrize("name", ["kafka", "redis", "spark-master", "spark-worker"])
def test_a_service_that_dies_is_started_again(name: str) -> None:
    """Stages wait for it meanwhile."""
    assert "    restart: unless-stopped\n" in PARTS[name]


def test_a_stage_is_healthy_while_it_works() -> None:
    """Its check asks for readiness at the port of its metrics; the processes of a stage that waits for ever live too."""
    assert "restart: on-failure" in STAGES
    (port,) = re.findall(r'TIDEGATE_METRICS__PORT: "(\d+)"', STAGES)
    assert f'["CMD", "bash", "/deploy/health.sh", "{port}", "/ready"]' in STAGES


def test_no_stage_waits_for_the_health_of_another() -> None:
    """``up --detach`` failed if one was healthy late, and never created those behind it. A query that comes early is started again."""
    stages = {name for name, part in PARTS.items() if "<<: *stage" in part and "profiles:" not in part}
    assert {"ingest", "departures", "daily"} <= stages
    waits = {
        (name, needed, condition)
        for name, part in PARTS.items()
        for needed, condition in re.findall(r"^      ([a-z-]+):\n        condition: (\w+)$", part, re.MULTILINE)
    }
    assert ("daily", "departures", "service_started") in waits
    assert ("ingest", "flights", "service_completed_successfully") in waits
    assert not [wait for wait in waits if wait[1] in stages and wait[2] == "service_healthy"]
    # What stages do wait for may take long on a slow machine; a check that succeeds ends this time at once.
    for name in ("kafka", "redis"):
        (period,) = re.findall(r"start_period: (\d+)s", PARTS[name])
        assert int(period) >= 300


def test_the_cluster_has_a_core_for_each_stage() -> None:
    """Two of four stages waited for ever: each took as many cores as it has shuffle partitions."""
    stages = [name for name, part in PARTS.items() if re.search(r'command: \["(ingest|query)"', part)]
    (cores_each,) = re.findall(r'"spark.cores.max": "(\d+)"', STAGES)
    (cores,) = re.findall(r'- --cores\n +- "(\d+)"', PARTS["spark-worker"])
    assert len(stages) == 4
    assert len(stages) * int(cores_each) <= int(cores)
