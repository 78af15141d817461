"""
Reads JSON records that orjson refuses, or reads in another way than ingest: repeated names, NaN, a comma too many, huge numbers.

Law: a record is JSON if :mod:`tidegate.language.expressions.json_texts` says so. Of members with equal names the first counts; NaN and
infinities are null.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ordering.protocol.keys import first_members, replace_non_numbers
from tidegate.language.expressions.duckdb_pool import run
from tidegate.language.expressions.json_texts import is_too_deep
from tidegate.records.files.blocks import Fault

# Python refuses to read an integer of more digits; as a float it is infinite anyway.
_DIGITS_MAX = 4_000


def read_records(lines: Sequence[bytes]) -> list[tuple[bytes, Any] | Fault]:
    """Return each record as JSON that every parser accepts, with its value; or the record's fault."""
    texts = pa.array([_decode(line) for line in lines], pa.string())
    sql = "SELECT CASE WHEN json_valid(v) THEN CAST(json(v) AS VARCHAR) END AS text FROM input"
    records: list[tuple[bytes, Any] | Fault] = []
    for line, text, compact in zip(lines, texts, run(sql, input=pa.table({"v": texts}))["text"].to_pylist(), strict=True):
        if not text.is_valid:
            records.append(Fault.ENCODING)
        elif compact is None or is_too_deep(line):
            records.append(Fault.JSON)
        else:
            strict = replace_non_numbers(compact)
            records.append((strict.encode(), read_value(strict)))
    return records


def read_value(text: str | bytes) -> Any:
    """Return the value of a record that is known to be JSON; of members with equal names the first counts."""
    return json.loads(text, object_pairs_hook=first_members, parse_int=_parse_integer)


def _parse_integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _DIGITS_MAX else float(digits)


def _decode(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None
