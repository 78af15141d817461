"""The rows of result files, in an order that depends on the events alone."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pyarrow as pa

from ordering.protocol.punctuation import Roster, Spread
from query.buckets.result_channel import ResultChannel
from query.engine.retention import Retention
from query.plan.row_tables import RESULT_SCHEMA

# System.Timestamp, key, value and input partition, as they stand in a file.
ROWS = [(1, b"a", b"1", 1), (1, b"b", b"2", 0), (1, b"b", b"3", 1), (2, b"a", b"4", 0)]


def test_a_file_is_in_the_order_of_time_key_and_input_partition() -> None:
    """Level 3: in whatever order the results have left, which between input partitions is chance."""
    for rows in permutations(ROWS):
        retention = Retention()
        channel = ResultChannel(0, 0, Roster(1, 2, Spread.ONE, True), 10, None, retention)
        for system_us, key, value, number in rows:
            results = pa.table({"sub": [0], "system_us": [system_us], "key": [key], "value": [value]}, schema=RESULT_SCHEMA)
            channel.number_results(results, np.array([number]), retention)
        (sheet,) = channel.pop_sheets(10, retention)
        assert list(sheet.rows) == [row[:3] for row in ROWS]
