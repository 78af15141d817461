"""What a survey proposes: the smallest tolerances that few events exceed, types that all values share, and a project that is accepted."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from ordering.ticks import MINUTE_US, SECOND_US
from tidegate.platform.kafka.admin import Topic
from tidegate.tools.project.proposal import input_name, propose_project
from tidegate.tools.project.survey import Sample, Tolerance, make_survey

NOW_US = 1_767_600_000_000_000


def sample_of(objects: list[dict[str, Any]], keys: list[bytes | None] | None = None) -> Sample:
    """Return records of one partition that arrived one second after another."""
    arrival_us = NOW_US + np.arange(len(objects), dtype=np.int64) * SECOND_US
    payloads = [json.dumps(each).encode() for each in objects]
    topic = Topic("9-orders.raw", "id", 1, {"message.timestamp.type": "LogAppendTime"})
    return Sample(topic, payloads, objects, keys or [None] * len(objects), np.zeros(len(objects), dtype=np.int64), arrival_us, 0)


def test_a_tolerance_is_the_smallest_that_few_exceed() -> None:
    """At most 0.5 %; the share beyond the next smaller one is told too; at least what is asked for."""
    distances = np.array([0] * 985 + [7 * SECOND_US] * 11 + [MINUTE_US] * 4)
    found = Tolerance.choose(distances)
    assert (found.us, found.beyond, found.smaller_us, found.beyond_smaller) == (10 * SECOND_US, 0.004, 5 * SECOND_US, 0.015)
    assert Tolerance.choose(distances, 5 * MINUTE_US).us == 5 * MINUTE_US
    assert Tolerance.choose(np.zeros(3, dtype=np.int64)).us == 0
    assert Tolerance.choose(np.empty(0, dtype=np.int64)).beyond == 0.0


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, 2**63 - 1], "bigint"),
        ([1, 2.5], "float"),
        ([2**63], "float"),
        ([True, None], "bit"),
        (["x", "2026-01-05T08:00:00Z"], "nvarchar(max)"),
        (["2026-01-05T08:00:00Z", "2026-01-05 08:00:00.5+01:00"], "datetime"),
        (["20260105", "2026-W02"], "nvarchar(max)"),
        ([[1], []], "array"),
        ([1, "x"], None),
        ([True, 1], None),
        ([None], None),
    ],
)
def test_a_field_has_the_type_that_all_its_values_share(values: list[Any], kind: str | None) -> None:
    """Otherwise it is not declared; one that is always NULL is not named either."""
    survey = make_survey(sample_of([{"v": value} for value in values]))
    assert survey.fields.get("v") == kind
    assert list(survey.mixed) == ([] if kind or values == [None] else ["v"])


def test_the_event_time_is_the_nearest_that_every_record_has() -> None:
    """In text or as a number of any unit; a birthday, a time that one record lacks, and a small number are none."""
    objects = [
        {"n": n, "made": (NOW_US // SECOND_US + n - 100) * 1000, "at": (NOW_US // SECOND_US + n - 2), "born": "1970-02-03T00:00:00Z"}
        for n in range(50)
    ]
    assert make_survey(sample_of(objects)).timestamp_by == "at"
    del objects[7]["at"]
    assert make_survey(sample_of(objects)).timestamp_by == "made"
    assert make_survey(sample_of([{"n": n, "born": "1970-02-03T00:00:00Z"} for n in range(9)])).timestamp_by is None


def test_the_key_is_the_field_that_producers_keyed_by() -> None:
    """Every record has it as its key, as ingest would write it; a key that is different in each record says nothing."""
    objects = [{"at": NOW_US // SECOND_US + n, "car": n % 3} for n in range(30)]
    keys: list[bytes | None] = [b"%d" % (n % 3) for n in range(30)]
    assert make_survey(sample_of(objects, keys)).over == "car"
    assert make_survey(sample_of(objects, [*keys[:-1], None])).over is None
    assert make_survey(sample_of([{"at": NOW_US // SECOND_US + n, "id": n} for n in range(9)], [b"%d" % n for n in range(9)])).over is None


@pytest.mark.parametrize("name", ["at", "select", "event time", 'say "at"', "größe", "e'v", "tab\t"])
def test_a_project_is_accepted_whatever_its_fields_are_called(name: str) -> None:
    """Words of SQL, spaces, quotes: the query and the configuration agree, and the case has results."""
    objects = [{name: NOW_US // SECOND_US + n, "EventEnqueuedUtcTime": "2026-01-05T08:00:00Z"} for n in range(30)]
    project = propose_project(make_survey(sample_of(objects)), "localhost:9092")
    assert sum(json.loads(line)["events"] for line in project["cases/counts/expected.counts.ndjson"].splitlines()) == 20
    assert "[kafka]" not in project["tidegate.toml"]


def test_an_input_has_a_name_that_queries_can_use() -> None:
    """Of every topic's name."""
    assert [input_name(topic) for topic in ("taxis", "9-orders.raw", "a-b.c")] == ["taxis", "t_9_orders_raw", "a_b_c"]
