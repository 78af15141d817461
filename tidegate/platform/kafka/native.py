"""
The Python side of ``native.c``: reads and writes Kafka by whole columns, through the librdkafka that comes with confluent-kafka.

Law: the same records are read and written without it. If ``native.c`` is not compiled or finds no librdkafka, or if
``kafka.native = "off"``, readers and writers use confluent-kafka's message objects (:mod:`tidegate.platform.kafka.messages`), which are
slower.
"""

from __future__ import annotations

import atexit
import ctypes
import ctypes.util
import os
import weakref
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError

from ordering.columns.framed_payloads import Headers
from ordering.columns.payload_columns import Payload, to_arrow
from ordering.errors import TidegateError, UnreachableError
from tidegate.basics import native_parts
from tidegate.platform.kafka.records import ALL_HEADERS, OWN_HEADERS, UNASSIGNED, Columns, Fetched, Framed, Records
from tidegate.platform.observe.logs import get_logger

_COLUMNS = 4
_TEXT_BYTES = 512

_log = get_logger("kafka")


_p, _i32, _i64, _text = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_char_p
_texts = ctypes.POINTER(ctypes.c_char_p)
_int = ctypes.c_int


class _ReadColumn(ctypes.Structure):
    """``column`` of ``tg_piece``: an Arrow column that was read."""

    _fields_ = [("ends", _p), ("valid", _p), ("bytes", _p), ("nulls", _i64), ("size", _i64)]


class _Piece(ctypes.Structure):
    """``tg_piece``."""

    _fields_ = [
        ("rows", _i64),
        ("block", _p),
        ("offset", _p),
        ("timestamp_ms", _p),
        ("column", _ReadColumn * _COLUMNS),
        ("beyond", _i32),
        ("error", _i32),
        ("error_offset", _i64),
        ("ended_at", _i64),
        ("text", ctypes.c_char * _TEXT_BYTES),
    ]


class _WrittenColumn(ctypes.Structure):
    """``tg_column``: an Arrow column to write."""

    _fields_ = [("bytes", _p), ("valid", _p), ("ends", _p), ("first", _i64), ("wide", _i32)]


@cache
def load_library() -> ctypes.CDLL | None:
    """Return the compiled ``native.c`` with librdkafka opened, or None, which is logged; each process tries once."""
    compiled = next(iter(sorted(Path(__file__).parent.glob("_native*.so"))), None)
    if compiled is None:
        _log.info("reading and writing Kafka record by record: the native part was not compiled", fix="install where there is a C compiler")
        return None
    try:
        return _open_library(compiled)
    except OSError as cause:
        _log.warning("reading and writing Kafka record by record: the native part cannot be used", reason=str(cause))
        return None


def usable_library() -> ctypes.CDLL | None:
    """Return the native part if it is enabled and available."""
    return load_library() if native_parts.is_enabled() else None


def _open_library(compiled: Path) -> ctypes.CDLL:
    native = ctypes.CDLL(str(compiled))
    if native_parts.is_stale(native, compiled.parent):
        raise OSError("it was compiled from other sources; run: make install")
    native_parts.declare(native, _SIGNATURES)
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    if native.tg_open(_librdkafka().encode(), text):
        raise OSError(f"librdkafka: {text.value.decode(errors='replace')}")
    return native


def _librdkafka() -> str:
    """Return the path of confluent_kafka's bundled librdkafka, else the system's."""
    import confluent_kafka

    beside = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    bundled = sorted(beside.glob("librdkafka*.so*"))
    return str(bundled[0]) if bundled else ctypes.util.find_library("rdkafka") or "librdkafka.so.1"


_SIGNATURES: native_parts.Signatures = {
    "tg_open": (_int, [_text, _text]),
    "tg_free": (None, [_p]),
    "tg_source_new": (_p, [_texts, _texts, _int, _text]),
    "tg_source_close": (None, [_p]),
    "tg_source_wait": (None, [_p, _int, _int]),
    "tg_consumer_new": (_p, [_p, _text, _i32, _i64, _text, _text, _texts, _int, _text]),
    "tg_consumer_close": (None, [_p]),
    "tg_assign": (_int, [_p, _i64]),
    "tg_take": (_int, [_p, _i64, _i64, _i64, _int, _int, ctypes.POINTER(_Piece)]),
    "tg_producer_new": (_p, [_texts, _texts, _int, _text]),
    "tg_producer_close": (None, [_p]),
    "tg_poll": (_int, [_p, _int]),
    "tg_send": (
        _i64,
        [_p, _text, ctypes.POINTER(_WrittenColumn), ctypes.POINTER(_WrittenColumn), _p, _p, _text, _p, _i64, _int, _i64, _i64],
    ),
    "tg_send_one": (_int, [_p, _text, _text, _i64, _text, _i64, _i32, _i64, _texts, _texts, ctypes.POINTER(_i64), _int]),
    "tg_flush": (_int, [_p, _int]),
    "tg_error": (_int, [_p]),
    "tg_error_text": (_text, [_p]),
}

_open_clients: weakref.WeakSet[_Client] = weakref.WeakSet()


class _Client:
    """A librdkafka client. It is closed once, at the latest when the process ends, because its threads must not outlive it."""

    def __init__(self, native: ctypes.CDLL, make: Callable[..., int | None], close: Callable[[int], None]) -> None:
        self._native, self._close, self._process = native, close, os.getpid()
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        self._handle = make(text)
        if not self._handle:
            what = f"no Kafka client can be made: {text.value.decode(errors='replace')}"
            raise TidegateError(what, code="TG-KAFKA", where="kafka.client", fix="correct the properties in [kafka.client]")
        _open_clients.add(self)

    @property
    def _open(self) -> int:
        assert self._handle, "a closed client is not used"
        return self._handle

    def close(self) -> None:
        handle, self._handle = self._handle, None
        # A forked child has none of the client's threads, so closing could wait for them for ever.
        if handle and self._process == os.getpid():
            self._close(handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()


@atexit.register
def _close_all() -> None:
    for client in list(_open_clients):
        client.close()


def _c_properties(properties: Mapping[str, str]) -> tuple[Any, Any, int]:
    names, values = (_c_array(ctypes.c_char_p, [text.encode() for text in texts]) for texts in (properties.keys(), properties.values()))
    return names, values, len(properties)


def _c_array(kind: Any, items: list[Any]) -> Any:
    return (kind * len(items))(*items)


class NativeSource(_Client):
    """Connections to the brokers, shared by consumers of any number of partitions; queue limits in *properties* hold for each partition."""

    def __init__(self, native: ctypes.CDLL, properties: Mapping[str, str]) -> None:
        # Handles instead of weak references: if source and consumer become garbage together, weak references are cleared before either is
        # closed.
        self._consumers: set[int] = set()
        super().__init__(native, lambda text: native.tg_source_new(*_c_properties(properties), text), native.tg_source_close)

    def open_consumer(self, topic: str, partition: int, headers: bool, rows: int, framed: Framed = ()) -> NativeConsumer:
        """
        Return the consumer of a partition; only one may be open. *headers*: read Tidegate's headers; *rows*: most records per fetch;
        *framed*: headers to put before values.
        """
        consumer = NativeConsumer(self, self._native, self._open, topic, partition, headers, rows, framed)
        self._consumers.add(consumer.handle)
        return consumer

    def wait(self, wait_ms: int, other: int = -1) -> None:
        """
        Return once something has come for one of the consumers since all of them were found empty, or once the descriptor *other* can be
        read, at the latest after *wait_ms*.
        """
        self._native.tg_source_wait(self._open, wait_ms, other)

    def has_consumer(self, consumer: int | None) -> bool:
        return consumer in self._consumers

    def close_consumer(self, consumer: int) -> None:
        if consumer in self._consumers:
            self._consumers.remove(consumer)
            self._native.tg_consumer_close(consumer)

    def close(self) -> None:
        """Close all consumers, then disconnect: librdkafka waits for open consumers for ever."""
        if self._process == os.getpid():
            for consumer in list(self._consumers):
                self.close_consumer(consumer)
        super().close()


class NativeConsumer(_Client):
    """Reads the records of one partition as columns; made by :meth:`NativeSource.open_consumer`."""

    def __init__(
        self,
        source: NativeSource,
        native: ctypes.CDLL,
        source_handle: int,
        topic: str,
        partition: int,
        headers: bool,
        rows: int,
        framed: Framed,
    ) -> None:
        self.source, self._headers, self._place = source, headers, f"{topic}-{partition}"
        # The native part keeps pointers to these names.
        self._names = [name.encode() for name in OWN_HEADERS] if headers else [None, None]
        self._framed = _c_array(ctypes.c_char_p, [name.encode() for name in framed])
        count = -1 if framed == ALL_HEADERS else len(framed)
        self._piece = _Piece()
        super().__init__(
            native,
            lambda text: native.tg_consumer_new(source_handle, topic.encode(), partition, rows, *self._names, self._framed, count, text),
            source.close_consumer,
        )

    @property
    def handle(self) -> int:
        return super()._open

    @property
    def _open(self) -> int:
        assert self.source.has_consumer(self._handle), "a closed client is not used"
        return self.handle

    def assign(self, offset: int) -> None:
        """Go to an offset. Raises UnreachableError: librdkafka cannot begin there now."""
        error = self._native.tg_assign(self._open, offset)
        if error:
            what = f"no records can be fetched from offset {offset} on: {KafkaError(error).str()}"
            raise UnreachableError(what, code="TG-KAFKA-UNREACHABLE", where=self._place, fix="nothing, if it passes: it is tried again")

    def fetch(self, end: int, rows_max: int, bytes_max: int, wait_ms: int, more_ms: int) -> Fetched:
        """
        Return the next records below *end*.

        Args:
            bytes_max: Most bytes, unless the first record alone is larger; below 2**31.
            wait_ms: Longest wait for the first record.
            more_ms: Longest wait for each further record.
        """
        piece = self._piece
        if self._native.tg_take(self._open, end, rows_max, bytes_max, wait_ms, more_ms, ctypes.byref(piece)):
            raise MemoryError("no memory for the records of a piece")
        error = KafkaError(piece.error, piece.text.decode(errors="replace")) if piece.error else None
        records = self._records(piece) if piece.rows else None
        return Fetched(records, bool(piece.beyond), error, piece.error_offset, piece.ended_at)

    def _records(self, piece: _Piece) -> Records:
        rows, block = piece.rows, _Block(self._native, piece.block)
        offset, stamp = (
            np.frombuffer(pa.foreign_buffer(address, 8 * rows, block), dtype=np.int64) for address in (piece.offset, piece.timestamp_ms)
        )
        # The C code stores the value first, then the key, then the two headers.
        columns = [_arrow_column(piece.column[place], rows, block) for place in range(_COLUMNS if self._headers else 2)]
        return Records(offset, stamp, columns[1], columns[0], *columns[2:], is_framed=bool(self._framed))


class _Block:
    """Memory shared by columns; freed with the last of them."""

    def __init__(self, native: ctypes.CDLL, address: int) -> None:
        self._native, self._address = native, address

    def __del__(self) -> None:
        self._native.tg_free(self._address)


def _arrow_column(column: _ReadColumn, rows: int, block: _Block) -> pa.Array:
    valid = pa.foreign_buffer(column.valid, (rows + 7) // 8, block) if column.nulls else None
    ends = pa.foreign_buffer(column.ends, 4 * (rows + 1), block)
    encoded = pa.foreign_buffer(column.bytes, column.size, block)
    return pa.Array.from_buffers(pa.binary(), rows, [valid, ends, encoded], null_count=column.nulls)


class NativeProducer(_Client):
    """Queues events by whole columns."""

    def __init__(self, native: ctypes.CDLL, properties: Mapping[str, str]) -> None:
        super().__init__(native, lambda text: native.tg_producer_new(*_c_properties(properties), text), native.tg_producer_close)

    @property
    def failed(self) -> KafkaError | None:
        """The first error of a record or of the producer as a whole."""
        code = self._native.tg_error(self._open)
        return KafkaError(code, self._native.tg_error_text(self._open).decode(errors="replace")) if code else None

    def send(self, topic: str, events: Columns, first_row: int = 0) -> int:
        """
        Queue events from *first_row* on, each with its own header, if it has one, and with the headers that stand before its value.

        Return the first row that was not queued: the queue was full, or the row failed (:attr:`failed`); the number of rows if all were.
        """
        headers = events.headers
        width = 0 if headers is None else headers.type.byte_width
        block = None if headers is None else headers.buffers()[1].address + headers.offset * width
        values, keys = _written_column(events.value), _written_column(events.key)
        stamps, partitions = np.ascontiguousarray(events.stamp_ms, dtype=np.int64), np.ascontiguousarray(events.partition, dtype=np.int32)
        columns = ctypes.byref(values[0]), ctypes.byref(keys[0]), partitions.ctypes.data, stamps.ctypes.data
        header = events.name.encode(), block, width, events.is_framed
        next_row: int = self._native.tg_send(self._open, topic.encode(), *columns, *header, first_row, len(events.value))
        return next_row

    def send_one(
        self, topic: str, value: bytes | None, key: bytes | None, headers: Headers, partition: int = UNASSIGNED, stamp_ms: int = 0
    ) -> bool:
        """Queue one record with any headers; by default the client chooses partition and timestamp. Return False if the queue is full."""
        names = _c_array(ctypes.c_char_p, [name.encode() for name, _ in headers])
        values = _c_array(ctypes.c_char_p, [encoded for _, encoded in headers])
        lengths = _c_array(ctypes.c_int64, [_length(encoded) for _, encoded in headers])
        record = topic.encode(), value, _length(value), key, _length(key), partition, stamp_ms
        queued: int = self._native.tg_send_one(self._open, *record, names, values, lengths, len(headers))
        return queued <= 0

    def poll(self, wait_ms: int) -> None:
        self._native.tg_poll(self._open, wait_ms)

    def flush(self, wait_ms: int) -> int:
        """Send without delay and wait up to *wait_ms* for acknowledgements; return the number of records without one."""
        left: int = self._native.tg_flush(self._open, wait_ms)
        return left


def _length(encoded: bytes | None) -> int:
    return -1 if encoded is None else len(encoded)


def _written_column(column: Payload) -> tuple[_WrittenColumn, pa.Array]:
    """Return *column* as a C struct, and the Arrow column that must outlive it."""
    if isinstance(column, np.ndarray) or not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
        column = to_arrow(column)
    valid, ends, encoded = column.buffers()
    wide = int(pa.types.is_large_binary(column.type))
    addresses = [None if buffer is None else buffer.address for buffer in (encoded, valid if column.null_count else None, ends)]
    return _WrittenColumn(*addresses, column.offset, wide), column
