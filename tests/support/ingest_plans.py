"""Plans of ingest jobs as tests need them: one input, one partition, nothing of Kafka."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ingest.config import IngestPlan
from ingest.offsets import PlannedPosition
from tidegate.platform.settings.tables.inputs import InputSettings
from tidegate.platform.settings.tables.redis import RedisSettings

RAW = ("raw", 0)
_PLAN = IngestPlan(
    settings=InputSettings.model_validate({"__name__": "raw", "timestamp_by": "t"}),
    kafka={},
    redis=RedisSettings(),
    partitions=(RAW,),
    topic_ids={"raw": "id"},
    tasks=1,
    starts={RAW: PlannedPosition(0)},
    output_partitions=1,
    estimates=frozenset(),
    until_end=False,
    checkpoint="",
)


def input_settings(**settings: str) -> InputSettings:
    """Return the settings of the input ``raw`` with an event time, and these."""
    return InputSettings.model_validate({"__name__": "raw", "timestamp_by": "t", **settings})


def ingest_plan(**fields: Any) -> IngestPlan:
    """Return a plan with these fields; the others are those of a job that reads the one partition of ``raw`` from its start."""
    return replace(_PLAN, **fields)
