"""
The process that Spark forks its Python workers from, with everything heavy already imported.

Each worker would otherwise spend a second of CPU on the same imports, and keep its own copy of them in memory. And after
every task a worker collects garbage: what was imported is set apart, else that alone costs 50 ms of CPU a task.
"""

from __future__ import annotations

import gc
import importlib
import sys

from tidegate.spark.privates import STATEFUL_WORKER

_HEAVY = ("pandas", "pyarrow", "duckdb", "confluent_kafka", "structlog", "pydantic_settings", "fastavro", "pyspark.sql.streaming")

if __name__ == "__main__":
    if sys.argv[1:2] == [STATEFUL_WORKER]:
        for name in _HEAVY:
            importlib.import_module(name)
    from pyspark.daemon import manager

    gc.collect()
    gc.freeze()
    manager()
