"""
The queries in Flink SQL: one JVM with a cluster inside, exactly once, state on its heap, objects reused.

Usage: FLINK-PYTHON flink_job.py ASKED, see asked.py. The read is bounded: at its end Flink's watermark jumps to the end of time.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import urllib.parse
import urllib.request
from typing import Any

from asked import Asked, asked, tell
from pyflink.table import EnvironmentSettings, TableEnvironment

_PAUSE_S = 0.4
_SECONDS = "TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_end)"
_WINDOW_END = f"CAST({_SECONDS} AS BIGINT) * 1000"
_GROUPS = "GROUP BY device, window_start, window_end"
_QUERIES = {
    "tumbling": (
        "device STRING, window_end BIGINT, n BIGINT, total DOUBLE",
        f"SELECT device, {_WINDOW_END}, COUNT(*), SUM(`value`) "
        f"FROM TUMBLE(TABLE events0, DESCRIPTOR(happened), INTERVAL '10' SECOND) {_GROUPS}",
    ),
    "hopping": (
        "device STRING, window_end BIGINT, n BIGINT",
        f"SELECT device, {_WINDOW_END}, COUNT(*) "
        f"FROM HOP(TABLE events0, DESCRIPTOR(happened), INTERVAL '1' SECOND, INTERVAL '60' SECOND) {_GROUPS}",
    ),
    "join": (
        "device STRING, `at` BIGINT, followed BIGINT, `value` DOUBLE, following DOUBLE",
        "SELECT l.device, l.ts, r.ts, l.`value`, r.`value` FROM events0 l, events1 r WHERE l.device = r.device "
        "AND r.happened BETWEEN l.happened - INTERVAL '0.999' SECOND AND l.happened + INTERVAL '1.999' SECOND "
        "AND {crossed} BETWEEN 0 AND 1",
    ),
    "lag": (
        "device STRING, ts BIGINT, `value` DOUBLE, `before` DOUBLE",
        "SELECT device, ts, `value`, LAG(`value`) OVER (PARTITION BY device ORDER BY happened) FROM events0",
    ),
}
"""Columns and query. The join's interval is what its whole seconds allow: between -1 and 2 seconds, both excluded."""


def settings(job: Asked) -> dict[str, str]:
    """Return Flink's settings."""
    return {
        "pipeline.jars": ";".join(f"file://{jar}" for jar in job.jars),
        "parallelism.default": str(job.cores),
        "pipeline.object-reuse": "true",
        "state.backend.type": "hashmap",
        "execution.checkpointing.interval": "5 s",
        "execution.checkpointing.dir": f"file://{job.scratch}/checkpoints",
        "io.tmp.dirs": job.scratch,
        "table.local-time-zone": "UTC",
        "rest.port": str(job.port),
        "rest.bind-port": str(job.port),
        "metrics.fetcher.update-interval": "400",
    }


def tables(job: Asked, columns: str) -> list[str]:
    """Return what declares the topics that are read, and the one that is written."""
    kafka = f"'connector' = 'kafka', 'properties.bootstrap.servers' = '{job.bootstrap}'"
    if job.by_record:
        stamp, happened = "stamped TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL, ", f"stamped - INTERVAL '0.00{job.shift_ms}' SECOND"
    else:
        stamp, happened = "", f"TO_TIMESTAMP_LTZ(ts - {job.shift_ms}, 3)"
    bound = f"{job.bound_ms // 1000}.{job.bound_ms % 1000:03}"
    reads = [
        f"CREATE TABLE events{place} (device STRING, ts BIGINT, `value` DOUBLE, {stamp}happened AS {happened}, "
        f"WATERMARK FOR happened AS happened - INTERVAL '{bound}' SECOND) WITH ({kafka}, 'topic' = '{topic}', 'format' = 'json', "
        f"'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset')"
        for place, topic in enumerate(job.topics)
    ]
    once = f"'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{job.sink}', "
    producer = {"compression.type": "lz4", "batch.size": "262144", "linger.ms": "20", "transaction.timeout.ms": "600000"}
    properties = ", ".join(f"'properties.{name}' = '{value}'" for name, value in producer.items())
    key = "'key.format' = 'raw', 'key.fields' = 'device', 'value.format' = 'json', "
    return [*reads, f"CREATE TABLE results ({columns}) WITH ({kafka}, 'topic' = '{job.sink}', {once}{key}{properties})"]


def watch(job: Asked) -> None:
    """Tell again and again how many records the sources have taken, as Flink's metrics say."""
    said = -1
    sources: dict[str, str] = {}
    while True:
        time.sleep(_PAUSE_S)
        # Before the job starts and after it has ended there is nobody to ask.
        with contextlib.suppress(OSError, LookupError, ValueError):
            taken = sum(_taken(job, vertex, sources) for vertex in _get(job, f"/jobs/{_get(job, '/jobs')['jobs'][0]['id']}")["vertices"])
            if taken != said:
                said = taken
                tell(taken)


def _taken(job: Asked, vertex: dict[str, Any], sources: dict[str, str]) -> int:
    at = f"/jobs/{_get(job, '/jobs')['jobs'][0]['id']}/vertices/{vertex['id']}/subtasks/metrics"
    if vertex["id"] not in sources:
        names = [one["id"] for one in _get(job, at)]
        if not names:
            return 0
        sources[vertex["id"]] = next((name for name in names if name.startswith("Source") and name.endswith(".numRecordsIn")), "")
    if not sources[vertex["id"]]:
        return 0
    return int(_get(job, f"{at}?get={urllib.parse.quote(sources[vertex['id']])}&agg=sum")[0]["sum"])


def _get(job: Asked, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{job.port}{path}", timeout=2) as answer:
        return json.load(answer)


def main() -> None:
    """Run one query to the end of its topics."""
    job = asked()
    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in settings(job).items():
        environment.get_config().set(name, value)
    columns, query = _QUERIES[job.query]
    for table in tables(job, columns):
        environment.execute_sql(table)
    by_record, by_field = "TIMESTAMPDIFF(SECOND, FLOOR(l.stamped TO SECOND), FLOOR(r.stamped TO SECOND))", "r.ts / 1000 - l.ts / 1000"
    threading.Thread(target=watch, args=[job], daemon=True).start()
    environment.execute_sql("INSERT INTO results " + query.replace("{crossed}", by_record if job.by_record else by_field)).wait()
    tell(job.events)


if __name__ == "__main__":
    main()
