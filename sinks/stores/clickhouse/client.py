"""
Statements to a ClickHouse server over its HTTP interface, and which of its errors may be repeated.

Law: an error whose kind is not known is repeated: it may last, but nothing is lost by it. User and password travel in headers only.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

import httpx2
import pyarrow as pa

from ordering.errors import UnreachableError
from ordering.ticks import SECOND_US
from sinks.stores.base import store_error
from sinks.stores.http_line import Answer, HttpLine, read_answer
from tidegate.settings.tables.stores.clickhouse import ClickHouseSettings

# Errors about values, by ClickHouse's numbers: text that is not a number, date or UUID, values out of range, NULL where none may be, an
# element that an Enum lacks, constraints, throwIf.
_ROW_CODES = {6, 27, 38, 41, 69, 70, 72, 117, 131, 321, 349, 376, 395, 407, 469, 691}
# What is not there, not allowed, not understood: tables, columns, functions, types, settings, users, rights, features.
_USER_CODES = {16, 36, 44, 46, 47, 48, 50, 56, 60, 62, 80, 81, 115, 164, 192, 193, 194, 344, 392, 452, 497, 516}
_CODE = re.compile(r"Code: (\d+)\. (?:DB::Exception: )?")
_VERSION = re.compile(r" \(version [^)]*\)$")
# What the profile of a user may have otherwise: results that are cut off or old, and sums over nothing that are NULL or missing.
_WHOLE = {
    "wait_end_of_query": "1",
    "use_query_cache": "0",
    **{f"{what}_overflow_mode": "throw" for what in ("timeout", "read", "set", "result")},
    "empty_result_for_aggregation_by_empty_set": "0",
    "aggregate_functions_null_for_empty": "0",
}
# What an insert needs to be one block, so that it stands as a whole in each partition of the table, once for its token.
_INSERT = {
    "async_insert": "0",
    "insert_deduplicate": "1",
    "insert_null_as_default": "0",
    "max_insert_threads": "1",
    "max_insert_block_size": str(2**40),
    "max_partitions_per_insert_block": "0",
    "min_insert_block_size_rows": str(2**40),
    "min_insert_block_size_bytes": "0",
}
_ARROW_END = b"\xff\xff\xff\xff\0\0\0\0"


class ValuesRefused(Exception):
    """The server does not take values of an insert; the text has its words."""


class ClickHouseClient:
    """The line to one server, for one thread; ``name`` is the server as messages call it."""

    def __init__(self, settings: ClickHouseSettings) -> None:
        self._line = HttpLine(settings, "clickhouse", "ClickHouse")
        self.name, self.close, self.error = self._line.name, self._line.close, self._line.error
        self._headers = {"x-clickhouse-user": settings.user, "content-type": "application/octet-stream"}
        if settings.password is not None:
            self._headers["x-clickhouse-key"] = settings.password.get_secret_value()
        self._insert = {**_INSERT, "max_execution_time": str(max(-(-settings.request_timeout_us // SECOND_US), 1))}

    def connect(self) -> None:
        """Make ready; nothing is sent yet. Raises StoreError: a certificate file cannot be used."""
        self._line.connect()

    def execute(self, statement: str, session: str = "") -> None:
        """Run a statement that gives no rows. Raises StoreError, UnreachableError."""
        with self._said_of_settings(), self._post(statement, b"", {"session_id": session} if session else {}) as response:
            response.read()

    def insert(self, statement: str, token: str = "", rows: pa.Table | None = None, session: str = "") -> None:
        """
        Run an INSERT, with *rows* as what its ``input()`` reads. The server drops what it adds to a partition of the table if it has seen
        *token* there. Raises ValuesRefused, StoreError, UnreachableError.
        """
        given = {"insert_deduplication_token": token, "session_id": session}
        with self._post(statement, _arrow(rows), {**self._insert, **{name: value for name, value in given.items() if value}}) as response:
            response.read()

    def ask(self, query: str) -> list[list[Any]]:
        """Return the rows of a query."""
        with self._said_of_settings(), self._post(f"{query} FORMAT JSONCompactEachRow", b"", {}) as response:
            return [json.loads(line) for line in response.read().splitlines()]

    def read(self, query: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query, piece by piece. Raises StoreError; UnreachableError, also within: the answer was cut off."""
        # The answer begins before its end is computed.
        with self._said_of_settings(), self._post(f"{query} FORMAT ArrowStream", b"", {"wait_end_of_query": "0"}) as response:
            pieces = _Pieces(response)
            try:
                yield from pa.ipc.open_stream(pa.PythonFile(pieces, "r"))
            except pa.ArrowException as error:
                raise self._cut_off(str(error)) from None
            if pieces.tail != _ARROW_END:
                raise self._cut_off("its end is missing")

    @contextlib.contextmanager
    def _post(self, statement: str, body: bytes, parameters: Mapping[str, str]) -> Iterator[httpx2.Response]:
        with self._line.post(body, self._headers, {"query": statement, **_WHOLE, **parameters}) as response:
            if response.status_code != 200:
                answer = read_answer(response)
                self._raise(answer)
            yield response

    def _raise(self, answer: Answer) -> None:
        code, words = code_of(answer), words_of(answer)
        if code in _ROW_CODES:
            raise ValuesRefused(words)
        if code in _USER_CODES:
            raise self.error(words, "give the user what it lacks, or correct the settings of this output")
        if code is None:
            # It does not speak for itself: whoever answers stands before it.
            self._line.judge(answer, time.time())
            raise self.error(answer.words, "set url to the HTTP interface of a ClickHouse server")
        raise store_error("ClickHouse", words, self.name, is_users=False)

    @contextlib.contextmanager
    def _said_of_settings(self) -> Iterator[None]:
        """Where no rows are sent, no rows are to blame."""
        try:
            yield
        except ValuesRefused as error:
            raise self.error(str(error), "correct the settings of this output, or the table") from None

    def _cut_off(self, words: str) -> UnreachableError:
        return UnreachableError(f"the answer of ClickHouse was cut off: {words}", code="TG-STORE-UNREACHABLE", where=self.name)


def code_of(answer: Answer) -> int | None:
    """Return the number of ClickHouse's error, if the answer has one."""
    header = answer.headers.get("x-clickhouse-exception-code", "")
    found = _CODE.search(answer.words)
    return int(header) if header.isdigit() else int(found[1]) if found else None


def words_of(answer: Answer) -> str:
    """Return what the server said, without the number of the error and of its version."""
    found = _CODE.search(answer.words)
    return _VERSION.sub("", answer.words[found.end() :] if found else answer.words)


class _Pieces(io.RawIOBase):
    """The body of an answer as a file; ``tail`` are its last bytes so far."""

    def __init__(self, response: httpx2.Response) -> None:
        self._pieces, self._rest, self.tail = response.iter_bytes(), b"", b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while size < 0 or len(self._rest) < size:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._rest += piece
            self.tail = (self.tail + piece)[-len(_ARROW_END) :]
        found, self._rest = (self._rest, b"") if size < 0 else (self._rest[:size], self._rest[size:])
        return found


def _arrow(rows: pa.Table | None) -> bytes:
    if rows is None:
        return b""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema) as stream:
        # As one piece: of a body that is cut off nothing can be read.
        stream.write_table(rows.combine_chunks())
    return bytes(out.getvalue().to_pybytes())
