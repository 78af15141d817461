"""
Nexmark's 24 queries as texts: Tidegate's, and those of DuckDB, which judges every row.

A query is written once for both layouts. With three topics it reads the inputs bid, auction and person; with one it reads steps that take
the members of a kind out of the topic, as the benchmark's own views do, with all their columns, whatever the query uses.
"""

from __future__ import annotations

import re
from pathlib import Path

from nexmark.generator import KINDS

HERE = Path(__file__).parent
FIELDS = {
    "person": dict.fromkeys(("name", "emailAddress", "creditCard", "city", "state", "extra"), "nvarchar(max)")
    | {"id": "bigint", "dateTime": "datetime"},
    "auction": dict.fromkeys(("id", "initialBid", "reserve", "seller", "category"), "bigint")
    | dict.fromkeys(("dateTime", "expires"), "datetime")
    | dict.fromkeys(("itemName", "description", "extra"), "nvarchar(max)"),
    "bid": dict.fromkeys(("auction", "bidder", "price"), "bigint")
    | dict.fromkeys(("channel", "url", "extra"), "nvarchar(max)")
    | {"dateTime": "datetime"},
}
"""Columns of each kind, typed as the benchmark declares them."""
TIMESTAMP_BY = {"one": "COALESCE(bid.dateTime, auction.dateTime, person.dateTime)", "three": "dateTime"}
_DAY = "TumblingWindow(Duration(day, 1), Offset(microsecond, -1))"
_RANKS = {"": "", "rank1_": "price < 10000", "rank2_": "price >= 10000 AND price < 1000000", "rank3_": "price >= 1000000"}
_STEPS = {"bid": "bids", "auction": "auctions", "person": "people", "arrived": "arrived"}
_ARRIVED = "arrived"


def texts(file: str) -> dict[str, str]:
    """Return the queries of a file by name: each begins below a line ``-- NAME: what it is``."""
    parts = re.split(r"^-- (q\d+): .*\n", (HERE / file).read_text("utf-8"), flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def script(name: str, layout: str) -> str:
    """Return a query of Tidegate's as a script over one topic or three."""
    text = texts("tidegate.sql")[name].replace("{day}", _DAY).replace("{ranks}", _asa_ranks())
    used = [source for source in _STEPS if f"{{{source}}}" in text]
    for source in used:
        three = "bid" if source == _ARRIVED else f"{source} TIMESTAMP BY {TIMESTAMP_BY['three']}"
        text = text.replace(f"{{{source}}}", three if layout == "three" else _STEPS[source])
    tables = ["nexmark"] if layout == "one" else sorted({_kind(source) for source in used})
    declared = "".join(f"CREATE TABLE {table} ({', '.join(_columns(table))});\n" for table in tables)
    if layout == "three":
        return declared + text + "\n"
    steps = ",\n".join(_step(source) for source in used)
    return declared + f"WITH {steps}" + (f",\n{text[5:]}" if text.startswith("WITH ") else f"\n{text}") + "\n"


def judged(name: str) -> str:
    """Return a query of DuckDB's."""
    return texts("duckdb.sql")[name].replace("{ranks}", _duck_ranks())


def reads_arrivals(name: str) -> bool:
    """Return whether a query asks when events came."""
    return f"{{{_ARRIVED}}}" in texts("tidegate.sql")[name]


def _kind(source: str) -> str:
    return "bid" if source == _ARRIVED else source


def _columns(table: str) -> list[str]:
    if table != "nexmark":
        return [f"{name} {kind}" for name, kind in FIELDS[table].items()]
    return ["event_type bigint", *(f"{kind}.{column}" for kind in KINDS for column in _columns(kind))]


def _step(source: str) -> str:
    kind = _kind(source)
    columns = ", ".join(f"{kind}.{name} AS {name}" for name in FIELDS[kind])
    timed = "" if source == _ARRIVED else f" TIMESTAMP BY {TIMESTAMP_BY['one']}"
    return f"{_STEPS[source]} AS (SELECT {columns} FROM nexmark{timed} WHERE event_type = {KINDS.index(kind)})"


def _asa_ranks() -> str:
    counted = [f"COUNT(CASE WHEN {when} THEN 1 END) AS {rank}bids" if when else "COUNT(*) AS total_bids" for rank, when in _RANKS.items()]
    for one in ("bidder", "auction"):
        for rank, when in _RANKS.items():
            counted.append(f"COUNT(DISTINCT {f'CASE WHEN {when} THEN {one} END' if when else one}) AS {rank or 'total_'}{one}s")
    return ",\n    ".join(counted)


def _duck_ranks() -> str:
    kept = {rank or "total_": f" FILTER ({when})" if when else "" for rank, when in _RANKS.items()}
    bids = [f"count(*){which} AS {rank}bids" for rank, which in kept.items()]
    others = [f"count(DISTINCT {one}){which} AS {rank}{one}s" for one in ("bidder", "auction") for rank, which in kept.items()]
    return ", ".join([*bids, *others])
