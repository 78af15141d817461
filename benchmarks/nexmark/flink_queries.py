"""
A Nexmark query in Flink SQL: the benchmark's statement over the raw topics, with the benchmark's own settings of its planner.

Usage: PYTHONPATH=benchmarks/peers FLINK-PYTHON flink_queries.py ASKED, see peers/asked.py; ``query`` is q0, q1, ... A query that
takes results back is written as its changes (``debezium-json``), any other as its rows.
"""

from __future__ import annotations

import re
import threading
from pathlib import Path

from asked import Asked, asked, tell
from flink_job import settings, watch
from pyflink.table import EnvironmentSettings, TableEnvironment

HERE = Path(__file__).resolve().parent
KINDS = {
    "person": "id BIGINT, name VARCHAR, emailAddress VARCHAR, creditCard VARCHAR, city VARCHAR, state VARCHAR, "
    "`dateTime` TIMESTAMP(3), extra VARCHAR",
    "auction": "id BIGINT, itemName VARCHAR, description VARCHAR, initialBid BIGINT, reserve BIGINT, `dateTime` TIMESTAMP(3), "
    "expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra VARCHAR",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, `dateTime` TIMESTAMP(3), extra VARCHAR",
}
OWN = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.distinct-agg.split.enabled": "true",
    "execution.checkpointing.interval": "20 s",
}
"""The benchmark's settings. It takes a checkpoint every 180 s; a bounded run waits for one at its end."""
_TIMED = "WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND"


def declared(job: Asked) -> list[str]:
    """Return what declares the topics, and the benchmark's views of them."""
    read = (
        f"'connector' = 'kafka', 'properties.bootstrap.servers' = '{job.bootstrap}', 'format' = 'json', "
        "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset'"
    )
    if len(job.topics) == len(KINDS):
        tables = zip(KINDS.items(), job.topics, strict=True)
        return [f"CREATE TABLE {kind} ({columns}, {_TIMED}) WITH ({read}, 'topic' = '{topic}')" for (kind, columns), topic in tables]
    rows = ", ".join(f"{kind} ROW<{columns}>" for kind, columns in KINDS.items())
    stamp = "CASE WHEN event_type = 0 THEN person.`dateTime` WHEN event_type = 1 THEN auction.`dateTime` ELSE bid.`dateTime` END"
    table = f"CREATE TABLE events (event_type INT, {rows}, `dateTime` AS {stamp}, {_TIMED}) WITH ({read}, 'topic' = '{job.topics[0]}')"
    views = [
        f"CREATE VIEW {kind} AS SELECT {_members(kind, columns)} FROM events WHERE event_type = {number}"
        for number, (kind, columns) in enumerate(KINDS.items())
    ]
    return [table, *views]


def _members(kind: str, columns: str) -> str:
    names = re.findall(r"(`?\w+`?) (?:BIGINT|VARCHAR|TIMESTAMP\(3\))", columns)
    return ", ".join(name if name == "`dateTime`" else f"{kind}.{name}" for name in names)


def statements(name: str) -> list[str]:
    """Return the statements of a query: views if it has any, the table of its results, the query."""
    text = (HERE / "flink.sql").read_text("utf-8")
    found = re.search(rf"^-- {name}: .*\n((?:.|\n)*?)(?=^-- q|\Z)", text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"Error: flink.sql has no {name}")
    return [statement.strip() for statement in found[1].split(";\n")]


def sink(job: Asked, format_: str) -> str:
    """Return where results go, for a CREATE TABLE."""
    producer = {"compression.type": "lz4", "batch.size": "262144", "linger.ms": "20", "transaction.timeout.ms": "600000"}
    properties = ", ".join(f"'properties.{name}' = '{value}'" for name, value in producer.items())
    return (
        f"WITH ('connector' = 'kafka', 'properties.bootstrap.servers' = '{job.bootstrap}', 'topic' = '{job.sink}', 'format' = '{format_}', "
        f"'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{job.sink}', {properties})"
    )


def main() -> None:
    """Run one query to the end of its topics."""
    job = asked()
    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in (settings(job) | OWN).items():
        environment.get_config().set(name, value)
    *views, table, query = statements(job.query)
    for statement in [*declared(job), *views, f"{table} {sink(job, 'json')}"]:
        environment.execute_sql(statement)
    try:
        environment.explain_sql(f"INSERT INTO results {query}")
    except Exception as refused:
        if "doesn't support consuming update" not in str(refused):
            raise
        environment.execute_sql("DROP TABLE results")
        environment.execute_sql(f"{table} {sink(job, 'debezium-json')}")
    threading.Thread(target=watch, args=[job], daemon=True).start()
    environment.execute_sql(f"INSERT INTO results {query}").wait()
    tell(job.events)


if __name__ == "__main__":
    main()
