"""
What a small pipeline costs: start, memory and CPU of the flights demo, by ``tidegate run``, by a process for each stage, and of one ingest.

For each: seconds from the start to the first result (ingest: to the first event in the ordered topic), memory and cores in silence and at
2,000 flights a second, and seconds from a kill -9 to the first new record in the ordered topic. Memory counts shared pages once (PSS of
/proc/PID/smaps_rollup). Kafka, Valkey and the producer are not counted, but use the same cores.

Usage: python benchmarks/laptop.py [run] [apart] [ingest] [--silence 60] [--over 60] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import psutil
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from running import Figures, console, end

from tidegate.platform.kafka.admin import Admin
from tidegate.platform.stack.embedded import EmbeddedStack

FLIGHTS = Path(__file__).parents[1] / "examples" / "flights"
sys.path.append(str(FLIGHTS))
from produce import flights, partitions_of, payload  # noqa: E402

PARTITIONS, RATE = 4, 2_000
QUERIES = ("departures", "mean_delay", "daily")
WAYS = {
    "run": [["run", "--no-page"]],
    "apart": [["ingest", "flights"], *(["query", name] for name in QUERIES)],
    "ingest": [["ingest", "flights"]],
}
_WAIT_S = 180.0


class Feed:
    """Sends the flights in the order of their arrival: some at once, later ones at a rate."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 2})
        self._flights = flights(FLIGHTS / "flights.parquet")
        self._partition_of = partitions_of(self._flights, PARTITIONS)
        self._sent, self._stop = 0, threading.Event()

    def send(self, count: int) -> None:
        """Send the next *count* flights."""
        for flight in self._flights[self._sent : self._sent + count]:
            arrival_ms = flight[0] // 1000
            self._producer.produce("flights", payload(flight), flight[2].encode(), self._partition_of[flight[2]], timestamp=arrival_ms)
        self._sent += count
        self._producer.flush()

    def start(self) -> None:
        """Send ten times a second from now on."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            self.send(RATE // 10)

    def stop(self) -> None:
        """Send no more."""
        self._stop.set()
        self._thread.join()


class Jobs:
    """The commands of a way, each in a process."""

    def __init__(self, way: str, work: Path, environment: dict[str, str]) -> None:
        self._commands = [[sys.executable, "-P", "-m", "tidegate", *arguments, "--format", "json"] for arguments in WAYS[way]]
        self._work, self._environment = work, environment
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start all at once: each waits for the topics that it reads."""
        with (self._work / "errors.log").open("ab") as errors:
            self._processes = [
                subprocess.Popen(command, cwd=self._work, env=self._environment, stdout=errors, stderr=errors) for command in self._commands
            ]

    def family(self) -> list[psutil.Process]:
        """Return all processes, those that these have started too."""
        roots = [psutil.Process(process.pid) for process in self._processes]
        return [each for root in roots for each in (root, *root.children(recursive=True))]

    def kill(self) -> None:
        """End all processes as a failing machine would."""
        for process in self.family():
            process.kill()
        for process in self._processes:
            process.wait()

    def close(self) -> None:
        """End all processes as a user would."""
        for process in self._processes:
            end(process.pid)
            process.wait()

    def memory_mb(self) -> float:
        """Return the memory of all processes, each page once."""
        kilobytes = 0
        for process in self.family():
            with suppress(OSError):  # it has just ended
                lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
                kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        return kilobytes / 1024

    def cpu_s(self) -> float:
        """Return the CPU seconds of all processes that live."""
        spent_s = 0.0
        for process in self.family():
            with suppress(psutil.NoSuchProcess):
                spent_s += sum(process.cpu_times()[:2])
        return spent_s

    def cost(self, seconds: float) -> Figures:
        """Return memory at the end of so many seconds, and the cores busy within them."""
        before_s = self.cpu_s()
        time.sleep(seconds)
        return {
            "memory_mb": round(self.memory_mb()),
            "cores": round((self.cpu_s() - before_s) / seconds, 3),
            "processes": len(self.family()),
        }


class Ends:
    """The ends of topics, as brokers tell them."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "laptop", "log_level": 2})

    def of(self, topic: str) -> int:
        """Return how many records a topic has."""
        found = self._consumer.list_topics(topic, timeout=10).topics[topic]
        return sum(self._consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=10)[1] for each in found.partitions)

    def await_beyond(self, topic: str, end: int) -> float:
        """Wait until a topic has more than *end* records; return the seconds that it took."""
        start_s = time.monotonic()
        while time.monotonic() < start_s + _WAIT_S:
            with suppress(KafkaException):  # a new topic has no leader yet
                if self.of(topic) > end:
                    return round(time.monotonic() - start_s, 1)
            time.sleep(0.05)
        raise SystemExit(f"nothing came into {topic} within {_WAIT_S:.0f} s")


def measure(way: str, silence_s: float, over_s: float) -> Figures:
    """Return what one way costs, on servers of its own."""
    with ExitStack() as running:
        work = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-laptop-", ignore_cleanup_errors=True)))
        for file in ("tidegate.toml", *(f"{name}.sql" for name in QUERIES)):
            shutil.copy(FLIGHTS / file, work)
        stack = EmbeddedStack(work / "stack")
        running.callback(stack.stop, wipe=True)
        stack.start(lambda line: None)
        addresses = {"TIDEGATE_KAFKA__BOOTSTRAP": stack.bootstrap, "TIDEGATE_REDIS__URL": stack.redis_url}
        Admin({"bootstrap.servers": stack.bootstrap}).create("flights", PARTITIONS, {"retention.ms": "-1"})
        feed, ends = Feed(stack.bootstrap), Ends(stack.bootstrap)
        jobs = running.enter_context(closing(Jobs(way, work, {**os.environ, **addresses, "TIDEGATE_SPARK__MASTER": "local[2]"})))
        feed.send(20_000)
        jobs.start()
        first = ends.await_beyond("flights.ordered" if way == "ingest" else "departures", 0)
        time.sleep(silence_s)
        silent = jobs.cost(over_s)
        feed.start()
        time.sleep(10)
        busy = jobs.cost(15)
        jobs.kill()
        before = ends.of("flights.ordered")
        jobs.start()
        again = ends.await_beyond("flights.ordered", before)
        feed.stop()
    return {"way": way, "first_s": first, "silent": silent, "at_rate": busy, "after_kill_s": again}


def main() -> None:
    """Measure the ways that are named, all by default, and print what they cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", choices=[*WAYS, []], help="which; default: all")
    parser.add_argument("--silence", type=float, default=60, metavar="SECONDS", help="how long to wait before a silent job is measured")
    parser.add_argument("--over", type=float, default=60, metavar="SECONDS", help="for how long a silent job is measured then")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    rows = [measure(way, arguments.silence, arguments.over) for way in arguments.ways or WAYS]
    for row in rows:
        silent, busy = row["silent"], row["at_rate"]
        console.print(
            f"{row['way']}: first result {row['first_s']} s, after kill -9 {row['after_kill_s']} s; "
            f"silent {silent['memory_mb']:,} MB, {silent['cores']} cores, {silent['processes']} processes; "
            f"at {RATE:,} a second {busy['memory_mb']:,} MB, {busy['cores']} cores"
        )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
