"""
Orders and payments, joined: a day of them is produced out of order, put in order, matched and priced by one Spark job, and copied into
PostgreSQL and Delta Lake; prices come from PostgreSQL. Both tables are checked against a plain computation, and verified.

Usage: python examples/orders/demo.py --postgres postgresql://me@localhost/shop [--orders N] [--folder .tidegate/orders] [--keep]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from confluent_kafka import Producer
from deltalake import DeltaTable

from tidegate.platform.kafka.admin import Admin
from tidegate.platform.stack.embedded import EmbeddedStack

HERE = Path(__file__).parent
PARTITIONS = 2
DAY = datetime(2025, 3, 1, tzinfo=UTC)
PRODUCTS = ("apples", "bread", "cheese", "dates")
NOON_S, DAY_S = 12 * 3600, 24 * 3600


class Order(NamedTuple):
    """An order, and when and how much was paid; times in seconds of the day."""

    id: int
    product: str
    quantity: int
    at_s: float
    payments: tuple[tuple[float, int], ...]


def main() -> int:
    """Run the example; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--postgres", required=True, help="URL of a database in which a schema orders_demo may be made")
    parser.add_argument("--orders", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, default=Path(".tidegate/orders"), help="where it works; it is emptied")
    parser.add_argument("--keep", action="store_true", help="leave Kafka and Valkey running")
    arguments = parser.parse_args()
    work = arguments.folder.resolve()
    stack = EmbeddedStack(work / "stack", with_password=True)
    stack.stop(wipe=True)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for name in ("tidegate.toml", "orders.sql"):
        shutil.copy(HERE / name, work)
    orders = list(draw_orders(arguments.orders))
    try:
        make_prices(arguments.postgres)
    except psycopg.OperationalError as error:
        parser.error(f"--postgres: {error}")
    stack.start(print)
    try:
        addresses = {"TIDEGATE_KAFKA__BOOTSTRAP": stack.bootstrap, "TIDEGATE_REDIS__URL": stack.redis_url}
        environment = {**os.environ, **addresses, "ORDERS_POSTGRES": arguments.postgres}
        send(orders, {"bootstrap.servers": stack.bootstrap})
        run(work, environment, "ingest", "orders", "payments", "--until-end")
        run(work, environment, "query", "orders.sql")
        is_right = check(orders, arguments.postgres, work)
        for name in ("paid", "revenue"):
            run(work, environment, "verify", name, "--query", "orders.sql")
    finally:
        if not arguments.keep:
            stack.stop()
    print(f"the tables are orders_demo.paid in PostgreSQL and {work / 'lake/revenue'}")
    return 0 if is_right else 1


def draw_orders(count: int) -> Iterator[Order]:
    """Yield orders of a day, always the same: most are paid in time, some too late or never, some twice."""
    dice = random.Random(1)
    for number in range(count):
        product, quantity = dice.choice(PRODUCTS), dice.randint(1, 9)
        at_s = dice.uniform(0, DAY_S - 3600)
        cents = quantity * price(product, at_s)
        delays_s = dice.choices(([delay := dice.expovariate(1 / 600)], [delay, delay + 60], [2400.0], []), (88, 2, 5, 5))[0]
        yield Order(number, product, quantity, at_s, tuple((at_s + 1 + delay_s, cents) for delay_s in delays_s))


def price(product: str, at_s: float) -> int:
    """Return what a product costs in cents: the price changes at noon."""
    return 100 * (PRODUCTS.index(product) + 1) + 50 * (at_s >= NOON_S)


def make_prices(url: str) -> None:
    """Fill the table of prices; each row says from when until when it is valid."""
    noon = DAY + timedelta(seconds=NOON_S)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS orders_demo CASCADE; CREATE SCHEMA orders_demo")
        connection.execute("CREATE TABLE orders_demo.prices (product text, cents int, begins timestamptz, ends timestamptz)")
        for product in PRODUCTS:
            for cents, begins, ends in ((price(product, 0), None, noon), (price(product, NOON_S), noon, None)):
                connection.execute("INSERT INTO orders_demo.prices VALUES (%s, %s, %s, %s)", [product, cents, begins, ends])


def send(orders: list[Order], kafka: dict[str, str]) -> None:
    """Produce both topics in the order of arrival: up to 20 seconds after the event time."""
    dice = random.Random(2)
    records: dict[str, list[tuple[float, dict[str, Any]]]] = {
        "orders": [(o.at_s, {"id": o.id, "product": o.product, "quantity": o.quantity}) for o in orders],
        "payments": [(at_s, {"id": o.id, "cents": cents}) for o in orders for at_s, cents in o.payments],
    }
    producer = Producer({**kafka, "enable.idempotence": True, "linger.ms": 20})
    for topic, events in records.items():
        Admin(kafka).create(topic, PARTITIONS, {"retention.ms": "-1"})
        arriving = sorted((at_s + dice.uniform(0, 20), at_s, fields) for at_s, fields in events)
        for arrival_s, at_s, fields in arriving:
            value = json.dumps({**fields, "at": moment(at_s).isoformat()}).encode()
            stamp_ms = int(moment(arrival_s).timestamp() * 1000)
            producer.produce(topic, value, str(fields["id"]).encode(), fields["id"] % PARTITIONS, timestamp=stamp_ms)
            producer.poll(0)
    assert producer.flush(60) == 0, "not all records were sent"


def moment(at_s: float) -> datetime:
    """Return a time of the day, in whole microseconds."""
    return DAY + timedelta(microseconds=round(at_s * 1e6))


def run(work: Path, environment: dict[str, str], *arguments: str) -> None:
    """Run a tidegate command; stop the example if it fails."""
    print(f"$ tidegate {' '.join(arguments)}", flush=True)
    subprocess.run([sys.executable, "-P", "-m", "tidegate", *arguments], cwd=work, env=environment, check=True)


def check(orders: list[Order], url: str, work: Path) -> bool:
    """Compare both tables with what follows from the orders, computed one by one."""
    paid: dict[int, tuple[Any, ...]] = {}
    revenue: dict[tuple[str, datetime], list[int]] = defaultdict(lambda: [0, 0])
    for order in orders:
        for at_s, cents in sorted(order.payments):
            # DATEDIFF counts the boundaries of minutes that lie between.
            if moment(at_s).timestamp() // 60 - moment(order.at_s).timestamp() // 60 > 30:
                continue
            due = order.quantity * price(order.product, at_s)
            paid[order.id] = (order.id, order.product, due, cents, moment(at_s))
            ends = DAY + timedelta(hours=-(-(moment(at_s) - DAY) // timedelta(hours=1)))
            revenue[order.product, ends][0] += 1
            revenue[order.product, ends][1] += due
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT id, product, due, paid, paid_at FROM orders_demo.paid ORDER BY id").fetchall()
    found = [tuple(row.values()) for row in DeltaTable(str(work / "lake/revenue")).to_pyarrow_table().to_pylist()]
    expected = [(product, ends, *sums) for (product, ends), sums in revenue.items()]
    are_right = rows == sorted(paid.values()), sorted(found) == sorted(expected)
    for name, count, is_right in zip(("paid", "revenue"), (len(rows), len(found)), are_right, strict=True):
        print(f"check {name}: {count:,} rows, {'as computed one by one' if is_right else 'NOT as computed one by one'}")
    return all(are_right)


if __name__ == "__main__":
    sys.exit(main())
