"""
What result files cost, beside the query that computes their results: python benchmarks/sheets.py [--events 400000] [--format json]

A whole bucket is fed with batches of 20,000 events of 1,000 devices and saved after each; every event gives a result, and a sheet has about
100,000. Figures are microseconds of CPU for each result: of the bucket (computing, retaining, saving), and of taking sheets from it and
making the bytes of their files. Beside them: pyarrow's writer alone, for the same columns, ready in memory.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import time
from typing import Any

import pyarrow.parquet
from retaining import BATCH, ROSTER, WEEK_US, Feed
from rich.console import Console
from rich.table import Table

from query.buckets.bucket import BucketConfig, SourceTopic
from query.buckets.merged import MergedBucket
from query.engine.program import Program
from query.sql.bind import bind_outputs
from sinks.files import FileSink
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script

SHEET_ROWS = 100_000
QUERY = "SELECT device, amount, id, earlier, System.Timestamp() AS at INTO out FROM bench"
FIELDS = {"device": "nvarchar(max)", "amount": "float", "id": "bigint", "earlier": "bigint"}
FORMATS = ("ndjson", "parquet", "parquet_json")


def figures_of(file_format: str, events: int, *, is_typed: bool) -> dict[str, Any]:
    """Run the query with one format of files; return what it cost."""
    schema = InputSchema("bench", fields=FIELDS) if is_typed else InputSchema("bench")
    plans = bind_outputs(parse_script(QUERY, "bench.sql"), [schema], into=None)
    span_us = WEEK_US * SHEET_ROWS // events
    bucket = MergedBucket(Program(plans), BucketConfig([SourceTopic("bench", 1, {0: 0})], 0, ROSTER, spans_us=[span_us]))
    feed = Feed(events)
    bucket_s = files_s = writer_s = 0.0
    results = saved = octets = 0
    with tempfile.TemporaryDirectory() as folder:
        sink = FileSink(folder, file_format, span_us, plans[0].columns)
        for start in range(0, events, BATCH):
            decoded = feed.batch(start)
            began_s = time.process_time()
            bucket.accept_records(0, decoded)
            released = bucket.settle() if start + BATCH < events else bucket.end()
            results += len(released[0])
            while not bucket.is_settled:
                results += len(bucket.settle()[0])
            bucket.next_ctis()
            computed_s = time.process_time()
            contents = [sink.content(sheet.start_us, 0, sheet.rows) for sheet in bucket.pop_sheets()]
            filed_s = time.process_time()
            saved += sum(map(len, bucket.save().put.values()))
            bucket_s += computed_s - began_s + time.process_time() - filed_s
            files_s += filed_s - computed_s
            octets += sum(map(len, contents))
            for content in contents if file_format != "ndjson" else ():
                table = pyarrow.parquet.read_table(io.BytesIO(content))
                began_s = time.process_time()
                pyarrow.parquet.write_table(table, io.BytesIO(), compression="zstd", compression_level=3)
                writer_s += time.process_time() - began_s
    named = {"bucket_us": bucket_s, "files_us": files_s, "writer_us": writer_s}
    figures = {name: round(seconds * 1e6 / results, 3) for name, seconds in named.items()}
    return {"format": file_format, "typed": is_typed, **figures, "saved_bytes": round(saved / results, 1), "file_bytes": octets}


def main() -> None:
    """Measure every format, with declared types and without."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--format", choices=["text", "json"], default="text")
    options = parser.parse_args()
    found = [figures_of(kind, options.events, is_typed=is_typed) for is_typed in (True, False) for kind in FORMATS]
    if options.format == "json":
        print(json.dumps(found))
        return
    table = Table(*found[0])
    for figures in found:
        table.add_row(*map(str, figures.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
