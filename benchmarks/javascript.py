"""
Functions in JavaScript: calls a second of one core, by whole columns as a query makes them, without reading and writing events.

Usage: python benchmarks/javascript.py [--rows 300000]

Time of the processor counts, and the best of five rounds: a busy machine only adds to a round.
"""

from __future__ import annotations

import argparse
import time

import pyarrow as pa

from query.javascript.functions import ARGUMENTS_MAX, ScriptFunction, register
from tidegate.language.expressions.functions import column_functions
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.variant import Variant

SCRIPTS = {
    "a number": "function main(a) { return a * 1.609344; }",
    "a number, with a constant outside": "const miles = 1.609344; function main(a) { return a * miles; }",
    "a text": "function main(a) { return parseInt(a, 16); }",
    "text to text": "function main(a) { return a.toUpperCase(); }",
    "a record": "function main(a) { return a.x + 1; }",
}


def main() -> None:
    """Print calls a second of each script."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=300_000)
    rows = parser.parse_args().rows
    numbers = Variant.of(rows, {Kind.FLOAT: pa.array([row * 1.1 for row in range(rows)])})
    texts = Variant.of(rows, {Kind.NVARCHAR: pa.array([f"{row:x}" for row in range(rows)])})
    records = Variant.of(rows, {Kind.RECORD: pa.array([f'{{"x":{row},"y":"text"}}' for row in range(rows)])})
    for name, source in SCRIPTS.items():
        function = ScriptFunction("udf.f", source, "main", 0, ARGUMENTS_MAX, (), "", 1.0, 2**26)
        register(function)
        column = records if name == "a record" else texts if "text" in name else numbers
        rule, best = column_functions.REGISTERED[function.registered].compute, float("inf")
        for _ in range(5):
            begin = time.process_time()
            _, failures = rule([column], rows)
            best = min(best, time.process_time() - begin)
            assert not failures
        print(f"{name:<36}{rows / best:>12,.0f} calls a second")


if __name__ == "__main__":
    main()
