"""
How long an event takes through a whole pipeline: two inputs, three queries and a PostgreSQL table, all by ``tidegate run``.

Usage: python benchmarks/pipeline.py [--rate 200] [--seconds 40] [--set key=value ...] [--format json]

A producer appends *rate* events a second to each of two topics of two partitions. A query picks some of the first input's, one counts
these in windows of 100 ms, one joins them with the second input's; what the first one picks is copied into a table. Measured are the times
from the moment an event is made, just before its append, to the row in the table, and to the pair in its topic; the first third is warm-up.
Rows are looked for every 2 ms, so these are upper bounds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psycopg
from confluent_kafka import Consumer, Producer, TopicPartition
from measuring import Meter, take_now

from tidegate.platform.kafka.admin import Admin
from tidegate.platform.stack.embedded import EmbeddedStack

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.postgres_server import PostgresServer

PARTITIONS, START_S = 2, 120.0
SCRIPTS = {
    "picked": "SELECT CAST(id AS bigint) AS id, CAST(made AS bigint) AS made FROM orders TIMESTAMP BY ts WHERE id % 2 = 0",
    "counts": "SELECT COUNT(*) AS n FROM picked GROUP BY TumblingWindow(millisecond, 100)",
    "pairs": (
        "SELECT p.id AS id, MAX(p.made) AS made FROM picked p JOIN payments y TIMESTAMP BY ts ON p.id = y.id "
        "AND DATEDIFF(second, p, y) BETWEEN 0 AND 1 GROUP BY p.id, System.Timestamp()"
    ),
}
CONFIG = """
[inputs.{0}]
topic = "{0}"
timestamp_by = "ts"
late = "5s"
reorder = "0s"
"""


def produce(bootstrap: str, rate: int, stop: threading.Event) -> None:
    """Append *rate* events a second to each input until *stop*."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    due, number = time.monotonic(), 0
    while not stop.is_set():
        number += 1
        made_us = time.time_ns() // 1000
        for topic in ("orders", "payments"):
            producer.produce(topic, b'{"id":%d,"made":%d,"ts":%d}' % (number, made_us, made_us), partition=number // 2 % PARTITIONS)
        producer.poll(0)
        due += 1 / rate
        time.sleep(max(due - time.monotonic(), 0))
    producer.flush()


def watch_table(url: str, seen: list[tuple[int, int]], stop: threading.Event) -> None:
    """Note when rows come: (wall clock, when the event was made), microseconds."""
    last = 0
    with psycopg.connect(url, autocommit=True) as connection:
        while not stop.is_set():
            try:
                rows = connection.execute("SELECT made, id FROM picked WHERE id > %s", [last]).fetchall()
            except psycopg.errors.UndefinedTable:
                rows = []
            now_us = time.time_ns() // 1000
            seen += [(now_us, made) for made, _ in rows]
            last = max([last, *(number for _, number in rows)])
            time.sleep(0.002)


def watch_topic(bootstrap: str, topic: str, partitions: int, seen: list[tuple[int, int]], stop: threading.Event) -> None:
    """Note when results come, in the same way."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "pipeline", "fetch.wait.max.ms": 20, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    while not stop.is_set():
        messages = take_now(consumer)
        now_us = time.time_ns() // 1000
        values = [message.value() for message in messages if message.key() is not None]
        seen += [(now_us, row["made"]) for row in map(json.loads, values) if "made" in row]
    consumer.close()


def figures(rate: int, seconds: int, assigned: list[str]) -> dict[str, object]:
    """Run the pipeline and return the figures."""
    work = Path(".tidegate/pipeline").resolve()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    postgres = PostgresServer()
    tables = [CONFIG.format(name) for name in ("orders", "payments")]
    for name, script in SCRIPTS.items():
        (work / f"{name}.sql").write_text(script)
        tables.append(f'[outputs.{name}]\ntopic = "{name}"\n[queries.{name}]\nscript = "{name}.sql"\ninto = "{name}"\n')
    tables.append(f'[outputs.picked.postgres]\nurl = "{postgres.url()}"\ntable = "picked"\n')
    (work / "tidegate.toml").write_text("".join(tables))
    with EmbeddedStack(work / "stack") as stack:
        environment = {**os.environ, "TIDEGATE_KAFKA__BOOTSTRAP": stack.bootstrap, "TIDEGATE_REDIS__URL": stack.redis_url}
        admin = Admin({"bootstrap.servers": stack.bootstrap})
        for topic in ("orders", "payments"):
            admin.create(topic, PARTITIONS, {"message.timestamp.type": "LogAppendTime"})
        command = [sys.executable, "-m", "tidegate", "run", "--no-page", "--format", "json"]
        command += [word for one in assigned for word in ("--set", one)]
        with (work / "errors.log").open("wb") as errors:
            job = subprocess.Popen(command, cwd=work, env=environment, stdout=subprocess.DEVNULL, stderr=errors)
        meter, stop, began_s = Meter(job.pid), threading.Event(), time.monotonic()
        rows: list[tuple[int, int]] = []
        pairs: list[tuple[int, int]] = []
        threads = [threading.Thread(target=produce, args=(stack.bootstrap, rate, stop), daemon=True)]
        threads.append(threading.Thread(target=watch_table, args=(postgres.url(), rows, stop), daemon=True))
        threads[0].start()
        threads[1].start()

        def wait_until(holds: Callable[[], object]) -> None:
            while not holds():
                if job.poll() is not None or time.monotonic() - began_s > START_S:
                    job.terminate()
                    raise SystemExit((work / "errors.log").read_text()[-3000:])
                time.sleep(0.1)

        wait_until(lambda: admin.find("pairs"))
        found = admin.find("pairs")
        assert found is not None
        threads.append(threading.Thread(target=watch_topic, args=(stack.bootstrap, "pairs", found.partitions, pairs, stop), daemon=True))
        threads[2].start()
        wait_until(lambda: rows and pairs)
        from_s, from_us = meter.elapsed_s, time.time_ns() // 1000
        time.sleep(seconds)
        until_s, until_us = meter.elapsed_s, time.time_ns() // 1000
        stop.set()
        for thread in threads:
            thread.join()
        job.terminate()
        job.wait()
        busy = meter.cpu_between(from_s, until_s) / (until_s - from_s)
        meter.stop()
        stack.stop(wipe=True)
    postgres.kill()
    told: dict[str, object] = {"name": f"two inputs, three queries and a table; {rate} events a second into each input"}
    for name, seen in (("row", rows), ("pair", pairs)):
        made_from_us = from_us + (until_us - from_us) // 3
        latency = np.array([(now_us - made) / 1000 for now_us, made in seen if made_from_us <= made < until_us - 2_000_000])
        told |= {f"{name}s": len(latency), f"{name}_largest_ms": round(float(latency.max()))}
        told |= {f"{name}_p{share}_ms": round(float(np.percentile(latency, share))) for share in (50, 99)}
    return {**told, "cores_busy": round(busy, 2)}


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--seconds", type=int, default=40)
    parser.add_argument("--set", action="append", default=[], dest="assigned", metavar="key=value")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    arguments = parser.parse_args()
    found = figures(arguments.rate, arguments.seconds, arguments.assigned)
    if arguments.format == "json":
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name.replace('_', ' '):24}{value:,}" if isinstance(value, int) else f"{name.replace('_', ' '):24}{value}")


if __name__ == "__main__":
    main()
