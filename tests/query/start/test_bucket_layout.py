"""Splitting: how many buckets a job has, of which kind, and what is bound and said of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ordering.errors import QueryError, RefusedError, SettingError
from query.config import Feed
from query.plan.nodes import Plan
from query.sql.bind import bind_outputs
from query.start.bucket_layout import (
    BucketLayout,
    check_over,
    check_partitions,
    describe_parallelism,
    exchange_binding,
    exchange_tasks,
    plan_buckets,
)
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script
from tidegate.platform.checkpoint.binding import TASKS, with_bound_tasks
from tidegate.platform.kafka.admin import Topic
from tidegate.platform.settings.load import Settings, load
from tidegate.platform.settings.tables.outputs import OutputSettings
from tidegate.platform.settings.tables.spark import SparkSettings

TABLES = """
[inputs.a]
topic = "a"
timestamp_by = "t"
over = "k"

[inputs.b]
topic = "b"
timestamp_by = "t"
over = "k"

[outputs.out]
topic = "out"

[spark]
shuffle_partitions = 2
"""
SCHEMAS = [InputSchema("a", "t", "k"), InputSchema("b", "t", "k"), InputSchema("r", is_result=True)]
BY_CITY = "SELECT city, COUNT(*) AS n FROM a TIMESTAMP BY t GROUP BY city, TumblingWindow(second, 1)"
BY_KEY = "SELECT k, COUNT(*) AS n FROM a TIMESTAMP BY t GROUP BY k, TumblingWindow(second, 1)"
BY_ALL = "SELECT COUNT(*) AS n FROM a TIMESTAMP BY t GROUP BY TumblingWindow(second, 1)"
OVER = "SELECT x.v FROM a TIMESTAMP BY t OVER k x JOIN b TIMESTAMP BY t OVER k y ON x.k = y.k AND DATEDIFF(second, x, y) BETWEEN 0 AND 1"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """The settings of two inputs with substreams."""
    file = tmp_path / "tidegate.toml"
    file.write_text(TABLES)
    return load(file)


def plans_of(sql: str) -> tuple[Plan, ...]:
    """Bind a script."""
    return bind_outputs(parse_script(sql), SCHEMAS, into=None if "INTO" in sql else "out")


def split(
    settings: Settings,
    sql: str,
    *,
    ordered: Sequence[int] = (4, 4),
    asked: int | None = None,
    there: Mapping[str, int] | None = None,
) -> BucketLayout:
    """Split the work of a script whose ordered topics have some partitions."""
    plans = plans_of(sql)
    output = OutputSettings.model_validate({"__name__": "out", "topic": "out", **({} if asked is None else {"partitions": asked})})
    names = dict.fromkeys(scan.input for plan in plans for scan in plan.scans)
    feeds = [Feed(name, name, count) for name, count in zip(names, ordered, strict=False)]
    results = {name: Topic(name, f"id of {name}", count, {}) for name, count in (there or {}).items()}
    return plan_buckets(settings, plans, [output], feeds, results)


def test_partitions_are_buckets_where_keys_stay_apart(settings: Settings) -> None:
    """Nothing else is as cheap."""
    assert split(settings, BY_KEY) == BucketLayout(4, by_partition=True)
    assert split(settings, BY_KEY, there={"out": 4}) == BucketLayout(4, by_partition=True)


def test_other_keys_are_exchanged(settings: Settings) -> None:
    """Over as many buckets as are asked for, as the topic has, or as the ordered topic has; over more than it has by its own key, too."""
    for found, buckets in [
        (split(settings, BY_CITY), 4),
        (split(settings, BY_CITY, asked=9), 9),
        (split(settings, BY_CITY, there={"out": 3}), 3),
        (split(settings, BY_KEY, asked=8), 8),
    ]:
        assert found.exchange is not None
        assert (found.buckets, found.exchange.buckets, found.by_partition) == (buckets, buckets, False)
    assert exchange_binding(split(settings, BY_CITY).exchange) == "city into 4"


def test_an_exchange_has_a_task_for_each_two_cores_unless_tasks_are_set(settings: Settings) -> None:
    """Set by the user or bound to the checkpoint; the default is that of the machine's cores."""
    for cores, tasks in [(1, 1), (2, 1), (3, 1), (4, 2), (9, 4)]:
        unset = settings.model_copy(update={"spark": SparkSettings.model_construct(set(), shuffle_partitions=cores)})
        assert exchange_tasks(unset) == tasks
        assert exchange_tasks(with_bound_tasks(unset, {TASKS: "3"})) == 3


def test_one_bucket_is_one_bucket(settings: Settings) -> None:
    """Where there is no key, one is asked for, one is there, or there is one partition."""
    for found in [
        split(settings, BY_ALL),
        split(settings, BY_ALL, asked=4),
        split(settings, BY_CITY, asked=1),
        split(settings, BY_CITY, there={"out": 1}),
        split(settings, BY_KEY, asked=1),
        split(settings, BY_CITY, ordered=(1,)),
    ]:
        assert found == BucketLayout(1)
    assert exchange_binding(None) == ""


def test_substreams_of_several_inputs_are_worked_on_side_by_side(settings: Settings) -> None:
    """If they are spread alike."""
    assert split(settings, OVER) == BucketLayout(4)
    with pytest.raises(RefusedError, match="different numbers of partitions: a 4, b 2"):
        split(settings, OVER, ordered=(4, 2))


def test_time_advances_in_one_way_in_a_job() -> None:
    """With OVER after every input, results of queries included, or after none."""
    of_results = "JOIN r TIMESTAMP BY System.Timestamp() OVER k y ON x.k = y.k AND DATEDIFF(second, x, y) = 0"
    on_results = f"SELECT x.v FROM a TIMESTAMP BY t OVER k x {of_results}"
    for sql in (OVER, on_results, BY_CITY, OVER.replace(" OVER k", "")):
        check_over(plans_of(sql), "q.sql")
    mixed = f"SELECT k INTO one FROM a TIMESTAMP BY t OVER k; {BY_CITY.replace('FROM a', 'INTO two FROM b')}"
    with pytest.raises(QueryError, match="a is read OVER k, and b without: time advances in one way in a job"):
        check_over(plans_of(mixed), "q.sql")
    with pytest.raises(QueryError, match="a is read OVER k, once a without"):
        check_over(plans_of(mixed.replace("FROM b", "FROM a")), "q.sql")


def test_an_output_must_have_as_many_partitions_as_there_are_buckets() -> None:
    """Several outputs of a script share its buckets."""
    output = OutputSettings.model_validate({"__name__": "out", "topic": "out", "partitions": 3})
    check_partitions(output, 3)
    for buckets, why in [(1, "its work is not spread"), (4, "as many as it has buckets")]:
        with pytest.raises(SettingError, match=why):
            check_partitions(output, buckets)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        (BY_KEY, "one bucket for each partition: everything keeps rows of different k apart"),
        (BY_ALL, "one bucket: rows meet without a key of their events: groups of WindowedAggregate tumbling 1s by all: COUNT(*) AS n"),
        (OVER, "one bucket for the same partition of all ordered topics: time advances key by key, as far as each input has come"),
        (
            BY_CITY,
            "exchange by city: rows of different substream keys meet: groups of WindowedAggregate tumbling 1s by city: city AS city, "
            "COUNT(*) AS n; buckets: as many as the ordered topic has partitions, or as partitions of the output says; each reads all "
            "partitions and their CTIs, and keeps the rows whose keys fall to it",
        ),
    ],
)
def test_the_plan_says_how_the_work_is_split(settings: Settings, sql: str, said: str) -> None:
    """And why."""
    assert describe_parallelism(settings, plans_of(sql)) == said


def test_the_plan_counts_buckets_that_are_asked_for(settings: Settings) -> None:
    """One, or some."""
    for asked, said in [
        (6, "buckets: 6; each"),
        (1, "one bucket, as partitions = 1 of the output asks for; else exchange by city"),
    ]:
        settings.outputs["out"] = settings.outputs["out"].model_copy(update={"partitions": asked})
        assert said in describe_parallelism(settings, plans_of(BY_CITY))
