"""Where a query job cuts batches while it catches up, by the time index of real topics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.stack.drawn_logs import START_MS, Raw
from support.stack.topics import create, fresh, produce

from query import job
from query.script_plans import read_plans
from query.stage.planner import QueryPlanner
from tidegate.platform.settings.load import load

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

RECORDS = {"many": 5_000, "few": 500}
SCRIPT = "SELECT many.v AS v INTO out FROM many JOIN few ON DATEDIFF(second, many, few) BETWEEN 0 AND 1"


def test_inputs_of_different_rates_are_read_up_to_one_instant(stack: Stack, tmp_path: Path) -> None:
    """One has ten times as many records as the other: each batch ends at one instant of both, and they come to the end together."""
    named = {"kafka.bootstrap": stack.bootstrap, "spark.checkpoint_dir": str(tmp_path), "query.max_events_per_batch": "550"}
    for name, count in RECORDS.items():
        topic = create(stack.bootstrap, fresh(name), 1)
        produce(stack.bootstrap, topic, [Raw(0, None, b"{}", START_MS + number * 600_000 // count) for number in range(count)])
        named |= {f"inputs.{name}.topic": f"raw.{topic}", f"inputs.{name}.ordered_topic": topic}
    named["outputs.out.topic"] = fresh("out")
    settings = load(None, named, env={"TIDEGATE_REDIS__URL": stack.redis_url})
    (tmp_path / "join.sql").write_text(SCRIPT)
    planner = QueryPlanner(job.prepare(settings, read_plans(settings, tmp_path / "join.sql", None)))
    planner.prepareForTriggerAvailableNow()
    here, batches = planner.initialOffset(), 0
    while not (there := planner.plan_end(here))["final"]:
        many, few = there["positions"]["0"], there["positions"]["1"]
        assert 0 < many - here["positions"]["0"] + few - here["positions"]["1"] <= 550
        assert abs(many / 10 - few) <= 1
        here, batches = there, batches + 1
    assert here["positions"] == {"0": RECORDS["many"], "1": RECORDS["few"]}
    assert batches <= 5_500 // (550 * 8 // 10) + 1
