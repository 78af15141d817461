"""
Peak memory under attack: whoever may write to a raw topic sends what should make a job eat the machine.

Usage: python benchmarks/attacks.py [--only NAME ...] [--format json]

Each attack is a topic of its own, ordered and queried to its end by the real jobs; ``calm`` ones are honest events. Memory is that of all
processes of a job together, shared pages once, looked at up to ten times a second. An attack fails if its job does not end by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import string
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import measuring
from confluent_kafka import Producer
from running import console, measured

from tidegate.platform.kafka.admin import Admin
from tidegate.platform.stack.embedded import EmbeddedStack

LETTERS = "".join(random.Random(19).choices(string.ascii_letters, k=1_000_000))
START_MS = 978_307_200_000
TOPIC_BYTES_MAX = 100_000_000
ITEM = {
    "type": "record",
    "name": "I",
    "fields": [{"name": "n", "type": "long"}, *({"name": f"n{at}", "type": "null"} for at in range(5_000))],
}
AVRO = {"type": "record", "name": "R", "fields": [{"name": "at", "type": "long"}, {"name": "a", "type": {"type": "array", "items": ITEM}}]}
INPUT = """
[inputs.a]
topic = "{topic}"
timestamp_by = "at"
{own}
[outputs.o]
topic = "{topic}.o"
"""
Payloads = Callable[[], Iterable[bytes]]


@dataclass(frozen=True)
class Attack:
    """What is sent, a millisecond apart; settings of its input; and the query over it, None for ingest alone."""

    payloads: Payloads
    query: str | None = None
    own: str = ""


def events(count: int, step_ms: int = 1, **members: Any) -> Payloads:
    """Return so many events *step_ms* apart; a member that can be called gets the number of the event."""

    def make() -> Iterable[bytes]:
        for number in range(count):
            own = {name: value(number) if callable(value) else value for name, value in members.items()}
            yield json.dumps({"at": (START_MS + step_ms * number) * 1000, "k": "a", **own}).encode()

    return make


def text(size: int) -> Callable[[int], str]:
    """Return what makes texts of a size, another for each event."""
    return lambda number: f"{number:06}{LETTERS[: size - 6]}"


def few_bytes_of_avro() -> Iterable[bytes]:
    """Arrays of 20,000 records, each of a byte and 5,000 nulls."""
    for number in range(100):
        yield varint((START_MS + number) * 1000) + varint(20_000) + bytes(20_000) + varint(0)


def varint(number: int) -> bytes:
    """Return a number as Avro writes it."""
    rest, out = number << 1, bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


JOIN = "SELECT x.n AS n, y.n AS m INTO o FROM a x TIMESTAMP BY at JOIN a y TIMESTAMP BY at ON x.k = y.k AND DATEDIFF(second, x, y) = 0"
ATTACKS = {
    "calm, ingest": Attack(events(8_000, note=text(1_000)), own='over = "k"'),
    "calm, query": Attack(events(8_000, note=text(1_000)), "SELECT k, note INTO o FROM a TIMESTAMP BY at"),
    "a record of 120 MB in 120 kB": Attack(events(1, note="x" * 120_000_000)),
    "8,000 keys of 64 kB": Attack(events(8_000, k=text(64_000)), own='over = "k"'),
    "8,000 keys of 4 kB": Attack(events(8_000, k=text(4_000)), own='over = "k"'),
    "20 kB of Avro with 100 million nulls": Attack(few_bytes_of_avro, own='format = "avro"\navro_schema = "r.avsc"'),
    "300 megabytes that CAST refuses": Attack(
        events(300, note=text(1_000_000)), "SELECT CAST(note AS bigint) AS n INTO o FROM a TIMESTAMP BY at"
    ),
    "300 results beyond the topic's limit": Attack(
        events(300, note=text(800_000)), "SELECT note AS a, note AS b INTO o FROM a TIMESTAMP BY at"
    ),
    "4,000 events of one key and instant, joined": Attack(events(4_000, 0, n=int), JOIN),
    "15,000 events of one key and instant, joined": Attack(events(15_000, 0, n=int), JOIN),
    "REPLICATE by a number of the event": Attack(
        events(8_000, note=text(50), n=1_000_000), "SELECT LEN(REPLICATE(note, n)) AS n INTO o FROM a TIMESTAMP BY at"
    ),
    "nested REPLACE": Attack(
        events(8_000, note="x" * 200),
        "SELECT LEN(REPLACE(REPLACE(REPLACE(note, 'x', note), 'x', note), 'x', note)) AS n INTO o FROM a TIMESTAMP BY at",
    ),
    "CONCAT that doubles": Attack(
        events(200, note=text(500_000)),
        "WITH d AS (SELECT note + note AS n FROM a TIMESTAMP BY at), e AS (SELECT n + n AS n FROM d) SELECT LEN(n + n) AS n INTO o FROM e",
    ),
    "REGEXMATCH of 15 MB, the costliest pattern": Attack(
        events(3, note="a" * 15_000_000),
        "SELECT REGEXMATCH(note, '(.{0,19}){0,19}b') AS n INTO o FROM a TIMESTAMP BY at",
        own="record_bytes_max = 20000000",
    ),
    "2.4 GB of text in one group and window": Attack(
        events(3_000, note=text(800_000)),
        "SELECT k, COLLECT(note) AS c, TopOne() OVER (ORDER BY at) AS d, COUNT(DISTINCT note) AS e INTO o FROM a TIMESTAMP BY at "
        "GROUP BY k, TumblingWindow(minute, 1)",
    ),
    "COLLECT in sliding windows": Attack(
        events(4_000, note=text(1_000)), "SELECT k, COLLECT(note) AS c INTO o FROM a TIMESTAMP BY at GROUP BY k, SlidingWindow(second, 60)"
    ),
    "COLLECT in sliding windows, with OVER": Attack(
        events(4_000, note=text(1_000)),
        "SELECT k, COLLECT(note) AS c INTO o FROM a TIMESTAMP BY at OVER k GROUP BY k, SlidingWindow(second, 60)",
        own='over = "k"',
    ),
}


def attack(name: str, work: Path, stack: EmbeddedStack, environment: dict[str, str]) -> dict[str, Any]:
    """Send an attack, run its jobs, and return what they needed."""
    chosen, topic = ATTACKS[name], f"attack-{list(ATTACKS).index(name)}"
    work.mkdir(parents=True)
    (work / "tidegate.toml").write_text(INPUT.format(topic=topic, own=chosen.own))
    (work / "r.avsc").write_text(json.dumps(AVRO))
    Admin({"bootstrap.servers": stack.bootstrap}).create(topic, 1, {"max.message.bytes": str(TOPIC_BYTES_MAX), "retention.ms": "-1"})
    sent, count = send(stack.bootstrap, topic, chosen.payloads())
    jobs = [["ingest", "a"]]
    if chosen.query is not None:
        (work / "q.sql").write_text(chosen.query)
        jobs.append(["query", "q.sql"])
    figures: dict[str, Any] = {"name": name, "events": count, "sent_mb": round(sent / 1e6, 1)}
    for job in jobs:
        command = [sys.executable, "-m", "tidegate", *job, "--until-end", "--format", "json"]
        run = measured(f"{name}: {job[0]}", command, count, work, environment, limit_s=300)
        peak = run.meter.memory_peak
        figures[job[0]] = {
            "ended": run.ended,
            "peak_mb": sum(peak.values()) >> 20,
            "workers_mb": peak.get("python worker", 0) >> 20,
            "cpu_s": round(sum(run.meter.cpu_s.values()), 1),
            "refused": sum(run.last.get(each, 0) for each in ("unreadable", "bad_rows", "results_too_large")),
        }
    return figures


def send(bootstrap: str, topic: str, payloads: Iterable[bytes]) -> tuple[int, int]:
    """Send the payloads; return their bytes and their number."""
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "gzip", "message.max.bytes": 10**9, "linger.ms": 5})
    sent = count = 0
    for payload in payloads:
        producer.produce(topic, payload, timestamp=START_MS + count)
        sent, count = sent + len(payload), count + 1
        if sent % 50_000_000 < len(payload):
            producer.flush()
    assert producer.flush(60) == 0
    return sent, count


def main() -> int:
    """Play the attacks that the command line asks for; return 1 if a job did not end by itself."""
    parser = argparse.ArgumentParser(description="Peak memory under attack.")
    parser.add_argument("--only", choices=ATTACKS, action="append")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    arguments = parser.parse_args()
    measuring._MEMORY_EVERY = 1
    work = Path.cwd() / ".bench" / "attacks"
    shutil.rmtree(work, ignore_errors=True)
    ended = True
    with EmbeddedStack(work / "stack") as stack:
        addresses = {"TIDEGATE_KAFKA__BOOTSTRAP": stack.bootstrap, "TIDEGATE_REDIS__URL": stack.redis_url}
        for number, name in enumerate(arguments.only or ATTACKS):
            figures = attack(name, work / str(number), stack, os.environ | addresses)
            print(json.dumps(figures) if arguments.format == "json" else figures, flush=True)
            ended &= all(figures[job]["ended"] for job in ("ingest", "query") if job in figures)
        stack.stop(wipe=True)
    console.print("every job ended by itself" if ended else "a job did not end by itself")
    return 0 if ended else 1


if __name__ == "__main__":
    sys.exit(main())
