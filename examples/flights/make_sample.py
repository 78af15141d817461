"""
Make the committed sample out of the whole flights file (3 million US flights of 2001, see DATA.md).

Usage: python examples/flights/make_sample.py WHOLE.parquet [SAMPLE.parquet] - takes every flight scheduled in the
first week of January 2001, so lateness, earliness and disorder are as they were.
"""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb

WEEK_END = "2001-01-08"
HERE = Path(__file__).parent


def main(whole: str, sample: str = str(HERE / "flights.parquet")) -> None:
    """Write the sample and say how large it is."""
    connection = duckdb.connect(config={"threads": 1})
    chosen = connection.from_parquet(whole).filter(f"date < TIMESTAMP '{WEEK_END}'").order("date, origin, destination, delay, distance")
    chosen.write_parquet(sample, compression="zstd")
    flights = connection.from_parquet(sample).shape[0]
    print(f"{sample}: {flights:,} flights, {Path(sample).stat().st_size:,} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
