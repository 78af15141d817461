"""Columns that no record has: told with the name that was probably meant; columns with a value are not."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import cast

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from ordering.errors import QueryError
from query.absent_columns import SAMPLE_RECORDS, FirstRecords, absent_columns, absent_in_topics
from query.config import QueryPlan
from query.plan.columns_read import leaves_read
from query.plan.nodes import Plan
from query.progress import QueryProgress
from query.sql.bind import bind_outputs
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script
from tidegate.language.expressions.tree import Field
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.observe.reports import BucketReport

RECORDS = pa.array([json.dumps(record).encode() for record in ({"k": "a", "amount": 5, "place": {"lat": 1}}, {"k": "b", "amount": None})])


def plans(sql: str, **fields: str) -> tuple[Plan, ...]:
    """Bind a script over the inputs a and b."""
    schemas = [InputSchema("a", is_free=True, fields=fields), InputSchema("b", is_free=True)]
    return bind_outputs(parse_script(sql, "q.sql"), schemas)


def test_a_column_that_no_record_has_is_told_with_the_nearest_name() -> None:
    """Wherever it stands: in an aggregate, a condition, a key, a step."""
    script = plans(
        "WITH s AS (SELECT amuont, k, place.lat AS lat FROM a TIMESTAMP BY at WHERE statee = 1) "
        "SELECT SUM(amuont) AS total, lat INTO out FROM s GROUP BY lat, TumblingWindow(hour, 1)"
    )
    assert {str(field) for field in leaves_read(script, "a", Field)} == {"amuont", "k", "place.lat", "statee"}
    told = dict(absent_columns(script, "a", RECORDS))
    assert told == {
        "amuont has no value in 2 records of a: it is NULL": "did you mean amount?",
        "statee has no value in 2 records of a: it is NULL": "correct the name, if it is misspelled",
    }


def test_a_record_that_python_cannot_read_suggests_no_name() -> None:
    """A start looks at whatever is newest in the topic, and must not end with it."""
    deep = b'{"k":' + b"[" * 5_000 + b"]" * 5_000 + b"}"
    script = plans("SELECT kk INTO out FROM a TIMESTAMP BY at")
    assert dict(absent_columns(script, "a", pa.array([deep]))) == {
        "kk has no value in 1 records of a: it is NULL": "correct the name, if it is misspelled"
    }


def test_a_partition_without_a_leader_does_not_end_the_start_that_looks_at_it() -> None:
    """Findings are warnings; the job that has to read the topic waits for it."""

    def ends(partitions: object) -> dict[tuple[str, int], int]:
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))

    layout = SimpleNamespace(feeds=[SimpleNamespace(topic="t", partitions=1)])
    assert absent_in_topics(cast(QueryPlan, layout), cast(Admin, SimpleNamespace(ends=ends))) == []


def test_a_member_of_a_record_is_told_with_the_nearest_member() -> None:
    """By its whole path, not by the name of the record that is spelled right."""
    script = plans("SELECT place.lta AS lat INTO out FROM a TIMESTAMP BY at")
    assert list(absent_columns(script, "a", RECORDS[:1])) == [
        ("place.lta has no value in 1 records of a: it is NULL", "did you mean place.lat?")
    ]


def test_each_side_of_a_join_is_held_against_its_own_records() -> None:
    """A field of the other input is not looked for, and no records tell nothing."""
    script = plans(
        "SELECT a.k AS k, b.z AS z INTO out FROM a TIMESTAMP BY at JOIN b TIMESTAMP BY at ON DATEDIFF(minute, a, b) BETWEEN 0 AND 1"
    )
    assert list(absent_columns(script, "a", RECORDS)) == []
    assert [what for what, _ in absent_columns(script, "b", RECORDS)] == ["z has no value in 2 records of b: it is NULL"]
    assert list(absent_columns(script, "b", RECORDS[:0])) == []


def test_a_running_job_looks_at_the_first_records_of_each_input() -> None:
    """However they are cut into batches; a column that comes later is absent all the same, and the end of an input is enough of it."""
    script = plans("SELECT k, amuont, late, amount INTO out FROM a TIMESTAMP BY at; SELECT z INTO two FROM b TIMESTAMP BY at")
    few, many = RECORDS, pa.array([RECORDS[1].as_py()] * SAMPLE_RECORDS, pa.binary())
    first = FirstRecords(script)
    first.look_at("a", pa.chunked_array([few]))
    assert (first.report(is_finished=False), first.report(is_finished=True)) == ({}, {"a": ("amuont", "late")})
    first.look_at("b", pa.chunked_array([few]))
    first.look_at("a", pa.chunked_array([many.slice(0, 300), many.slice(300)]))
    first.look_at("a", pa.chunked_array([pa.array([b'{"late":1}'])]))
    assert first.report(is_finished=False) == {"a": ("amuont", "late")}


def test_a_job_says_once_which_columns_no_bucket_has_met() -> None:
    """A column is absent if it is absent in all buckets that have read enough; the summary counts it."""
    progress = QueryProgress(2)

    def report(bucket: int, **absent: tuple[str, ...]) -> BucketReport:
        return BucketReport(bucket, totals={"events": 5}, absent=absent)

    progress.accept_reports([report(0), report(1)])
    assert (progress.pop_absent_columns(), progress.summary()["absent_columns"]) == ([], 0)
    progress.accept_reports([report(0, a=("amuont", "late")), report(1, a=("amuont",), b=())])
    assert progress.pop_absent_columns() == [("a", "amuont")]
    assert (progress.pop_absent_columns(), progress.summary()["absent_columns"]) == ([], 1)


def test_a_name_that_looks_like_a_declared_field_is_refused() -> None:
    """By fields and by CREATE TABLE; other names may be fields that are not declared."""
    sql = "SELECT SUM(amuont) AS total INTO out FROM a TIMESTAMP BY at GROUP BY TumblingWindow(hour, 1)"
    for script, fields in ((sql, {"amount": "bigint"}), (f"CREATE TABLE a (amount bigint); {sql}", {})):
        with pytest.raises(QueryError, match=r"did you mean amount\? Else declare amuont too") as refused:
            plans(script, **fields)
        assert refused.value.code == "TG-QUERY-FIELD"
    assert plans("SELECT temp2, colour INTO out FROM a TIMESTAMP BY at", temp1="bigint")
