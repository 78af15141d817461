"""
Results beside results: what a peer found of what Tidegate found, by key and window, or by the events that made them.

Law: a result is named by its columns of :data:`NAMED`; two of a name are equal if there are as many of it on both sides and
their other columns are equal, sums but for the last digits (the order of addition is each engine's own).
"""

from __future__ import annotations

import io
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq
from filling import FIRST_ARRIVAL_MS

from tidegate.platform.kafka.admin import Admin
from tidegate.platform.kafka.ranges import RangeReader
from tidegate.platform.kafka.records import Records

_TEXT, _WHOLE, _FLOAT = pa.string(), pa.int64(), pa.float64()
COLUMNS = {
    "tumbling": pa.schema({"device": _TEXT, "window_end": _WHOLE, "n": _WHOLE, "total": _FLOAT}),
    "hopping": pa.schema({"device": _TEXT, "window_end": _WHOLE, "n": _WHOLE}),
    "join": pa.schema({"device": _TEXT, "at": _WHOLE, "followed": _WHOLE, "value": _FLOAT, "following": _FLOAT}),
    "lag": pa.schema({"device": _TEXT, "ts": _WHOLE, "value": _FLOAT, "before": _FLOAT}),
}
"""What the results of a query hold."""
NAMED = {
    "tumbling": ["device", "window_end"],
    "hopping": ["device", "window_end"],
    "join": COLUMNS["join"].names,
    "lag": ["device", "ts", "value"],
}
_WINDOW_END = COLUMNS["hopping"].get_field_index("window_end")
FOUND = "equal", "different", "missing", "missing_at_end", "only_here", "events_lost"
"""What a comparison tells."""
_END_MS, _WHOLE_MS = 15_000, 10_000


def gather(bootstrap: str, topic: str, partitions: int, query: str, file: Path) -> int:
    """Write the results in a topic, Tidegate's or a peer's, into a Parquet file; return how many they are."""
    properties, schema, count = {"bootstrap.servers": bootstrap}, COLUMNS[query], 0
    places = [(topic, partition) for partition in range(partitions)]
    admin = Admin(properties)
    starts, ends = admin.starts(places), admin.ends(places)
    with pq.ParquetWriter(file, schema) as writer:
        for place in places:
            for records in RangeReader(properties, *place, headers=True).read(starts[place], ends[place]):
                found = _parsed(records, schema)
                count += found.num_rows
                writer.write_table(found)
    return count


def _parsed(records: Records, schema: pa.Schema) -> pa.Table:
    """Read results; CTIs, which only Tidegate's topic has, are the records without a key."""
    results = records.select(records.key.is_valid().to_numpy(zero_copy_only=False))
    if not len(results):
        return schema.empty_table()
    lines = io.BytesIO(b"\n".join(results.value.to_pylist()))
    parsed = pj.read_json(lines, parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"))
    if "window_end" in schema.names and parsed["window_end"].null_count == parsed.num_rows:
        # A result of Tidegate has its window's end as its record's timestamp.
        parsed = parsed.set_column(_WINDOW_END, "window_end", pa.array(results.timestamp_ms))
    return parsed.select(schema.names)


def closed_until(events: int) -> int:
    """
    Return the end of the last window that all engines close, in milliseconds since 1970.

    Windows that end in the last 15 s of the events, or after them, wait in some engines for an event that closes them.
    """
    return (FIRST_ARRIVAL_MS + events - _END_MS) // _WHOLE_MS * _WHOLE_MS


def compare(query: str, expected: Path, found: Path, closed_ms: int, scratch: Path, due: int | None = None) -> dict[str, int]:
    """
    Return how many results are equal, different, missing, missing at the end, or there with the peer only.

    Of tumbling windows, which have every event once, also how many events those that end until *closed_ms* do not have.

    Args:
        query: Of which query they are.
        expected: Tidegate's results.
        found: The peer's.
        closed_ms: Windows that end later may be open still, and are counted apart, see :func:`closed_until`.
        scratch: A folder for what does not fit into memory.
        due: How many events are due in windows until *closed_ms*; None: as many as Tidegate's have.
    """
    connection = duckdb.connect(config={"memory_limit": "4GB", "temp_directory": str(scratch), "threads": 2})
    connection.execute("SET enable_progress_bar = false")
    named = NAMED[query]
    values = [name for name in COLUMNS[query].names if name not in named]
    columns = ", ".join([*(f'"{name}"' for name in named), "count(*) AS times", *(f'max("{name}") AS "{name}"' for name in values)])
    names = ", ".join(f'"{name}"' for name in named)
    sides = [f"(SELECT {columns} FROM read_parquet('{file}') GROUP BY {names})" for file in (expected, found)]
    same = " AND ".join(["e.times = f.times", *(_same(name) for name in values)])
    at_end = f"e.window_end > {closed_ms}" if "window_end" in named else "false"
    until = f"FILTER (WHERE coalesce(e.window_end, f.window_end) <= {closed_ms})"
    all_due = f"coalesce(sum(e.n) {until}, 0)" if due is None else str(due)
    lost = f"{all_due} - coalesce(sum(f.n) {until}, 0)" if query == "tumbling" else "NULL"
    row = connection.execute(
        f"""SELECT count(*) FILTER (WHERE f.times IS NOT NULL AND e.times IS NOT NULL AND {same}),
               count(*) FILTER (WHERE f.times IS NOT NULL AND e.times IS NOT NULL AND NOT ({same})),
               count(*) FILTER (WHERE f.times IS NULL AND NOT {at_end}),
               count(*) FILTER (WHERE f.times IS NULL AND {at_end}),
               count(*) FILTER (WHERE e.times IS NULL),
               {lost}
            FROM {sides[0]} e FULL JOIN {sides[1]} f ON {" AND ".join(f'e."{name}" = f."{name}"' for name in named)}"""
    ).fetchone()
    assert row is not None
    return {name: int(count) for name, count in zip(FOUND, row, strict=True) if count is not None}


def _same(name: str) -> str:
    if name == "total":
        return "abs(e.total - f.total) <= 1e-9 * greatest(abs(e.total), 1)"
    return f'e."{name}" IS NOT DISTINCT FROM f."{name}"'
