"""The job as Spark gets it: what its source drags along, and in which order inputs are prepared."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pyspark import cloudpickle
from support.ingest_plans import ingest_plan

from ingest.input_order import order_by_imports
from ingest.job import source
from ordering.errors import SettingError
from tidegate.platform.settings.load import load

UNPICKLED = """
import pickle, sys
made = pickle.loads(sys.stdin.buffer.read())
print(made.name(), *sorted(name for name in sys.modules if name.partition(".")[0] in ("ingest", "redis", "confluent_kafka", "pyarrow")))
"""


def test_a_source_is_unpickled_without_what_its_planner_stands_on() -> None:
    """Spark does that in half a dozen processes before a job runs; each would spend a second on imports it does not need."""
    plan = ingest_plan()
    pickled = cloudpickle.dumps(source(plan))
    shown = subprocess.run([sys.executable, "-c", UNPICKLED], input=pickled, capture_output=True, check=True, timeout=120)
    assert shown.stdout.decode().split() == ["tidegate_ranges_raw"]


def test_an_input_that_drives_others_is_prepared_before_them() -> None:
    """Its ordered topic must be there; an input named twice is prepared once, one that is not configured is wrong use."""
    tables = {
        "inputs.slow.topic": "slow",
        "inputs.slow.import_ctis_from": "fast",
        "inputs.fast.topic": "fast",
        "inputs.other.topic": "other",
    }
    settings = load(None, tables, env={})
    assert order_by_imports(settings, ["other", "slow", "fast", "slow"]) == ["other", "fast", "slow"]
    assert order_by_imports(settings, ["slow"]) == ["slow"], "the other may run elsewhere"
    with pytest.raises(SettingError):
        order_by_imports(settings, ["slow", "nobody"])
