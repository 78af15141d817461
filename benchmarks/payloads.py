"""
Fields out of payloads: CPU seconds per million records of each shape and format, and its ratio to flat JSON in the same run.

Usage: make bench-payloads, or python benchmarks/payloads.py [--records 400000] [--format json]

Every shape holds the same bid. A query's reader takes the fields that the row names, ingest's reader an event time and a key. The best
of three rounds counts: a busy machine only adds to a round.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from tidegate.language.expressions.tree import Field
from tidegate.records.fields import FieldReader
from tidegate.records.payloads.formats import JSON, PayloadFormat, reader_of

BATCH = 20_000
_ROUNDS = 3
_FIRST_MS = 1_700_000_000_000
_WIDE_MEMBERS = 60
_BID = ("auction", "bidder", "price", "channel", "url", "dateTime", "extra")
_AVRO_SCHEMA = {
    "type": "record",
    "name": "bid",
    "fields": [
        *({"name": name, "type": "long"} for name in ("auction", "bidder", "price")),
        {"name": "channel", "type": "string"},
        {"name": "url", "type": "string"},
        {"name": "dateTime", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "extra", "type": "string"},
    ],
}

Members = Mapping[str, Any]


def bids(count: int) -> list[dict[str, Any]]:
    """Return bids as the Nexmark benchmark has them."""
    random = Random(1)
    return [
        {
            "auction": random.randrange(1_000, 9_000),
            "bidder": random.randrange(1_000, 9_000),
            "price": random.randrange(100, 100_000_000),
            "channel": random.choice(["Google", "Facebook", "Baidu", "Apple", f"channel-{random.randrange(9_999)}"]),
            "url": f"https://www.nexmark.example/{random.randrange(16**9):x}/item.htm?query=1&channel_id={random.randrange(2**30)}",
            "dateTime": _FIRST_MS + number,
            "extra": "".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=40)),
        }
        for number in range(count)
    ]


def one_topic(bid: Members, number: int) -> dict[str, Any]:
    """Return an event of a topic that holds persons, auctions and bids, of 50 events one and three and 46."""
    if number % 50 == 0:
        person = {
            "id": number,
            "name": "walter jones",
            "emailAddress": "a@b.com",
            "city": "Kent",
            "state": "WA",
            "dateTime": bid["dateTime"],
        }
        return {"event_type": 0, "person": person, "auction": None, "bid": None}
    if number % 50 < 4:
        auction = {
            "id": number,
            "itemName": "pc",
            "initialBid": 7,
            "dateTime": bid["dateTime"],
            "expires": bid["dateTime"] + 9,
            "seller": 1,
        }
        return {"event_type": 1, "person": None, "auction": auction, "bid": None}
    return {"event_type": 2, "person": None, "auction": None, "bid": bid}


def wide(bid: Members) -> dict[str, Any]:
    """Return a flat record of many members, those of the bid among them."""
    names = [f"measurement_{number:02}" for number in range(_WIDE_MEMBERS - len(bid))]
    return {**dict.fromkeys(names[:20], 17), **bid, **dict.fromkeys(names[20:40], "on"), **dict.fromkeys(names[40:], 0.25)}


def _texts(values: Sequence[Members]) -> pa.Array:
    return pa.array([json.dumps(value, separators=(",", ":")).encode() for value in values], pa.binary())


def _avro(values: Sequence[Members]) -> pa.Array:
    schema, payloads = fastavro.parse_schema(_AVRO_SCHEMA), []
    for value in values:
        buffer = BytesIO()
        fastavro.schemaless_writer(buffer, schema, value)
        payloads.append(buffer.getvalue())
    return pa.array(payloads, pa.binary())


Case = tuple[str, int, Callable[[], object]]


def cases() -> list[Case]:
    """Return what is measured: its name, how many fields it takes, and one call over a batch."""
    values = bids(BATCH)
    flat, spaced = _texts(values), pa.array([json.dumps(value).encode() for value in values], pa.binary())
    nested, deep = _texts([{"bid": value} for value in values]), _texts([{"a": {"b": {"bid": value}}} for value in values])
    events = _texts([one_topic(value, number) for number, value in enumerate(values)])
    floats = _texts([{**value, "price": value["price"] / 7, "bidder": value["bidder"] / 3} for value in values])
    escaped = _texts([{**value, "channel": value["channel"] + '\n"é', "url": "/" + value["extra"] + "é"} for value in values])
    three = ("auction", "price", "dateTime")
    flink = ("bid.auction", "bid.price", "bid.dateTime")
    whole = tuple(wide(values[0]))
    csv = PayloadFormat("csv", csv_columns=_BID)
    lines = pa.array([",".join(str(value[name]) for name in _BID).encode() for value in values], pa.binary())
    quoted = pa.array(
        [b'"%s",' % value["channel"].encode() + line for value, line in zip(values, lines.to_pylist(), strict=True)], pa.binary()
    )
    avro = PayloadFormat("avro", avro_schema=json.dumps(_AVRO_SCHEMA))
    return [
        _query("flat", JSON, flat, three),
        _query("flat, with spaces", JSON, spaced, three),
        _query("flat, floats of 17 digits", JSON, floats, ("bidder", "price", "dateTime")),
        _query("flat, escaped text", JSON, escaped, ("channel", "url", "dateTime")),
        _query("flat, names in other letters", JSON, flat, ("Auction", "PRICE", "datetime")),
        _query("nested", JSON, nested, flink),
        _query("nested three deep", JSON, deep, tuple(f"a.b.{path}" for path in flink)),
        _query("absent members", JSON, flat, ("seller", "expires", "itemName")),
        _query("absent branch", JSON, nested, ("person.id", "auction.dateTime", "auction.seller")),
        _query("Nexmark's one topic: bids", JSON, events, flink),
        _query("Nexmark's one topic: persons", JSON, events, ("person.id", "person.name", "person.dateTime")),
        _query(
            "Nexmark's one topic: all",
            JSON,
            events,
            (*flink, "event_type", "person.id", "person.dateTime", "auction.id", "auction.dateTime"),
        ),
        _query("a record whole", JSON, nested, ("bid",)),
        _query("wide, 3 of 60", JSON, _texts([wide(value) for value in values]), three),
        _query("wide, 60 of 60", JSON, _texts([wide(value) for value in values]), whole),
        _query("CSV", csv, lines, three),
        _query("CSV, quoted", PayloadFormat("csv", csv_columns=("name", *_BID)), quoted, three),
        _query("Avro", avro, _avro(values), three),
        _ingest("ingest: flat", flat, "dateTime", "bidder"),
        _ingest("ingest: nested", nested, "bid.dateTime", "bid.bidder"),
        _ingest("ingest: Nexmark's one topic", events, "COALESCE(bid.dateTime, auction.dateTime, person.dateTime)", "bid.bidder"),
        _ingest("ingest: CSV", lines, "dateTime", "bidder", csv),
        _ingest("ingest: Avro", _avro(values), "dateTime", "bidder", avro),
    ]


def _query(name: str, payload_format: PayloadFormat, payloads: pa.Array, paths: Sequence[str]) -> Case:
    fields, reader = [Field(tuple(path.split("."))) for path in paths], reader_of(payload_format)
    return name, len(fields), lambda: reader.extract(payloads, fields)


def _ingest(name: str, payloads: pa.Array, timestamp_by: str, over: str, payload_format: PayloadFormat = JSON) -> Case:
    reader = FieldReader(timestamp_by, "auto", over, payloads=payload_format)
    return name, 2, lambda: reader.read(payloads)


def measure(records: int, only: str) -> list[dict[str, Any]]:
    """Return a row for each case whose name holds *only*: CPU seconds per million records, and as a multiple of the first case."""
    rows: list[dict[str, Any]] = []
    for name, fields, call in cases():
        if rows and only not in name:
            continue
        call()
        rounds = [_cpu_s(call, max(records // BATCH // _ROUNDS, 1)) for _ in range(_ROUNDS)]
        cost = min(rounds) * 1e6 / BATCH
        first = rows[0]["cpu_s_per_million"] if rows else cost
        rows.append({"case": name, "fields": fields, "cpu_s_per_million": round(cost, 3), "times_flat": round(cost / first, 2)})
    return rows


def _cpu_s(call: Callable[[], object], times: int) -> float:
    before = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - before) / times


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--only", default="", help="measure the first case and those whose name holds this text")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    arguments = parser.parse_args()
    rows = measure(arguments.records, arguments.only)
    if arguments.format == "json":
        print(json.dumps(rows))
        return
    table = Table("payloads", "fields", "CPU s per million", "times flat")
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
