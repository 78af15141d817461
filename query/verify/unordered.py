"""
Compares rows without an order: a table holds them in any order, and no row says which result it is.

Standing and computed rows go into a database on disk, so memory does not grow with their number. A row is one line of text: a JSON object
with the columns in their order, as DuckDB's ``to_json`` writes them, times as ISO-8601 text.

Law: without a key, the rows are equal if each line stands as often as it was computed. With a key, they are equal if no key stands twice
and the line of each key is that of its first, or its last, result in a partition. The digest is SHA-256 over the lines in the order of
their bytes, each ended by a line feed.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints, Mask
from query.verify.rows import ResultRow, RowDifference

_MEMORY = "256MB"
_FETCHED_ROWS = 10_000
# Missing and extra rows that are searched for pairs that are one changed row, and differences that are shown.
_FETCHED_DIFFERENCES, _SHOWN = 200, 20
_TABLES = """
CREATE TABLE standing (key VARCHAR, line VARCHAR);
CREATE TABLE computed (key VARCHAR, line VARCHAR, part INTEGER, seq BIGINT, system_us BIGINT, record_key BLOB, optional BOOLEAN)
"""
# Without a key: lines that stand more often than they may (more > 0), or less often than they must.
_DIFFER = """
CREATE TEMP TABLE uneven AS
SELECT line, CASE WHEN stands > required + optional THEN stands - required - optional ELSE stands - required END AS more
FROM (
  SELECT line, sum(s)::BIGINT AS stands, sum(r)::BIGINT AS required, sum(o)::BIGINT AS optional
  FROM (
    SELECT line, 1 AS s, 0 AS r, 0 AS o FROM standing
    UNION ALL SELECT line, 0, (NOT optional)::INTEGER, optional::INTEGER FROM computed
  )
  GROUP BY line
) WHERE stands > required + optional OR stands < required;
CREATE TEMP TABLE missing AS
SELECT NULL AS key, line, arg_min(part, seq) AS part, min(seq) AS seq, arg_min(system_us, seq) AS system_us,
  arg_min(record_key, seq) AS record_key, -more AS times
FROM computed JOIN uneven USING (line) WHERE more < 0 GROUP BY line, more;
CREATE TEMP TABLE extra AS SELECT NULL AS key, line, more AS times FROM uneven WHERE more > 0
"""
# With a key. A candidate is a result that may have become the row of its key: in each partition the first or last result that the store has
# certainly taken, and every optional one that would have replaced it.
_DIFFER_BY_KEY = """
CREATE TEMP TABLE candidate AS SELECT * EXCLUDE (bound) FROM (
  SELECT *, {pick}(seq) FILTER (WHERE NOT optional) OVER (PARTITION BY key, part) AS bound FROM computed
) WHERE bound IS NULL OR seq {reaches} bound;
CREATE TEMP TABLE extra AS
SELECT key, line, 1 AS times FROM standing AS s WHERE NOT EXISTS (FROM candidate AS c WHERE c.key = s.key AND c.line = s.line)
UNION ALL SELECT key, any_value(line), count(*) - 1 FROM standing GROUP BY key HAVING count(*) > 1;
CREATE TEMP TABLE missing AS
SELECT key, arg_min(line, (optional, seq)) AS line, arg_min(part, (optional, seq)) AS part, arg_min(seq, (optional, seq)) AS seq,
  arg_min(system_us, (optional, seq)) AS system_us, arg_min(record_key, (optional, seq)) AS record_key, 1 AS times
FROM candidate AS c
WHERE key IN (SELECT key FROM extra) OR (NOT optional AND NOT EXISTS (FROM standing AS s WHERE s.key = c.key))
GROUP BY key
"""

Keeps = Literal["all", "first", "last"]


class _Missing(NamedTuple):
    key: str | None
    line: str
    part: int
    seq: int
    system_us: int
    record_key: bytes | None


class _Extra(NamedTuple):
    key: str | None
    line: str


class UnorderedRows:
    """
    The rows of one destination; they must be closed.

    Args:
        where: The destination's name in differences.
        key: The columns that identify a row.
        keeps: Whether all results with the same key are rows, or only the first one, or only the last one.
    """

    def __init__(self, where: str, key: Sequence[str] = (), keeps: Keeps = "all") -> None:
        self.where, self._key, self._keeps = where, tuple(key), keeps
        self.standing = self.computed = 0
        self._folder = tempfile.TemporaryDirectory(prefix="tidegate-verify-")
        self._database = duckdb.connect(str(Path(self._folder.name) / "rows"))
        self._database.execute(f"SET memory_limit = '{_MEMORY}'; SET threads = 1; SET preserve_insertion_order = false")
        self._database.execute(f"SET temp_directory = '{self._folder.name}'")
        self._database.execute(_TABLES)

    def close(self) -> None:
        """Delete the database."""
        self._database.close()
        self._folder.cleanup()

    def add_standing(self, rows: pa.Table) -> None:
        """Take the next standing rows."""
        self._insert("standing", rows, rows.column_names)
        self.standing += len(rows)

    def add_computed(
        self,
        rows: pa.Table,
        part: int,
        seq: Ints,
        system_us: Ints,
        key: pa.Array,
        optional: Mask | None = None,
    ) -> None:
        """Take the next computed rows, with the number, time and record key of each result; an *optional* one may stand or not."""
        is_optional = np.zeros(len(rows), dtype=bool) if optional is None else optional
        # In the order of the columns of table "computed"; the prefix keeps the names apart from those of the rows.
        known = {"part": np.full(len(rows), part), "seq": seq, "us": system_us, "key": key, "optional": is_optional}
        columns, known_columns = rows.column_names, [f"tidegate {name}" for name in known]
        for name, column in zip(known_columns, known.values(), strict=True):
            rows = rows.append_column(name, pa.array(column) if isinstance(column, np.ndarray) else column)
        self._insert("computed", rows, columns, known_columns)
        self.computed += len(rows)

    def sha256(self) -> bytes:
        """Return the digest of the standing rows."""
        digest = hashlib.sha256()
        for lines in self._database.sql("SELECT line || chr(10) FROM standing ORDER BY line").to_arrow_reader(_FETCHED_ROWS):
            digest.update("".join(lines.column(0).to_pylist()).encode())
        return digest.digest()

    def differences(self, *, is_shared: bool = False, expires: bool = False) -> tuple[int, list[RowDifference]]:
        """
        Return how many rows differ, and the first differences. *is_shared*: results of other topics may stand there too; *expires*: rows
        with a key may be gone.
        """
        pick, reaches = ("min", "<=") if self._keeps == "first" else ("max", ">=")
        self._database.execute(_DIFFER if self._keeps == "all" else _DIFFER_BY_KEY.format(pick=pick, reaches=reaches))
        if is_shared:
            self._database.execute("DELETE FROM extra WHERE key IS NULL OR key NOT IN (SELECT key FROM missing)")
        if expires:
            self._database.execute("DELETE FROM missing WHERE key NOT IN (SELECT key FROM standing)")
        counts = [self._database.execute(f"SELECT coalesce(sum(times), 0)::BIGINT FROM {kind}").fetchone() for kind in ("missing", "extra")]
        first = "SELECT key, line, part, seq, system_us, record_key FROM missing ORDER BY part, seq LIMIT"
        missing = [_Missing(*row) for row in self._database.execute(f"{first} {_FETCHED_DIFFERENCES}").fetchall()]
        extra = [
            _Extra(*row)
            for row in self._database.execute(f"SELECT key, line FROM extra ORDER BY line LIMIT {_FETCHED_DIFFERENCES}").fetchall()
        ]
        return max(count[0] for count in counts if count), list(self._pair(missing, extra))[:_SHOWN]

    def _insert(self, table: str, rows: pa.Table, columns: Sequence[str], known_columns: Sequence[str] = ()) -> None:
        if not len(rows):
            return
        values = [_object(self._key) if self._key else "NULL", _object(columns), *map(_quote, known_columns)]
        self._database.register("piece", _with_texts(rows))
        self._database.execute(f"INSERT INTO {table} SELECT {', '.join(values)} FROM piece")
        self._database.unregister("piece")

    def _pair(self, missing: Sequence[_Missing], extra: Sequence[_Extra]) -> Iterator[RowDifference]:
        """Yield the differences: a missing and an extra row with the same key, or with most values in common, are one changed row."""
        unpaired = list(extra)
        for result in missing:
            most_alike = max(unpaired, key=lambda row: _likeness(row, result), default=None)
            should = ResultRow(result.seq, result.system_us, result.record_key, result.line.encode())
            if most_alike is not None and _likeness(most_alike, result) >= 0.5:
                unpaired.remove(most_alike)
                yield RowDifference(self.where, result.part, -1, "changed", _standing_row(most_alike), should)
            else:
                yield RowDifference(self.where, result.part, -1, "missing", None, should)
        yield from (RowDifference(self.where, -1, -1, "extra", _standing_row(row), None) for row in unpaired)


def _standing_row(row: _Extra) -> ResultRow:
    return ResultRow(-1, 0, None, row.line.encode())


def _likeness(extra: _Extra, missing: _Missing) -> float:
    """Return how alike two rows are: 1 for the same key, else the share of their columns with equal values."""
    if extra.key is not None:
        return float(extra.key == missing.key)
    one, other = json.loads(extra.line), json.loads(missing.line)
    return float(sum(name in one and one[name] == value for name, value in other.items()) / max(len(other), 1))


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _object(columns: Sequence[str]) -> str:
    return f"to_json(struct_pack({', '.join(f'{_quote(name)} := {_quote(name)}' for name in columns)}))"


def _with_texts(rows: pa.Table) -> pa.Table:
    """Return rows with times as text: DuckDB would write them in the time zone of the machine."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            text = pc.replace_substring(rows.column(place).cast(pa.string()), " ", "T", max_replacements=1)
            rows = rows.set_column(place, field.name, text)
    return rows
