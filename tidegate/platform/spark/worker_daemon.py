"""
The process from which Spark forks its Python workers, with all heavy modules already imported.

Otherwise each worker would spend a second of CPU on these imports and keep its own copy in memory. A worker collects garbage after every
task: frozen imports (``gc.freeze``) are not walked then, which saves 50 ms of CPU a task. Tasks of stateful stages run where they ran last
(:mod:`.task_homes`).
"""

from __future__ import annotations

import gc
import importlib
import os
import sys

from tidegate.platform.spark.launch.private_folder import share_results
from tidegate.platform.spark.privates import STATEFUL_WORKER, route_tasks
from tidegate.platform.spark.task_homes import TaskHomes, adopt_homes

_HEAVY = ("pandas", "pyarrow", "duckdb", "confluent_kafka", "structlog", "pydantic", "fastavro", "pyspark.sql.streaming")

if __name__ == "__main__":
    # The command line sets this too, but workers on other machines do not inherit its environment.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if sys.argv[1:2] == [STATEFUL_WORKER]:
        for name in _HEAVY:
            importlib.import_module(name)
        share_results()
        adopt_homes()
        route_tasks(lambda run: TaskHomes(run).run)
    from pyspark.daemon import manager

    gc.collect()
    gc.freeze()
    manager()
