"""Keys that Spark spreads evenly, checked against the hash of a real Spark."""

from __future__ import annotations

import os
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tidegate.platform.spark.shuffle_keys import even_labels

SHAPES = [(1, 1), (4, 2), (7, 3), (16, 4), (5, 8), (64, 12)]


@pytest.mark.deep
@pytest.mark.heavy
def test_labels_fall_evenly_into_the_partitions_of_a_real_spark() -> None:
    """Number k goes to shuffle partition k mod n: Spark sends a row to pmod(hash(key), n)."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1").getOrCreate()
    )
    try:
        keys = [(tasks, place, label) for count, tasks in SHAPES for place, label in enumerate(even_labels(count, tasks))]
        listed = ", ".join(map(str, keys))
        rows = spark.sql(f"SELECT tasks, place, pmod(hash(label), tasks) AS task FROM VALUES {listed} AS t(tasks, place, label)").collect()
        assert len(rows) == len(keys)
        assert all(row["task"] == row["place"] % row["tasks"] for row in rows)
    finally:
        spark.stop()


@given(st.integers(1, 64), st.integers(1, 32))
def test_labels_are_distinct_and_do_not_change(count: int, tasks: int) -> None:
    """A label is a key of saved state: the first ones stay when more are asked for."""
    labels = even_labels(count, tasks)
    assert len(set(labels)) == count
    assert labels == even_labels(count + 5, tasks)[:count]
    assert max(Counter(place % tasks for place in range(count)).values()) == -(-count // tasks)
