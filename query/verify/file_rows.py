"""
Compares result files with the computed sheets.

Law: a file must have the bytes that the sink makes of its sheet. A Parquet file that another version of pyarrow has written must have the
same rows. The file of a sheet is missing if later sheets of its partition have files, or if a CTI of the output's topic says that the sheet
is written. A file without a sheet is extra. The digest of a partition is SHA-256 over, for each file in the order of time, the length of
its path in the folder (32 bits), the path, its size (64 bits) and its bytes; numbers little-endian.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow.parquet

from ordering.ticks import INFINITY, NEVER
from query.buckets.result_channel import Sheet
from query.verify.rows import ROWS_FROM_DIFFERENCE, ResultRow, RowDifference, kind_of_difference
from sinks.file_places import FilePlace, absolute_place, open_place
from sinks.files import FileSink
from tidegate.platform.settings.tables.outputs import OutputSettings
from tidegate.records.result_columns import Column


@dataclass(slots=True)
class FileDigest:
    """The digest of one partition's files, in the order of time; ``first`` is the name of the first of them, without folders."""

    files: int = 0
    first: str = ""
    _hash: Any = field(default_factory=hashlib.sha256)

    def add(self, name: str, content: bytes) -> None:
        self.first = self.first or _base_name(name)
        self.files += 1
        self._hash.update(len(name.encode()).to_bytes(4, "little") + name.encode() + len(content).to_bytes(8, "little"))
        self._hash.update(content)

    @property
    def sha256(self) -> bytes:
        return bytes(self._hash.digest())


@dataclass(slots=True)
class _Partition:
    digest: FileDigest
    rows: int = 0
    # Sheets without a file: the start of the span, the file's name and the first row.
    absent: list[tuple[int, str, ResultRow]] = field(default_factory=list)
    # The start of the last sheet that has a file, microseconds.
    last_us: int = NEVER


class FilesCheck:
    """
    The files of one output, compared as their sheets are computed.

    Args:
        listed: The files in the output's folder (:func:`list_files`), listed before the ends of the topics were read.
        since_us, until_us: Only whole spans between these instants are compared, microseconds; None: no limit.
    """

    def __init__(
        self, output: OutputSettings, columns: Sequence[Column], listed: set[str], since_us: int | None, until_us: int | None
    ) -> None:
        assert output.files is not None, "the output has files"
        self.folder, self._span_us = output.files, output.file_span_us
        self._output = output
        self.use_columns(columns)
        self._is_parquet = output.file_format != "ndjson"
        self._from_us = NEVER if since_us is None else since_us
        self._until_us = INFINITY if until_us is None else until_us
        self._unmatched = listed
        self.partitions: dict[int, _Partition] = {}
        self.differences: list[RowDifference] = []
        # Sheets whose files need not be there yet.
        self.ahead = 0
        # Parquet files with the computed rows and other bytes: another version of pyarrow wrote them.
        self.rewritten = 0

    def use_columns(self, columns: Sequence[Column]) -> None:
        """Go on to the sheets of a query with these columns."""
        output = self._output
        self._sink = FileSink(self.folder, output.file_format, output.file_span_us, columns, by_date=output.file_folders == "date")

    @property
    def is_partial(self) -> bool:
        """Whether only a part of the results is computed, so that a file without a sheet is no difference."""
        return self._from_us > NEVER or self._until_us < INFINITY

    @property
    def rows(self) -> int:
        return sum(partition.rows for partition in self.partitions.values())

    def accept_sheets(self, number: int, sheets: Sequence[Sheet]) -> None:
        """Compare the next sheets of a partition."""
        partition = self.partitions.setdefault(number, _Partition(FileDigest()))
        for sheet in sheets:
            name = self._sink.name(sheet.start_us, number)
            self._unmatched.discard(name)
            if sheet.start_us < self._from_us or sheet.start_us + self._span_us > self._until_us:
                continue
            content = self._sink.content(sheet.start_us, number, sheet.rows)
            try:
                standing = self._sink.place.read(name)
            except FileNotFoundError:
                partition.absent.append((sheet.start_us, name, ResultRow(0, *sheet.rows[0])))
                continue
            partition.last_us = sheet.start_us
            where = self._sink.place.where(name)
            if standing != content:
                self._compare(number, where, standing, content, sheet)
            if not any(difference.where == where for difference in self.differences):
                partition.digest.add(name, standing)
                partition.rows += len(sheet.rows)

    def finish(self, promised_us: dict[int, int]) -> None:
        """Find missing and extra files. *promised_us*: by partition, the instant before which every sheet is published, microseconds."""
        for number, partition in sorted(self.partitions.items()):
            for start_us, name, row in partition.absent:
                if start_us < partition.last_us or start_us + self._span_us <= promised_us.get(number, NEVER):
                    where = self._sink.place.where(name)
                    self.differences.append(RowDifference(where, number, partition.rows, "missing", None, row, "the file is missing"))
                else:
                    self.ahead += 1
        for where in map(self._sink.place.where, sorted(self._unmatched) if not self.is_partial else ()):
            self.differences.append(RowDifference(where, -1, 0, "extra", None, None, "no results belong into this file"))
        self.differences.sort(key=lambda difference: difference.where)

    def _compare(self, number: int, where: str, standing_bytes: bytes, computed_bytes: bytes, sheet: Sheet) -> None:
        read: Callable[[bytes], list[bytes]] = _parquet_rows if self._is_parquet else bytes.splitlines
        try:
            standing, computed = read(standing_bytes), read(computed_bytes)
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            self.differences.append(RowDifference(where, number, 0, "changed", None, None, f"the file cannot be read: {error}"))
            return
        pairs = enumerate(zip(standing, computed, strict=False))
        index = next((index for index, (one, other) in pairs if one != other), min(len(standing), len(computed)))
        if index == len(standing) == len(computed):
            self._note_same_rows(number, where)
            return
        from_difference = (values[index : index + ROWS_FROM_DIFFERENCE] for values in (standing, computed))
        kind = kind_of_difference(*([ResultRow(index, sheet.start_us, None, value) for value in values] for values in from_difference))
        should = None if kind == "extra" or index >= len(sheet.rows) else ResultRow(index, *sheet.rows[index][:2], computed[index])
        stands = None if kind == "missing" else ResultRow(index, sheet.start_us, None, standing[index], f"{where}, row {index + 1}")
        self.differences.append(RowDifference(where, number, index, kind, stands, should))

    def _note_same_rows(self, number: int, where: str) -> None:
        if self._is_parquet:
            self.rewritten += 1
        else:
            text = "the file has the rows, but other bytes between them"
            self.differences.append(RowDifference(where, number, 0, "header", None, None, text))


def list_files(place: str) -> set[str]:
    """Return the names of the finished files in a folder or object store of results."""
    return set(open_place(absolute_place(place)).names())


def files_of_partition(place: FilePlace, number: int, first: str) -> list[str]:
    """Return the names of a partition's files in the order of time, from the file named *first* on."""
    names = [name for name in place.names() if f".p{number:05d}." in name and _base_name(name) >= first]
    return sorted(names, key=_base_name)


def _base_name(name: str) -> str:
    return name.rpartition("/")[2]


def _parquet_rows(data: bytes) -> list[bytes]:
    table = pyarrow.parquet.read_table(io.BytesIO(data))
    return [json.dumps(row, default=str, ensure_ascii=False).encode() for row in table.to_pylist()]
