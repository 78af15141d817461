"""
How fast a result topic gets into a store, beside the store's own bulk load of the same rows: python benchmarks/storing.py [--rows 1000000]

Each figure is a ratio within one run: the rows of ``tidegate sink`` a second, read from Kafka, typed and written with their progress in
batches, divided by those of the load alone, whose rows lie ready in memory in the form that the store reads. For PostgreSQL the load is
one COPY into the table (append); COPY into a temporary table and INSERT ... ON CONFLICT DO UPDATE, batch by batch (upsert). For Delta Lake
it is delta-rs appending batch by batch; then also what one would write without the sink, from the same topic: confluent-kafka's consumer,
pyarrow's JSON reader, delta-rs, and no progress. For ClickHouse it is an INSERT of each batch from Arrow over HTTP, into a table that is on
disk before it answers (its engine behind a door of ours). CPU is that of this process and of the store's server, without the brokers'.

Law: after each run the table has exactly the rows of the topic.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import psutil
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable, write_deltalake
from psycopg import sql

from ordering.model.events import Released
from sinks.copying.job import SinkJob, prepare
from sinks.stores.base import Rows
from sinks.stores.clickhouse.target import literal
from sinks.stores.typed_rows import make_typed_table
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.kafka.writer import ChannelWriter, GaplessProducer
from tidegate.platform.settings.load import Settings
from tidegate.platform.stack.embedded import EmbeddedStack
from tidegate.records.result_columns import Column, make_schema

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.postgres_server import PostgresServer
from support.stores.benches import ClickHouseBench

COLUMNS: tuple[Column, ...] = (
    ("number", "bigint"),
    ("car", "nvarchar(max)"),
    ("minute_end", "datetime"),
    ("fixes", "bigint"),
    ("speed", "float"),
    ("is_slow", "bit"),
)
_PIECE = 100_000
_BATCH = 50_000
_MADE = "number bigint, car text, minute_end timestamptz, fixes bigint, speed double precision, is_slow boolean"


def rows_of(start: int, count: int) -> Rows:
    """Return results of 110 bytes of JSON: 1,000 cars, a minute each."""
    number = np.arange(start, start + count)
    text = {name: pa.array(values).cast(pa.string()) for name, values in (("n", number), ("c", number % 1_000), ("f", number % 97))}
    minute = pc.strftime(pa.array(number // 1_000 * 60, pa.timestamp("s")), format="%Y-%m-%dT%H:%M:%SZ")
    speed = pa.array(number % 9_973 / 7.0).cast(pa.string())
    slow = pc.if_else(pa.array(number % 3 == 0), "true", "false")
    parts = ['{"number":', text["n"], ',"car":"car-', text["c"], '","minute_end":"', minute, '","fixes":', text["f"], ',"speed":', speed]
    value = pc.binary_join_element_wise(*parts, ',"is_slow":', slow, "}", "").cast(pa.binary())
    return Rows(number, number, number * 1_000, text["c"].cast(pa.binary()), value)


def fill(bootstrap: str, topic: str, rows: int) -> None:
    """Have a result topic of one partition hold the rows."""
    unlimited = {f"message.timestamp.{side}.max.ms": str(2**63 - 1) for side in ("before", "after")}
    Admin({"bootstrap.servers": bootstrap}).create(topic, 1, {"retention.ms": "-1", **unlimited})
    producer = GaplessProducer({"bootstrap.servers": bootstrap})
    writer = ChannelWriter(producer, topic)
    for start in range(0, rows, _PIECE):
        made = rows_of(start, min(_PIECE, rows - start))
        times, zeros = made.system_us, np.zeros(len(made), dtype=np.int64)
        partition, flags = zeros.astype(np.int32), zeros.astype(np.uint16)
        writer.write_events(Released(0, partition, made.position, times, times, times, zeros, flags, made.key, made.value))
    producer.flush(topic)
    producer.discard()


def copied(settings: Settings, output: str) -> tuple[float, list[int]]:
    """Run the sink to the topic's end; return how many seconds it took, and the process's memory in bytes after each fifth of it."""
    rows = settings.output(output).topic
    job = SinkJob(prepare(settings, output, COLUMNS, until_end=True))
    own, memory, began_s = psutil.Process(), list[int](), time.perf_counter()
    assert rows is not None
    with job:
        while not job.is_done:
            job.poll()
            memory.append(own.memory_info().rss)
            time.sleep(0.05)
    return time.perf_counter() - began_s, [memory[len(memory) * fifth // 5] for fifth in range(5)]


def ready_texts(rows: int) -> list[memoryview]:
    """Return the rows as COPY reads them, a batch each."""
    texts = []
    for start in range(0, rows, _BATCH):
        text = pa.BufferOutputStream()
        options = pa.csv.WriteOptions(include_header=False)
        pa.csv.write_csv(make_typed_table(rows_of(start, min(_BATCH, rows - start)), COLUMNS), text, options)
        texts.append(memoryview(text.getvalue()))
    return texts


def load_plain(connection: psycopg.Connection[Any], texts: list[memoryview]) -> None:
    """COPY all rows into a new table at once."""
    connection.execute(f"CREATE TABLE plain ({_MADE})".encode())
    connection.commit()
    with connection.cursor() as cursor, cursor.copy("COPY plain FROM STDIN (FORMAT csv)") as copy:
        for text in texts:
            copy.write(text)


def load_merged(connection: psycopg.Connection[Any], texts: list[memoryview]) -> None:
    """COPY each batch into a temporary table, and insert or update from there."""
    connection.execute(f"CREATE TABLE merged ({_MADE}, PRIMARY KEY (number))".encode())
    connection.execute("CREATE TEMP TABLE batch ON COMMIT DELETE ROWS AS SELECT * FROM merged WITH NO DATA")
    connection.commit()
    names = [name for name, _ in COLUMNS if name != "number"]
    changes = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in names)
    merge = sql.SQL("INSERT INTO merged SELECT * FROM batch ON CONFLICT (number) DO UPDATE SET {}").format(changes)
    for text in texts:
        with connection.cursor() as cursor, cursor.copy("COPY batch FROM STDIN (FORMAT csv)") as copy:
            copy.write(text)
        connection.execute(merge)
        connection.commit()


def load_delta(path: str, tables: list[pa.Table]) -> None:
    """Append each batch to a new table by delta-rs."""
    for table in tables:
        write_deltalake(path, table, mode="append")


def load_delta_by_hand(path: str, bootstrap: str, rows: int) -> None:
    """Read the topic, and append batch by batch to a new table, as a program without the sink would."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "by hand"})
    consumer.assign([TopicPartition("rides", 0, 0)])
    options = pyarrow.json.ParseOptions(explicit_schema=make_schema(COLUMNS))
    while rows:
        messages = consumer.consume(min(rows, _BATCH), 10)
        rows -= len(messages)
        text = b"\n".join(message.value() or b"" for message in messages)
        write_deltalake(path, pyarrow.json.read_json(pa.BufferReader(text), parse_options=options), mode="append")
    consumer.close()


def load_clickhouse(bench: ClickHouseBench, tables: list[pa.Table]) -> None:
    """Insert each batch into a new table."""
    kinds = ("Int64", "String", "DateTime64(6, 'UTC')", "Int64", "Float64", "Bool")
    made = ", ".join(f"{name} Nullable({kind})" for (name, _), kind in zip(COLUMNS, kinds, strict=True))
    settings = "fsync_after_insert = 1, fsync_part_directory = 1"
    bench.execute(f"CREATE TABLE kit.alone ({made}) ENGINE = MergeTree ORDER BY tuple() SETTINGS {settings}")
    insert = f"INSERT INTO kit.alone SELECT * FROM input({literal(made)}) FORMAT ArrowStream"
    headers = {"X-ClickHouse-User": bench.USER, "X-ClickHouse-Key": bench.PASSWORD}
    with httpx2.Client(headers=headers, timeout=60) as client:
        for table in tables:
            body = pa.BufferOutputStream()
            with pa.ipc.new_stream(body, table.schema) as stream:
                stream.write_table(table)
            answer = client.post(bench.url(), params={"query": insert}, content=body.getvalue().to_pybytes())
            assert answer.status_code == 200, answer.text


def spent_s(*servers: int) -> float:
    """Return the CPU seconds of this process and of the servers', without those of connections that are still open."""
    # Those of a connection of PostgreSQL count once the server has seen it end.
    time.sleep(0.5)
    times = [psutil.Process(server).cpu_times() for server in servers]
    return time.process_time() + sum(each.user + each.system + each.children_user + each.children_system for each in times)


def measure(rows: int, folder: Path) -> dict[str, Any]:
    """Measure each store; PostgreSQL on a server of its own."""
    figures: dict[str, Any] = {"rows": rows, "cores": os.cpu_count()}
    texts = ready_texts(rows)
    tables = [make_typed_table(rows_of(start, min(_BATCH, rows - start)), COLUMNS) for start in range(0, rows, _BATCH)]
    server, clickhouse = PostgresServer(), ClickHouseBench(folder)
    servers = server.process.pid, clickhouse.process.pid
    (folder / "stack").mkdir()

    def into_server(load: Callable[[psycopg.Connection[Any], list[memoryview]], None]) -> None:
        with psycopg.connect(server.url()) as connection:
            load(connection, texts)

    loads: dict[str, tuple[dict[str, Any], Callable[[], None]]] = {
        "append": ({"postgres": {"url": server.url(), "table": "append"}}, lambda: into_server(load_plain)),
        "upsert": (
            {"postgres": {"url": server.url(), "table": "upsert", "mode": "upsert", "primary_key": ["number"]}},
            lambda: into_server(load_merged),
        ),
        "delta": ({"delta": {"path": str(folder / "delta")}}, lambda: load_delta(str(folder / "delta alone"), tables)),
        "delta by hand": (
            {"delta": {"path": str(folder / "delta by hand")}},
            lambda: load_delta_by_hand(str(folder / "delta by hand alone"), stack.bootstrap, rows),
        ),
        "clickhouse": ({"clickhouse": clickhouse.given("sink")}, lambda: load_clickhouse(clickhouse, tables)),
    }
    try:
        with EmbeddedStack(folder / "stack") as stack:
            fill(stack.bootstrap, "rides", rows)
            for mode, (store, load) in loads.items():
                outputs = {"rides": {"topic": "rides", **store}}
                settings = Settings(kafka={"bootstrap": stack.bootstrap}, redis={"url": stack.redis_url}, outputs=outputs)  # type: ignore[arg-type]
                before_s = spent_s(*servers)
                sink_s, memory = copied(settings, "rides")
                sink_cpu_s, began_s = spent_s(*servers) - before_s, time.perf_counter()
                load()
                load_s, load_cpu_s = time.perf_counter() - began_s, spent_s(*servers) - before_s - sink_cpu_s
                check_same(mode, server, clickhouse, folder, rows)
                figures[mode] = {
                    "sink_rows_per_s": round(rows / sink_s),
                    "load_rows_per_s": round(rows / load_s),
                    "ratio": round(load_s / sink_s, 2),
                    "cpu_us_a_row": [round(cpu_s / rows * 1e6, 2) for cpu_s in (sink_cpu_s, load_cpu_s)],
                    "cpu_ratio": round(load_cpu_s / sink_cpu_s, 2),
                    "memory_mib": [octets >> 20 for octets in memory],
                }
            stack.stop(wipe=True)
    finally:
        server.stop()
        clickhouse.close()
    return figures


def check_same(mode: str, server: PostgresServer, clickhouse: ClickHouseBench, folder: Path, rows: int) -> None:
    """Check that the sink's table has the rows of the load."""
    if mode == "clickhouse":
        names = ", ".join(name for name, _ in COLUMNS)
        left, right = (f"SELECT {names} FROM kit.{table}" for table in ("sink", "alone"))
        for query in (f"{left} EXCEPT {right}", f"{right} EXCEPT {left}"):
            assert clickhouse.execute(f"SELECT count() FROM ({query})") == b"0\n", "clickhouse: the table has other rows than the load"
        assert clickhouse.execute("SELECT count() FROM kit.sink") == b"%d\n" % rows
        return
    if mode.startswith("delta"):
        found = [DeltaTable(str(folder / name)).to_pyarrow_table().sort_by("number") for name in (mode, f"{mode} alone")]
        assert len(found[0]) == rows
        assert found[0].equals(found[1]), f"{mode}: the table has other rows than the load"
        return
    plain = {"append": "plain", "upsert": "merged"}[mode]
    with psycopg.connect(server.url()) as connection:
        for left, right in ((mode, plain), (plain, mode)):
            differing = connection.execute(f"SELECT count(*) FROM (TABLE {left} EXCEPT ALL TABLE {right}) x".encode()).fetchone()
            assert differing == (0,), f"{mode}: the table has other rows than the load"


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0].strip())
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(arguments.rows, Path(folder)), indent=1))


if __name__ == "__main__":
    main()
