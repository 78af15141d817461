"""
Latency: from the raw topic's append to the ordered topic's, or to a final result; and what idle jobs cost.

Usage: python benchmarks/latency.py [--to ordered|result|chain] [--rate 20000] [--seconds 40] [--idle 30] [--spans 0s 30s]
                                    [--set key=value ...] [--format json]

A producer appends *rate* events a second to a LogAppendTime topic of two partitions, a slice every 10 ms; ingest runs
beside it with reorder 0, and a consumer notes when each ordered record reaches it. Their difference is an upper bound of
the time between the two appends: it holds the consumer's own fetch too. The first third is warm-up. Then the producer
stops, and the CPU of the whole job is measured while it only estimates idle arrival, once a second. All this for each of
*spans*, the ``batch_span`` of the input, and of queries.

With ``--to result`` ingest and a query run in one process (``tidegate run``). The query counts in windows of 100 ms, and
what is measured is the time from the end of a window, which an event closes that is made within 10 ms, to the arrival of
its result at the consumer. With ``--to chain`` two more queries follow, each in windows of the one before.
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
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition
from measuring import Meter, take_now

from ordering.protocol.wire import EVENT_HEADER_BYTES, decode_event_headers
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.stack.embedded import EmbeddedStack

PARTITIONS = 2
# How long a start may take, seconds.
START_S = 120.0
SLICE_S = 0.01
# What each of the chained queries is called, what it reads, and what it computes; the consumer reads the last.
QUERIES = {
    "counts": "SELECT shard, COUNT(*) AS n INTO counts FROM latency TIMESTAMP BY ts GROUP BY shard, TumblingWindow(millisecond, 100)",
    "sums": "SELECT shard, SUM(n) AS n INTO sums FROM counts GROUP BY shard, TumblingWindow(millisecond, 100)",
    "largest": "SELECT shard, MAX(n) AS n INTO largest FROM sums GROUP BY shard, TumblingWindow(millisecond, 100)",
}
NAMES = {"ordered": "ordered append", "result": "final result", "chain": "final result of the third query"}
CHAINS = {"ordered": [], "result": ["counts"], "chain": ["counts", "sums", "largest"]}
SETTINGS = """
[inputs.latency]
topic = "latency"
timestamp_by = "ts"
early = "5m"
late = "5s"
reorder = "0s"
"""


def produce(bootstrap: str, rate: int, stop: threading.Event) -> None:
    """Append *rate* events a second until *stop*."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "acks": 1})
    per_slice, due, number = max(int(rate * SLICE_S), 1), time.monotonic(), 0
    while not stop.is_set():
        now_us = time.time_ns() // 1000
        for place in range(per_slice):
            number += 1
            producer.produce(
                "latency",
                b'{"device":"dev-%d","shard":%d,"ts":%d,"value":%d}' % (number % 1000, number % 10, now_us + place, number),
                partition=number % 2,
            )
        producer.poll(0)
        due += SLICE_S
        time.sleep(max(due - time.monotonic(), 0))
    producer.flush()


class Watcher(threading.Thread):
    """
    Notes when events of a *topic* reach a consumer: (wall clock then, when the last raw event was made that they need), microseconds. That
    is the arrival in the raw topic for ordered events, and the end of the window for results. A repetition is no event.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, since: str) -> None:
        super().__init__(daemon=True)
        properties = {"bootstrap.servers": bootstrap, "group.id": "latency", "fetch.wait.max.ms": 20, "enable.auto.commit": False}
        self._consumer = Consumer(properties)
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        self._since = since
        self.seen: list[tuple[int, np.ndarray]] = []
        self.done = threading.Event()
        # By partition and roster number: the number of the next event.
        self._next_seqs: dict[tuple[int, int], int] = {}

    def run(self) -> None:
        """Follow the ordered topic until told to end."""
        while not self.done.is_set():
            messages = take_now(self._consumer)
            now_us = time.time_ns() // 1000
            headers = [(message.partition(), message.headers()[0][1]) for message in messages]
            events = [(partition, header) for partition, header in headers if len(header) == EVENT_HEADER_BYTES]
            if events:
                decoded = decode_event_headers([header for _, header in events])
                is_new = [
                    self._is_new(partition, *ids) for (partition, _), *ids in zip(events, decoded["number"], decoded["seq"], strict=True)
                ]
                self.seen.append((now_us, decoded[self._since].astype(np.int64)[is_new]))
        self._consumer.close()

    def _is_new(self, partition: int, number: int, seq: int) -> bool:
        is_new = seq >= self._next_seqs.get((partition, number), 0)
        if is_new:
            self._next_seqs[partition, number] = seq + 1
        return is_new

    def latencies_ms(self, since_us: int, until_us: int) -> np.ndarray:
        """Return what was measured for events that arrived in a span."""
        parts = [(now_us - arrival[(arrival >= since_us) & (arrival < until_us)]) / 1000 for now_us, arrival in self.seen]
        return np.concatenate(parts) if parts else np.empty(0)


def figures(to: str, rate: int, seconds: int, idle: int, span: str, assigned: list[str]) -> dict[str, Any]:
    """Run with batches that stay open for *span*, and return the figures."""
    chain = CHAINS[to]
    topic = chain[-1] if chain else "latency.ordered"
    work = Path(".tidegate/latency").resolve()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    tables = [f'{SETTINGS}batch_span = "{span}"\n[query]\nbatch_span = "{span}"\n']
    for name in chain:
        (work / f"{name}.sql").write_text(QUERIES[name])
        tables.append(f'[outputs.{name}]\ntopic = "{name}"\n[queries.{name}]\nscript = "{name}.sql"\n')
    (work / "tidegate.toml").write_text("".join(tables))
    with EmbeddedStack(work / "stack") as stack:
        environment = {**os.environ, "TIDEGATE_KAFKA__BOOTSTRAP": stack.bootstrap, "TIDEGATE_REDIS__URL": stack.redis_url}
        Admin({"bootstrap.servers": stack.bootstrap}).create("latency", PARTITIONS, {"message.timestamp.type": "LogAppendTime"})
        stages = ["run", "--no-page"] if chain else ["ingest", "latency"]
        command = [sys.executable, "-m", "tidegate", *stages, "--format", "json"]
        command += [word for one in assigned for word in ("--set", one)]
        with (work / "errors.log").open("wb") as errors:
            job = subprocess.Popen(command, cwd=work, env=environment, stdout=subprocess.PIPE, stderr=errors)
        assert job.stdout is not None
        meter, stop, lines = Meter(job.pid), threading.Event(), []
        reading = threading.Thread(target=lambda out=job.stdout: lines.extend(out), daemon=True)
        reading.start()
        producing = threading.Thread(target=produce, args=(stack.bootstrap, rate, stop), daemon=True)
        producing.start()
        admin = Admin({"bootstrap.servers": stack.bootstrap})
        began_s = time.monotonic()
        while not (found := admin.find(topic)):
            time.sleep(0.1)
            if time.monotonic() - began_s > START_S:
                job.terminate()
                raise SystemExit((work / "errors.log").read_text()[:3000])
        watcher = Watcher(stack.bootstrap, topic, found.partitions, "system_us" if chain else "arrival_us")
        watcher.start()
        while not watcher.seen:
            time.sleep(0.1)
            if job.poll() is not None:
                raise SystemExit((work / "errors.log").read_text()[-3000:])
        began_us, began_s = time.time_ns() // 1000, meter.elapsed_s
        time.sleep(seconds)
        stop.set()
        producing.join()
        ended_us, ended_s = time.time_ns() // 1000, meter.elapsed_s
        batches = len(lines)
        time.sleep(5)
        idle_from_s, idle_batches = meter.elapsed_s, len(lines)
        time.sleep(idle)
        idle_cpu = meter.cpu_between(idle_from_s, meter.elapsed_s) / idle
        idle_batches = len(lines) - idle_batches
        job.terminate()
        job.wait()
        meter.stop()
        watcher.done.set()
        watcher.join()
        stack.stop(wipe=True)
    third_us = (ended_us - began_us) // 3
    latency = watcher.latencies_ms(began_us + third_us, ended_us - 1_000_000)
    busy = meter.cpu_between(began_s + third_us / 1e6, ended_s) / (ended_s - began_s - third_us / 1e6)
    return {
        "name": f"raw append to {NAMES[to]}, {rate:,} events a second, batch_span {span}",
        "events": len(latency),
        "p50_ms": round(float(np.percentile(latency, 50))),
        "p99_ms": round(float(np.percentile(latency, 99))),
        "p99_9_ms": round(float(np.percentile(latency, 99.9))),
        "largest_ms": round(float(latency.max())),
        "batches_per_second": round(batches / (ended_s - began_s), 2),
        "cores_busy": round(busy, 2),
        "idle_cores": round(idle_cpu, 3),
        "idle_batches_per_second": round(idle_batches / idle, 2) if idle else None,
    }


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", choices=list(CHAINS), default="ordered")
    parser.add_argument("--rate", type=int, default=20_000)
    parser.add_argument("--seconds", type=int, default=40)
    parser.add_argument("--idle", type=int, default=30)
    parser.add_argument("--spans", nargs="+", default=["0s"], metavar="DURATION")
    parser.add_argument("--set", action="append", default=[], dest="assigned", metavar="key=value")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    arguments = parser.parse_args()
    for span in arguments.spans:
        found = figures(arguments.to, arguments.rate, arguments.seconds, arguments.idle, span, arguments.assigned)
        if arguments.format == "json":
            print(json.dumps(found), flush=True)
            continue
        for name, value in found.items():
            print(f"{name.replace('_', ' '):26} {value}", flush=True)


if __name__ == "__main__":
    main()
