"""
What the page costs, beside the running jobs of a folder: memory and processor time of its server, and frames a second in a real Chromium.

Usage, in the folder of a tidegate.toml whose jobs run:
    python benchmarks/page.py INPUT [--minutes 10] [--idle 60] [--rate 10000] [--job PID]... [--turns 6]

- Nobody looks for --idle seconds: the processor time that the server takes.
- Then *Pipeline*, *Why* and *Time* of INPUT are open for --minutes, and records are produced to it at --rate a second (0: none): the
  server's memory every ten seconds, its processor time, and how many frames *Time* draws in each ten seconds.
- Then, with --job PID (of a job's process; again for each), clients ask what the three pages ask, and do not, in turns of --turn-s, --turns
  of each (browsers run on other machines, and drawing would take the job's processors here): the
  processor time that the job and all its processes take for a thousand records of its ordered topic, and how many it writes a second, open
  against closed. With --rate 0 a job that catches up shows what it does at its full rate.

The figures are one JSON object on standard output. Records are objects with the event time in the field ``at``, and a car of one hundred.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))

import psutil  # noqa: E402
from confluent_kafka import Producer  # noqa: E402 - after the path of the tests' browser
from support.browser import Watched, open_browser  # noqa: E402 - the tests' browser

from tidegate.platform.kafka.admin import Admin  # noqa: E402
from tidegate.platform.settings.load import load_assigned  # noqa: E402
from tidegate.platform.settings.tables.inputs import InputSettings  # noqa: E402
from tidegate.platform.stack.embedded import free_port  # noqa: E402

LOOK_S, SETTLE_S, TIME_EVERY_S = 10.0, 12.0, 3.0
CARS = 100
# Counts the frames that the browser draws.
FRAMES = (
    "() => { window.frames = 0; const count = () => { window.frames++; requestAnimationFrame(count); }; requestAnimationFrame(count); }"
)


def processor_s(pid: int) -> float:
    """Return the processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


def serve() -> tuple[subprocess.Popen[bytes], str]:
    """Start the page's server; return it and its address."""
    port = free_port()
    server = subprocess.Popen([sys.executable, "-P", "-m", "tidegate", "ui", "--port", str(port)], stdout=subprocess.DEVNULL)
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return server, f"http://127.0.0.1:{port}"


def produce(topic: str, rate: int, end: threading.Event, counts: list[int]) -> None:
    """Produce *rate* records a second until the end; count them."""
    producer = Producer({**load_assigned(None, None).kafka.client_properties(), "linger.ms": "20", "compression.type": "lz4"})
    began_s, sent = time.monotonic(), 0
    while not end.is_set():
        due = int((time.monotonic() - began_s) * rate)
        while sent < due:
            value = json.dumps({"at": time.time() - sent % 7 / 10, "car": f"c{sent % CARS}", "speed": 40}).encode()
            try:
                producer.produce(topic, value, f"c{sent % CARS}".encode())
                sent += 1
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
        counts[0] = sent
        time.sleep(0.02)
    producer.flush(10)


def main() -> int:
    """Measure; print."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("input")
    asked.add_argument("--minutes", type=float, default=10.0)
    asked.add_argument("--idle", type=float, default=60.0)
    asked.add_argument("--rate", type=int, default=10_000)
    asked.add_argument("--job", type=int, action="append", default=[])
    asked.add_argument("--turns", type=int, default=6)
    asked.add_argument("--turn-s", type=float, default=30.0)
    given = asked.parse_args()
    settings = load_assigned(None, None)
    table, admin = settings.input(given.input), Admin.connect(settings.kafka)
    server, address = serve()
    end, counts = threading.Event(), [0]
    try:
        figures = measure(server.pid, address, given, table, admin, end, counts)
    finally:
        end.set()
        server.terminate()
        server.wait()
    print(json.dumps(figures))
    return 1 if figures["complaints"] else 0


def job_s(pids: Sequence[int]) -> float:
    """Return the processor time of jobs and all their processes."""
    spent_s = 0.0
    for pid in pids:
        job = psutil.Process(pid)
        for each in (job, *job.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                spent_s += sum(each.cpu_times()[:2])
    return spent_s


def count_written(table: InputSettings, admin: Admin) -> int:
    """Return how many records the ordered topic of an input holds: the events that its job has taken, and CTIs."""
    return sum(admin.ends(admin.require(table.ordered_topic).all_partitions).values())


@contextlib.contextmanager
def follow_pages(address: str, names: Mapping[str, str]) -> Iterator[None]:
    """Ask what *Pipeline*, *Why* and *Time* ask, as they ask it, until the block is left."""
    end = threading.Event()

    def follow(path: str) -> None:
        with urllib.request.urlopen(address + path, timeout=60) as answer:
            while not end.is_set():
                answer.readline()

    def ask(path: str) -> None:
        while not end.wait(TIME_EVERY_S):
            with urllib.request.urlopen(address + path, timeout=60) as answer:
                answer.read()

    asking = [(follow, "/events/pipeline"), (follow, f"/events/why?name={names['output']}"), (ask, f"/api/time?name={names['input']}")]
    threads = [threading.Thread(target=target, args=(path,), daemon=True) for target, path in asking]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        end.set()
        for each in threads:
            each.join()


def compare_turns(
    address: str, names: Mapping[str, str], pids: Sequence[int], turns: int, turn_s: float, count: Callable[[], int]
) -> dict[str, Any]:
    """
    Return the processor seconds of a job for a thousand records, and how many records a second it writes, with the pages open and closed,
    turn by turn, and the ratios. The server runs beside the job.
    """
    spent: dict[bool, list[float]] = {True: [], False: []}
    rates: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(2 * turns):
        # Open, closed, closed, open: what drifts falls on both alike.
        is_open = turn % 4 in (0, 3)
        with follow_pages(address, names) if is_open else contextlib.nullcontext():
            # A job answers a client for ten seconds after its last question.
            time.sleep(SETTLE_S)
            at_s, before_s, before = time.monotonic(), job_s(pids), count()
            time.sleep(turn_s)
            took, cpu_s, written = time.monotonic() - at_s, job_s(pids) - before_s, count() - before
        spent[is_open].append(cpu_s / max(written, 1) * 1_000)
        rates[is_open].append(written / took)
        print(f"turn {turn}: {'open' if is_open else 'closed'}, {written / took:,.0f} a second, {spent[is_open][-1]:.5f}", file=sys.stderr)
    means = {is_open: statistics.mean(each) for is_open, each in spent.items()}
    return {
        "open_ms_per_1000": [round(each * 1000, 2) for each in spent[True]],
        "closed_ms_per_1000": [round(each * 1000, 2) for each in spent[False]],
        "open_a_second": [round(each) for each in rates[True]],
        "closed_a_second": [round(each) for each in rates[False]],
        "open_against_closed": round(means[True] / means[False], 4),
    }


def growth_mb_an_hour(looks: Sequence[tuple[float, float]]) -> float | None:
    """Return by how much memory grows, from pairs of seconds and megabytes; None: there are too few."""
    return round(statistics.linear_regression(*zip(*looks, strict=True)).slope * 3600, 1) if len(looks) > 1 else None


def measure(
    pid: int,
    address: str,
    given: argparse.Namespace,
    table: InputSettings,
    admin: Admin,
    end: threading.Event,
    counts: list[int],
) -> dict[str, Any]:
    """Return the figures."""
    [topic], output = table.topics, next(iter(load_assigned(None, None).outputs))
    time.sleep(5)
    before_s = processor_s(pid)
    time.sleep(given.idle)
    idle_percent = (processor_s(pid) - before_s) / given.idle * 100
    if given.rate:
        threading.Thread(target=produce, args=(topic, given.rate, end, counts), daemon=True).start()
    with open_browser() as browser:
        tabs = [Watched.open(browser, address) for _ in range(3)]
        for tab, path in zip(tabs, ("/pipeline", "/why", f"/time?name={given.input}"), strict=True):
            tab.go(path)
        live = tabs[-1].page
        live.evaluate(FRAMES)
        looks: list[tuple[float, float, float]] = []
        began_s, spent_s = time.monotonic(), processor_s(pid)
        while time.monotonic() - began_s < given.minutes * 60:
            at_s, frames = time.monotonic(), live.evaluate("window.frames")
            live.wait_for_timeout(LOOK_S * 1000)
            a_second = (live.evaluate("window.frames") - frames) / (time.monotonic() - at_s)
            looks.append((round(time.monotonic() - began_s), round(memory_mb(pid), 1), round(a_second, 1)))
        lasted_s = time.monotonic() - began_s
        looking_percent = (processor_s(pid) - spent_s) / lasted_s * 100
        complaints = [each for tab in tabs for each in tab.complaints]
    names, count = {"input": given.input, "output": output}, partial(count_written, table, admin)
    cost = compare_turns(address, names, given.job, given.turns, given.turn_s, count) if given.job else None
    later = looks[len(looks) // 2 :]
    return {
        "idle_cpu_percent": round(idle_percent, 2),
        "looking_cpu_percent": round(looking_percent, 1),
        "memory_mb": {"first": looks[0][1], "last": looks[-1][1], "most": max(memory for _, memory, _ in looks)},
        # Over the second half, when caches are warm.
        "growth_mb_an_hour": growth_mb_an_hour([look[:2] for look in later]),
        "frames_a_second": {
            "least": min(frames for *_, frames in looks),
            "median": sorted(frames for *_, frames in looks)[len(looks) // 2],
        },
        "produced_a_second": round(counts[0] / lasted_s),
        "minutes": round(lasted_s / 60, 1),
        "looks": looks,
        "job_cpu": cost,
        "complaints": complaints,
    }


if __name__ == "__main__":
    sys.exit(main())
