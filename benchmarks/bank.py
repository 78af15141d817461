"""
A bank whose books always balance: ``make bank``, or python benchmarks/bank.py [--transfers 10000000] [--format json]

Every transfer is a debit in one topic and a credit in another, up to 2 s later; each arrives up to 10 s after its time, so that
both topics are out of order. A query joins the two, books both sides, keeps the balance of each account over the last minute,
and sums all balances up. Law: at every output instant the sum over all balances is 0, and what was booked by then is what was
due by then, to the cent. Engines that let results out before they are final show sums that never were.

The judge is DuckDB, over what stands in the result topics and over what was sent; nothing of the engine takes part.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from confluent_kafka import Consumer, TopicPartition
from filling import FIRST_ARRIVAL_MS, write
from numpy.typing import NDArray
from rich.console import Console
from running import Bench, progress

from ordering.protocol.wire import CTI_HEADER_BYTES, HEADER_NAME
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.kafka.writer import Columns
from tidegate.platform.stack.embedded import EmbeddedStack

Ints = NDArray[np.int64]

ACCOUNTS = 1_000
PER_S = 5_000
"""Transfers in a second of event time."""
LATE_MS, FOLLOWS_MS = 10_000, 2_000
_PIECE = 100_000
_SIDE = """
[inputs.SIDE]
topic = "{SIDE}"
timestamp_by = "ts"
early = "5m"
late = "20s"
reorder = "10s"
fields = {{ id = "bigint", account = "bigint", amount = "bigint" }}
"""
SETTINGS = (
    "".join(_SIDE.replace("SIDE", side) for side in ("debits", "credits"))
    + """
[outputs.balances]
topic = "{balances}"

[outputs.total]
topic = "{total}"

[outputs.changes]
topic = "{changes}"
"""
)
SCRIPT = """
WITH
booked AS (
    SELECT d.account AS giver, c.account AS taker, d.amount AS amount
    FROM debits TIMESTAMP BY ts d JOIN credits TIMESTAMP BY ts c
    ON DATEDIFF(second, d, c) BETWEEN 0 AND 2 AND d.id = c.id
),
moves AS (
    SELECT giver AS account, -amount AS change FROM booked
    UNION
    SELECT taker AS account, amount AS change FROM booked
),
balances AS (
    SELECT account, SUM(change) AS balance FROM moves GROUP BY account, HoppingWindow(second, 60, 1)
)
SELECT System.Timestamp() AS instant, account, balance INTO balances FROM balances;
SELECT System.Timestamp() AS instant, SUM(balance) AS total, COUNT(*) AS accounts INTO total FROM balances GROUP BY SnapshotWindow();
SELECT System.Timestamp() AS instant, account, SUM(change) AS change, COUNT(*) AS moves INTO changes
FROM moves GROUP BY account, TumblingWindow(second, 1)
"""
OUTPUTS = "balances", "total", "changes"
JUDGED = {
    "instants at which the balances of the last minute do not sum to 0": "SELECT count(*) FROM "
    "(SELECT instant FROM balances GROUP BY instant HAVING sum(balance) <> 0)",
    "instants at which the query's own total is not 0": "SELECT count(*) FROM total WHERE total <> 0",
    "instants at which total and balances are not of the same accounts": "SELECT count(*) FROM "
    "(SELECT instant, count(*) AS there FROM balances GROUP BY instant) AS known "
    "FULL JOIN total USING (instant) WHERE known.there IS DISTINCT FROM total.accounts",
    "instants at which all that was ever booked does not sum to 0": "SELECT count(*) FROM "
    "(SELECT instant, sum(sum(change)) OVER (ORDER BY instant) AS booked FROM changes GROUP BY instant) WHERE booked <> 0",
    "bookings that were not due, or are missing": "SELECT count(*) FROM ((SELECT * FROM changes EXCEPT ALL SELECT * FROM due) "
    "UNION ALL (SELECT * FROM due EXCEPT ALL SELECT * FROM changes))",
    "balances that are not what was due in the last minute": "SELECT count(*) FROM ((SELECT * FROM balances EXCEPT ALL SELECT * FROM owed) "
    "UNION ALL (SELECT * FROM owed EXCEPT ALL SELECT * FROM balances))",
}
"""What must be 0, and how DuckDB counts it."""
console = Console(stderr=True)


def transfers(count: int, seed: int = 1) -> dict[str, Ints]:
    """Return made transfers: who gives how much to whom, and when each side has its time and its arrival, milliseconds."""
    rng = np.random.default_rng(seed)
    debit_ms = FIRST_ARRIVAL_MS + np.arange(count) * 1000 // PER_S
    credit_ms = debit_ms + rng.integers(0, FOLLOWS_MS, count)
    giver = rng.integers(0, ACCOUNTS, count)
    return {
        "giver": giver,
        "taker": (giver + rng.integers(1, ACCOUNTS, count)) % ACCOUNTS,
        "amount": rng.integers(1, 100_000, count),
        "debit_ms": debit_ms,
        "credit_ms": credit_ms,
        "debit_arrival_ms": debit_ms + rng.integers(0, LATE_MS, count),
        "credit_arrival_ms": credit_ms + rng.integers(0, LATE_MS, count),
    }


def side(made: dict[str, Ints], name: str, account: str, partitions: int) -> Iterator[Columns]:
    """Yield one side of all transfers in the order of their arrival."""
    order = np.argsort(made[f"{name}_arrival_ms"], kind="stable")
    for start in range(0, len(order), _PIECE):
        rows = order[start : start + _PIECE]
        texts = [pa.array(column[rows]).cast(pa.string()) for column in (made[account], made["amount"], made[f"{name}_ms"])]
        ids = pa.array(rows).cast(pa.string())
        payload = pc.binary_join_element_wise(
            '{"id":', ids, ',"account":', texts[0], ',"amount":', texts[1], ',"ts":', texts[2], "}", ""
        ).cast(pa.binary())
        yield Columns(payload, ids.cast(pa.binary()), (rows % partitions).astype(np.int32), made[f"{name}_arrival_ms"][rows], "", None)


def dumped(bootstrap: str, topic: str, file: Path) -> int:
    """Write the results of a topic of one partition to a file, a line each; return how many they are."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bank", "enable.auto.commit": False, "fetch.message.max.bytes": 2**23})
    end = Admin({"bootstrap.servers": bootstrap}).ends([(topic, 0)])[topic, 0]
    consumer.assign([TopicPartition(topic, 0, 0)])
    count, position = 0, 0
    with file.open("wb") as lines:
        while position < end:
            for message in consumer.consume(min(_PIECE, end - position), timeout=10):
                assert message.error() is None, message.error()
                position = (message.offset() or 0) + 1
                if len(dict(message.headers() or [])[HEADER_NAME]) != CTI_HEADER_BYTES:
                    lines.write((message.value() or b"") + b"\n")
                    count += 1
    consumer.close()
    return count


def judged(made: dict[str, Ints], files: dict[str, Path], folder: Path) -> dict[str, Any]:
    """Let DuckDB hold the results against each other and against what was sent."""
    pq.write_table(pa.table({name: made[name] for name in ("giver", "taker", "amount", "credit_ms")}), folder / "sent.parquet")
    connection = duckdb.connect(config={"threads": 2})
    connection.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false; SET preserve_insertion_order = false")
    columns = {
        "balances": "{instant: 'TIMESTAMP', account: 'BIGINT', balance: 'HUGEINT'}",
        "total": "{instant: 'TIMESTAMP', total: 'HUGEINT', accounts: 'BIGINT'}",
        "changes": "{instant: 'TIMESTAMP', account: 'BIGINT', change: 'HUGEINT', moves: 'BIGINT'}",
    }
    for name, file in files.items():
        connection.execute(
            f"CREATE TABLE {name} AS SELECT * FROM read_json('{file}', format = 'newline_delimited', columns = {columns[name]})"
        )
    # A transfer is booked when its credit has come: that is the later side. Windows are (start, end].
    connection.execute(
        f"""CREATE TABLE due AS
            SELECT make_timestamp(((credit_ms + 999) // 1000) * 1000000) AS instant, account,
                   sum(change)::HUGEINT AS change, count(*) AS moves
            FROM (SELECT credit_ms, giver AS account, -amount AS change FROM read_parquet('{folder / "sent.parquet"}')
                  UNION ALL SELECT credit_ms, taker, amount FROM read_parquet('{folder / "sent.parquet"}'))
            GROUP BY 1, 2"""
    )
    connection.execute(
        """CREATE TABLE owed AS SELECT instant + to_seconds(later) AS instant, account, sum(change)::HUGEINT AS balance
           FROM due, range(60) AS hops(later) GROUP BY 1, 2"""
    )
    wrong = {what: connection.execute(sql).fetchall()[0][0] for what, sql in JUDGED.items()}
    counts = "count(DISTINCT instant) FROM balances", "count(DISTINCT instant) FROM changes", "sum(moves) FROM changes"
    instants, booked, moves = (connection.execute(f"SELECT {each}").fetchall()[0][0] for each in counts)
    return {"instants of balances": instants, "instants of bookings": booked, "moves": int(moves), "wrong": wrong}


def run(stack: EmbeddedStack, work: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Send, order, join, book, judge; return the figures."""
    count, seconds, begun_s = options.transfers, {}, time.monotonic()

    def took(step: str) -> None:
        nonlocal begun_s
        seconds[step] = round(time.monotonic() - begun_s, 1)
        begun_s = time.monotonic()
        console.print(f"{step}: {seconds[step]} s")

    bench = Bench(stack, work, options.cores)
    made = transfers(count)
    topics = {"debits": bench.fresh("debits", options.partitions), "credits": bench.fresh("credits", options.partitions)}
    for name, account, one in (("debit", "giver", "debits"), ("credit", "taker", "credits")):
        write(stack.bootstrap, topics[one], side(made, name, account, options.partitions), lambda sent: progress(f"sent {sent:,}"))
    took("sending")
    (work / "tidegate.toml").write_text(SETTINGS.format(**topics, **{name: f"{topics['debits']}.{name}" for name in OUTPUTS}))
    (work / "bank.sql").write_text(SCRIPT)
    ordering = bench.job("ingest of both topics", 2 * count, "ingest", "debits", "credits")
    took("ordering")
    querying = bench.job("the bank", 2 * count, "query", "bank.sql")
    took("querying")
    files = {name: work / f"{name}.ndjson" for name in OUTPUTS}
    rows = {name: dumped(stack.bootstrap, f"{topics['debits']}.{name}", file) for name, file in files.items()}
    verdict = judged(made, files, work)
    took("judging")
    assert verdict["moves"] == 2 * count, "every transfer is booked on both sides, once"
    figures = {"transfers": count, "accounts": ACCOUNTS, "results": rows, **verdict, "seconds": seconds}
    return {**figures, "ingest": ordering.figures(), "query": querying.figures()}


def main() -> int:
    """Run the bank; return the exit code: 1 if any sum was wrong at any instant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transfers", type=int, default=10_000_000)
    parser.add_argument("--partitions", type=int, default=4, help="of each raw topic")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--format", choices=["text", "json"], default="text")
    options = parser.parse_args()
    folder = Path(".tidegate/bank").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "job").mkdir(parents=True)
    with EmbeddedStack(folder / "stack") as stack:
        figures = run(stack, folder / "job", options)
        stack.stop(wipe=True)
    if options.format == "json":
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name}: {value}")
    return 1 if any(figures["wrong"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
