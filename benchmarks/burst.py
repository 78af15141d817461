"""
What a burst leaves behind: the memory of one ingest before, during and after millions of new keys at a high rate.

The memory of its JVM and of its Python processes, each page once (PSS), before the burst, at the peak, and in the silence after it. Batches
stay open as they do by default.

Usage: python benchmarks/burst.py [--keys 2000000] [--rate 20000] [--silence 60]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
from confluent_kafka import Producer
from laptop import Ends
from running import console, end

from tidegate.platform.kafka.admin import Admin
from tidegate.platform.stack.embedded import EmbeddedStack

PARTITIONS = 4
SETTINGS = '[inputs.events]\ntopic = "events"\ntimestamp_by = "at"\nover = "key"\nreorder = "1s"\nlate = "5s"\nidle = "on"\n'


def memory_mb(job: psutil.Process) -> dict[str, int]:
    """Return the memory of the job by the name of its processes, and of all."""
    kilobytes = {"java": 0, "python": 0}
    for process in (job, *job.children(recursive=True)):
        with suppress(OSError, psutil.NoSuchProcess):  # it has just ended
            kind = "java" if "java" in process.name() else "python"
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
            kilobytes[kind] += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    megabytes = {kind: amount // 1024 for kind, amount in kilobytes.items()}
    return {**megabytes, "all": sum(megabytes.values())}


def send(producer: Producer, first: int, count: int) -> None:
    """Send *count* events of now, each with a key of its own."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    for number in range(first, first + count):
        producer.produce("events", b'{"key":"device-%d","at":"%b"}' % (number, at.encode()), partition=number % PARTITIONS)
    producer.flush()


def show(when: str, memory: dict[str, int]) -> None:
    """Print one line."""
    console.print(f"{when}: {memory['all']:,} MB (JVM {memory['java']:,}, Python {memory['python']:,})")


def main() -> None:
    """Run one ingest through a burst, and print its memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=2_000_000)
    parser.add_argument("--rate", type=int, default=20_000, help="new keys a second")
    parser.add_argument("--silence", type=int, default=60, metavar="SECONDS", help="how long it is silent before and after the burst")
    arguments = parser.parse_args()
    with ExitStack() as running:
        work = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-burst-", ignore_cleanup_errors=True)))
        (work / "tidegate.toml").write_text(SETTINGS)
        stack = EmbeddedStack(work / "stack")
        running.callback(stack.stop, wipe=True)
        stack.start(lambda line: None)
        Admin({"bootstrap.servers": stack.bootstrap}).create("events", PARTITIONS, {"retention.ms": "-1"})
        addresses = {"TIDEGATE_KAFKA__BOOTSTRAP": stack.bootstrap, "TIDEGATE_REDIS__URL": stack.redis_url}
        producer, ends = Producer({"bootstrap.servers": stack.bootstrap, "linger.ms": 5, "log_level": 2}), Ends(stack.bootstrap)
        send(producer, 0, 1_000)
        with (work / "errors.log").open("ab") as errors:
            command = [sys.executable, "-P", "-m", "tidegate", "ingest", "events", "--format", "json"]
            started = subprocess.Popen(command, cwd=work, env={**os.environ, **addresses}, stdout=errors, stderr=errors)
        running.callback(started.wait)
        running.callback(end, started.pid)
        job = psutil.Process(started.pid)
        ends.await_beyond("events.ordered", 0)
        time.sleep(arguments.silence)
        show("before", memory_mb(job))
        peak, sent, began_s = memory_mb(job), 0, time.monotonic()
        while sent < arguments.keys:
            send(producer, 1_000 + sent, arguments.rate)
            sent += arguments.rate
            peak = max(peak, memory_mb(job), key=lambda each: each["all"])
            time.sleep(max(0.0, began_s + sent / arguments.rate - time.monotonic()))
        ends.await_beyond("events.ordered", sent)
        ended_s = time.monotonic()
        console.print(f"{sent:,} keys in {ended_s - began_s:.0f} s")
        after = []
        while (passed_s := time.monotonic() - ended_s) < arguments.silence:
            after.append((passed_s, memory_mb(job)))
            peak = max(peak, after[-1][1], key=lambda each: each["all"])
            time.sleep(5)
        show("at the peak", peak)
        for passed_s, memory in after:
            show(f"after {passed_s:.0f} s", memory)
        show(f"after {arguments.silence} s", memory_mb(job))


if __name__ == "__main__":
    main()
