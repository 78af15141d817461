"""
Sends statements to a ClickHouse server over its HTTP interface, and classifies its errors.

Law: after an unknown error the call is repeated. That may last, but nothing is lost by it. User and password travel in headers only.
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
from sinks.stores.http_connection import Answer, HttpConnection, read_answer
from tidegate.platform.settings.tables.stores.clickhouse import ClickHouseSettings

# Errors about values, by ClickHouse's numbers: text that is not a number, date or UUID, values out of range, NULL where none may be, an
# element that an Enum lacks, constraints, throwIf.
_ROW_CODES = {6, 27, 38, 41, 69, 70, 72, 117, 131, 321, 349, 376, 395, 407, 469, 691}
# Errors about tables, columns, functions, types, settings, users, rights and features: missing, not allowed or not understood.
_USER_CODES = {16, 36, 44, 46, 47, 48, 50, 56, 60, 62, 80, 81, 115, 164, 192, 193, 194, 344, 392, 452, 497, 516}
# Memory, disk.
_FULL_CODES = {241, 243}
_CODE = re.compile(r"Code: (\d+)\. (?:DB::Exception: )?")
_VERSION = re.compile(r" \(version [^)]*\)$")
# Settings that a user's profile may change: with others, results could be cut off or old, and sums over no rows be NULL or missing.
_WHOLE = {
    "wait_end_of_query": "1",
    "use_query_cache": "0",
    **{f"{what}_overflow_mode": "throw" for what in ("timeout", "read", "set", "result")},
    "empty_result_for_aggregation_by_empty_set": "0",
    "aggregate_functions_null_for_empty": "0",
}
# With these settings an insert is one block: it is written whole into each partition of the table, once for its token.
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
    """The server does not take values of an insert; the text is its message."""


class ClickHouseClient:
    """The client of one server, for one thread; ``name`` is the server in messages."""

    def __init__(self, settings: ClickHouseSettings) -> None:
        self._connection = HttpConnection(settings, "clickhouse", "ClickHouse")
        self.name, self.close, self.error = self._connection.name, self._connection.close, self._connection.error
        self._headers = {"x-clickhouse-user": settings.user, "content-type": "application/octet-stream"}
        if settings.password is not None:
            self._headers["x-clickhouse-key"] = settings.password.get_secret_value()
        self._insert = {**_INSERT, "max_execution_time": str(max(-(-settings.request_timeout_us // SECOND_US), 1))}

    def connect(self) -> None:
        """Load the certificate files; nothing is sent yet. Raises StoreError: one cannot be used."""
        self._connection.connect()

    def execute(self, statement: str, session: str = "") -> None:
        """Run a statement that returns no rows. Raises StoreError, UnreachableError."""
        with self._without_rows(), self._post(statement, b"", {"session_id": session} if session else {}) as response:
            response.read()

    def insert(self, statement: str, token: str = "", rows: pa.Table | None = None, session: str = "") -> None:
        """
        Run an INSERT whose ``input()`` reads *rows*. In each partition of the table, the server drops the insert if it has seen *token*
        there. Raises ValuesRefused, StoreError, UnreachableError.
        """
        options = {"insert_deduplication_token": token, "session_id": session}
        parameters = {**self._insert, **{name: value for name, value in options.items() if value}}
        with self._post(statement, _arrow(rows), parameters) as response:
            response.read()

    def ask(self, query: str) -> list[list[Any]]:
        """Return the rows of a query."""
        with self._without_rows(), self._post(f"{query} FORMAT JSONCompactEachRow", b"", {}) as response:
            return [json.loads(line) for line in response.read().splitlines()]

    def read(self, query: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query, piece by piece. Raises StoreError; UnreachableError, also between pieces: the answer was cut off."""
        # The server sends the first rows before it has computed the last.
        with self._without_rows(), self._post(f"{query} FORMAT ArrowStream", b"", {"wait_end_of_query": "0"}) as response:
            pieces = _Pieces(response)
            try:
                yield from pa.ipc.open_stream(pa.PythonFile(pieces, "r"))
            except pa.ArrowException as error:
                raise self._cut_off(str(error)) from None
            if pieces.tail != _ARROW_END:
                raise self._cut_off("its end is missing")

    @contextlib.contextmanager
    def _post(self, statement: str, body: bytes, parameters: Mapping[str, str]) -> Iterator[httpx2.Response]:
        with self._connection.post(body, self._headers, {"query": statement, **_WHOLE, **parameters}) as response:
            if response.status_code != 200:
                answer = read_answer(response)
                self._raise(answer)
            yield response

    def _raise(self, answer: Answer) -> None:
        code, message = code_of(answer), message_of(answer)
        if code in _ROW_CODES:
            raise ValuesRefused(message)
        if code in _USER_CODES:
            raise self.error(message, "give the user what it lacks, or correct the settings of this output")
        if code is None:
            # The answer is not ClickHouse's: a proxy before it has answered.
            self._connection.judge(answer, time.time())
            raise self.error(answer.message, "set url to the HTTP interface of a ClickHouse server")
        raise store_error("ClickHouse", message, self.name, is_users=False, is_full=code in _FULL_CODES)

    @contextlib.contextmanager
    def _without_rows(self) -> Iterator[None]:
        """Raise an error about values as StoreError: in a statement without rows they can only come from settings or table."""
        try:
            yield
        except ValuesRefused as error:
            raise self.error(str(error), "correct the settings of this output, or the table") from None

    def _cut_off(self, message: str) -> UnreachableError:
        return UnreachableError(f"the answer of ClickHouse was cut off: {message}", code="TG-STORE-UNREACHABLE", where=self.name)


def code_of(answer: Answer) -> int | None:
    """Return the number of ClickHouse's error, if the answer has one."""
    header = answer.headers.get("x-clickhouse-exception-code", "")
    match = _CODE.search(answer.message)
    return int(header) if header.isdigit() else int(match[1]) if match else None


def message_of(answer: Answer) -> str:
    """Return the server's message without the numbers of the error and the version."""
    match = _CODE.search(answer.message)
    return _VERSION.sub("", answer.message[match.end() :] if match else answer.message)


class _Pieces(io.RawIOBase):
    """The body of an answer as a file; ``tail`` are the last bytes that were read."""

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
        taken, self._rest = (self._rest, b"") if size < 0 else (self._rest[:size], self._rest[size:])
        return taken


def _arrow(rows: pa.Table | None) -> bytes:
    if rows is None:
        return b""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema) as stream:
        # The rows are written as one piece, so that the server can read nothing of a body that is cut off.
        stream.write_table(rows.combine_chunks())
    return bytes(out.getvalue().to_pybytes())
