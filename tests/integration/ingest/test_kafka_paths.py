"""Both ways to Kafka - the native one by columns, and record by record - against a real broker: same law, same bytes."""

from __future__ import annotations

import itertools
import os
import random
import struct
import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_INVALID, Producer
from structlog.testing import capture_logs
from support.poison import send
from support.stack.drawn_logs import Raw
from support.stack.kafka_columns import columns, rows_of
from support.stack.servers import Stack
from support.stack.topics import ANY_TIME, create, fresh, records

from ordering.columns.framed_payloads import frame_payload, headers_of
from ordering.errors import RefusedError, TidegateError
from ordering.protocol.wire import EVENT_HEADER_BYTES, HEADER_NAME
from tidegate.basics.native_parts import NATIVE_SWITCH
from tidegate.platform.kafka import native, ranges
from tidegate.platform.kafka.lookout import Lookout
from tidegate.platform.kafka.messages import MessageConsumer
from tidegate.platform.kafka.native import NativeSource
from tidegate.platform.kafka.ranges import RangeReader, SharedConnections
from tidegate.platform.kafka.records import ALL_HEADERS, Fetched
from tidegate.platform.kafka.worker import Worker
from tidegate.platform.kafka.writer import GaplessProducer

pytestmark = pytest.mark.integration


@pytest.fixture(params=["auto", "off"], autouse=True)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Take one of the two ways."""
    monkeypatch.setenv(NATIVE_SWITCH, request.param)
    return str(request.param)


@pytest.fixture
def properties(stack: Stack) -> dict[str, str]:
    """What clients are made with."""
    return {"bootstrap.servers": stack.bootstrap}


def test_columns_written_are_columns_read(properties: dict[str, str]) -> None:
    """Level 1: null, zero bytes, a record of 10 MB, slices, wide offsets and bytes objects come back as they were, in their order."""
    topic = create(properties["bootstrap.servers"], fresh("paths"), 2, {**ANY_TIME, "max.message.bytes": "20000000"})
    value = pa.array([b"cut off", None, b"", b"a\0b", os.urandom(10 * 2**20)], type=pa.binary())[1:]
    key = pa.array([b"cut off", b"k", b"", None, b"\0"], type=pa.large_binary())[1:]
    objects = np.array([None, b"x"], dtype=object)
    producer = GaplessProducer(properties)
    producer.send_columns(topic, columns(value, key, 1, [1, 2, 3, 4]))
    producer.send_columns(topic, columns(objects, objects[::-1], 1, [5, 6]))
    producer.send(topic, [(b"cti", None, 1, 7, [("other", None), ("tf", b"facts"), ("tg", b"first"), ("tg", b"second")])])
    producer.flush(topic)
    producer.discard()
    reader = RangeReader(properties, topic, 1, headers=True)
    pieces = list(reader.read(0, 7, chunk_bytes=1_000_000))
    reader.close()
    wanted_keys = [b"k", b"", None, b"\0", b"x", None, None]
    wanted_values = [*value.to_pylist(), None, b"x", b"cti"]
    assert [(value or b"")[:20] for _, _, _, value in rows_of(iter(pieces))] == [(value or b"")[:20] for value in wanted_values]
    assert rows_of(iter(pieces)) == list(zip(range(7), range(1, 8), wanted_keys, wanted_values, strict=True))
    assert sum(len(piece) == 1 and len(piece.value[0].as_py() or b"") > 10**7 for piece in pieces) == 1, "a large record comes alone"
    headers = [header for piece in pieces for header in piece.header.to_pylist()]  # type: ignore[union-attr]
    assert [header[0] for header in headers[:6]] == [0, 1, 2, 3, 0, 1]
    assert headers[6] == b"first"
    assert [fact for piece in pieces for fact in piece.facts.to_pylist()] == [None] * 6 + [b"facts"]  # type: ignore[union-attr]


def test_headers_go_with_values_from_topic_to_topic(properties: dict[str, str]) -> None:
    """Level 1: of each name the last value, whatever else a record has; written, they are headers again, and values are bare."""
    raw, topic = (create(properties["bootstrap.servers"], fresh("paths"), 1) for _ in range(2))
    sent: list[tuple[bytes | None, list[tuple[str, bytes | None]]]] = [
        (b"{}", [("x", b"1"), ("y", b"\xff\0"), ("x", b"last")]),
        (b"", [("x", b""), ("Zürich", b"z")]),
        (b"{}", [("x", b"1"), ("x", None)]),
        (None, [("x", b"no value, no frame")]),
        (b"{}", []),
        (b"{}", [("X", b"another name"), ("xx", b"too"), ("tg", b"t"), ("tf", b"f")]),
        (b"{}", [("x", b"x" * 300_000)]),
    ]
    producer = GaplessProducer(properties)
    producer.send(raw, [(value, b"k", 0, 1 + row, headers) for row, (value, headers) in enumerate(sent)])
    producer.flush(raw)
    names = ("Zürich", "x", "y")
    wanted: list[list[tuple[str, bytes | None]]] = [
        [("x", b"last"), ("y", b"\xff\0")], [("Zürich", b"z"), ("x", b"")], [], [], [], [], [("x", b"x" * 300_000)]
    ]  # fmt: skip
    with RangeReader(properties, raw, 0, framed=names) as reader:
        pieces = list(reader.read(0, len(sent), chunk_bytes=1_000))
    values = [value for piece in pieces for value in piece.value.to_pylist()]
    assert values == [frame_payload(headers, value) for headers, (value, _) in zip(wanted, sent, strict=True)]
    assert all(piece.is_framed for piece in pieces)
    assert len(pieces) == 2, "the bytes of headers count"
    assert [payload for piece in pieces for payload in piece.without_frames().value.to_pylist()] == [value for value, _ in sent]

    column = pa.array(values, pa.binary())
    producer.send_columns(topic, columns(column, pa.nulls(len(sent), pa.binary()), 0, 1 + np.arange(len(sent)))._replace(is_framed=True))
    producer.flush(topic)
    producer.discard()
    written = list(records(properties["bootstrap.servers"], topic))
    assert [message.value() for message in written] == [value for value, _ in sent]
    own = [(HEADER_NAME, bytes([row]) + bytes(EVENT_HEADER_BYTES - 1)) for row in range(len(sent))]
    assert [message.headers() for message in written] == [[first, *headers] for first, headers in zip(own, wanted, strict=True)]
    with RangeReader(properties, topic, 0, headers=True, framed=ALL_HEADERS) as reader:
        (piece,) = reader.read(0, len(sent))
    assert piece.value.to_pylist() == values, "all headers of an ordered topic are those that it keeps"
    assert piece.header is not None
    assert piece.header.to_pylist() == [header for _, header in own]
    with RangeReader(properties, topic, 0, headers=True) as reader:
        assert [value for piece in reader.read(0, len(sent)) for value in piece.value.to_pylist()] == [value for value, _ in sent]


def test_headers_of_others_harm_no_reader(properties: dict[str, str], path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of them, or names that are no UTF-8: what is asked for is found, or nothing."""
    topic = create(properties["bootstrap.servers"], fresh("paths"), 1)
    producer = Producer(properties)
    hostile: list[list[tuple[Any, bytes]]] = [
        [("x", b"%d" % number) for number in range(20_000)],
        [(f"n{number}", b"") for number in range(20_000)],
        [("", b"nameless"), ("x", b"1")],
    ]
    for headers in hostile:
        producer.produce(topic, b"{}", headers=headers)
    assert producer.flush(30) == 0
    # confluent-kafka writes no such name, and fails at reading one.
    has_odd_name = native.load_library() is not None
    if has_odd_name:
        monkeypatch.setenv(NATIVE_SWITCH, "auto")
        entries = b"".join(struct.pack("<ii", len(name), 1) + name + value for name, value in ((b"\xff", b"1"), (b"x", b"2")))
        framed = struct.pack("<i", len(entries)) + entries + b"{}"
        odd = GaplessProducer(properties)
        odd.send_columns(topic, columns(pa.array([framed] * 50), pa.nulls(50, pa.binary()), 0, [1] * 50)._replace(is_framed=True))
        odd.flush(topic)
        odd.discard()
        monkeypatch.setenv(NATIVE_SWITCH, path)
    with RangeReader(properties, topic, 0, headers=True, framed=("x",)) as reader:
        values = [value for piece in reader.read(0, len(hostile) + 50 * has_odd_name) for value in piece.value.to_pylist()]
    found = [headers_of(value) for value in values]
    assert found[:3] == [[("x", b"19999")], [], [("x", b"1")]]
    assert found[3:] == [[("x", b"2")]] * 50 * has_odd_name
    with RangeReader(properties, topic, 0, framed=ALL_HEADERS) as reader:
        counts = [len(headers_of(value)) for piece in reader.read(0, len(hostile)) for value in piece.value.to_pylist()]
    assert counts == [20_000, 20_000, 2]


def test_a_range_is_read_alike_in_any_pieces(properties: dict[str, str]) -> None:
    """Level 1: 100,000 records, pieces of any size, from anywhere, and again; bounds by rows and by bytes hold."""
    topic, count = create(properties["bootstrap.servers"], fresh("paths"), 1), 100_000
    value = pa.array([b"%d" % row for row in range(count)], type=pa.binary())
    producer = GaplessProducer(properties)
    without_headers = columns(value, pa.nulls(count, pa.binary()), 0, 1 + np.arange(count))._replace(headers=None)
    producer.send_columns(topic, without_headers)
    producer.flush(topic)
    producer.discard()
    reader = RangeReader(properties, topic, 0, headers=True)
    assert {header for piece in reader.read(0, 10) for header in piece.header.to_pylist()} == {None}  # type: ignore[union-attr]
    whole = rows_of(reader.read(0, count))
    assert whole == [(row, row + 1, None, b"%d" % row) for row in range(count)]
    cuts = [0, 1, 2, 20_002, 20_003, 65_000, count]
    assert [row for start, end in itertools.pairwise(cuts) for row in rows_of(reader.read(start, end, 7_001))] == whole
    pieces = list(reader.read(50, 3_000, chunk=900, chunk_bytes=1_000))
    assert rows_of(iter(pieces)) == whole[50:3_000]
    assert max(map(len, pieces)) <= 900
    assert max(sum(map(len, piece.value.to_pylist())) for piece in pieces) <= 1_000
    reader.close()


def test_partitions_read_through_the_same_connections_do_not_meet(properties: dict[str, str]) -> None:
    """Whatever is read of one, wherever, and if it fails or is left, the others go on where they stand."""
    topic = create(properties["bootstrap.servers"], fresh("paths"), 4)
    producer = GaplessProducer(properties)
    producer.send(topic, [(b"%d.%d" % (row % 4, row // 4), None, row % 4, 1 + row, []) for row in range(4 * 500)])
    producer.flush(topic)
    producer.discard()
    chance, worker = random.Random(7), Worker()
    for _ in range(60):
        partition, start = chance.randrange(4), chance.randrange(500)
        end = chance.randint(start, 500)
        reader = worker.reader(properties, topic, partition)
        found = [(offset, value) for offset, _, _, value in rows_of(reader.read(start, end, chunk=chance.choice((7, 1_000))))]
        assert found == [(offset, b"%d.%d" % (partition, offset)) for offset in range(start, end)]
        if chance.random() < 0.1:
            with pytest.raises(RefusedError):
                list(reader.read(600_000, 600_001))
        if chance.random() < 0.2:
            worker.drop_reader(properties, topic, chance.randrange(4))
    worker.close()


@pytest.mark.parametrize("alone", [True, False])
def test_a_reader_that_hears_nothing_connects_anew(properties: dict[str, str], monkeypatch: pytest.MonkeyPatch, alone: bool) -> None:
    """A client that has stopped fetching, as librdkafka may after leaders changed, is replaced; others of the process go on."""
    monkeypatch.setattr(ranges, "_RECONNECT_AFTER_S", 0.2)
    topic = create(properties["bootstrap.servers"], fresh("paths"), 2)
    producer = GaplessProducer(properties)
    producer.send(topic, [(b"%d" % row, None, row % 2, 1 + row, []) for row in range(20)])
    producer.flush(topic)
    producer.discard()
    shared = None if alone else SharedConnections()
    reader, other = (RangeReader(properties, topic, partition, connections=shared) for partition in range(2))
    first = [rows_of(each.read(0, 5)) for each in (reader, other)]
    monkeypatch.setattr(reader._consumer, "fetch", lambda *_: Fetched(None))
    found = [[*before, *rows_of(each.read(5, 10))] for before, each in zip(first, (reader, other), strict=True)]
    assert [[value for _, _, _, value in rows] for rows in found] == [[b"%d" % row for row in range(odd, 20, 2)] for odd in range(2)]
    reader.close()
    other.close()


_GARBAGE = """
import gc, sys
from tidegate.platform.kafka.ranges import RangeReader
reader = RangeReader({"bootstrap.servers": sys.argv[1]}, sys.argv[2], 0)
assert sum(len(records) for records in reader.read(0, 1)) == 1
reader.circle = reader
del reader
gc.collect()
print("left")
"""


def test_connections_found_as_garbage_with_their_readers_are_left(properties: dict[str, str]) -> None:
    """As in an error's traceback: librdkafka waits for ever where connections are closed before what is read through them."""
    topic = create(properties["bootstrap.servers"], fresh("paths"), 1)
    producer = GaplessProducer(properties)
    producer.send(topic, [(b"value", None, 0, 1, [])])
    producer.flush(topic)
    producer.discard()
    program = [sys.executable, "-c", _GARBAGE, properties["bootstrap.servers"], topic]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "left\n"), ended.stderr


def test_nothing_is_waited_for_that_comes_after_a_range(properties: dict[str, str]) -> None:
    """With the last record of the range there, it is given out, however long more might be waited for."""
    topic = create(properties["bootstrap.servers"], fresh("paths"), 1)
    producer = GaplessProducer(properties)
    producer.send(topic, [(b"v", None, 0, 1 + row, []) for row in range(3)])
    producer.flush(topic)
    producer.discard()
    library, own = native.usable_library(), {**properties, "group.id": "paths", "enable.auto.commit": "false"}
    source: Any = None if library is None else NativeSource(library, own)
    consumer = MessageConsumer(own, topic, 0, False) if source is None else source.open_consumer(topic, 0, False, 100)
    consumer.assign(0)
    since_s, taken = time.monotonic(), 0
    while taken < 3:
        records, *_ = consumer.fetch(3, 100, 1_000_000, 10_000, 60_000)
        taken += len(records)
    assert time.monotonic() - since_s < 30
    consumer.close()


def test_transactions_leave_holes_that_are_skipped(properties: dict[str, str]) -> None:
    """Only what was committed is read; a range may end in a hole, begin in one, or be one."""
    topic = create(properties["bootstrap.servers"], fresh("paths"), 1)
    producer = Producer({**properties, "transactional.id": topic})
    producer.init_transactions(30)
    for number, keep in enumerate([True, False, True]):
        producer.begin_transaction()
        for row in range(3):
            producer.produce(topic, b"%d.%d" % (number, row), partition=0)
        producer.flush(30)
        (producer.commit_transaction if keep else producer.abort_transaction)(30)
    # Offsets 3, 7 and 11 are markers; 4, 5 and 6 were aborted.
    wanted = {0: b"0.0", 1: b"0.1", 2: b"0.2", 8: b"2.0", 9: b"2.1", 10: b"2.2"}
    reader = RangeReader(properties, topic, 0)
    for start, end in [(0, 12), (0, 4), (4, 7), (3, 8), (6, 10), (11, 12), (9, 11)]:
        found = {offset: value for offset, _, _, value in rows_of(reader.read(start, end))}
        assert found == {offset: value for offset, value in wanted.items() if start <= offset < end}
    reader.close()


def test_a_hole_at_an_end_that_was_met_before_is_no_wait(properties: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's client says only once that a partition has ended: whoever has read on up to a marker hears nothing of it in a range."""
    monkeypatch.setattr(ranges, "_WARN_AFTER_S", 0.0)
    warnings: list[str] = []
    monkeypatch.setattr(ranges, "_log", SimpleNamespace(warning=lambda event, **_: warnings.append(event)))
    topic = create(properties["bootstrap.servers"], fresh("paths"), 1)
    producer = Producer({**properties, "transactional.id": topic})
    producer.init_transactions(30)
    reader = RangeReader(properties, topic, 0)
    for first in (0, 4, 8):
        producer.begin_transaction()
        for row in range(3):
            producer.produce(topic, b"%d" % row, partition=0)
        producer.commit_transaction(30)
        start = first
        while start < first + 3:
            records = reader.read_on(start, 200)
            start += len(records.offset) if records is not None else 0
        while reader.read_on(start, 1_000) is not None:
            pass
        assert not list(reader.read(first + 3, first + 4))
    reader.close()
    assert warnings == []


@pytest.mark.parametrize(("codec", "size"), [("none", 101_000_000), ("zstd", 150_000_000)])
def test_a_record_larger_than_consumers_take_by_default_is_read(codec: str, size: int, properties: dict[str, str]) -> None:
    """Nobody could pass over it: 100 MB is where librdkafka refuses an answer, or what zstd makes of it, unless told otherwise."""
    topic = create(properties["bootstrap.servers"], fresh("paths"), 1, {**ANY_TIME, "max.message.bytes": "104857600"})
    value = os.urandom(1_000) * (size // 1_000)
    send(properties["bootstrap.servers"], topic, [Raw(0, None, value, 1)], codec)
    reader = RangeReader(properties, topic, 0)
    assert [read == value for _, _, _, read in rows_of(reader.read(0, 1))] == [True]
    reader.close()


def test_a_deleted_range_is_refused(properties: dict[str, str]) -> None:
    """Waiting would not bring it back."""
    topic = create(properties["bootstrap.servers"], fresh("paths"), 1)
    reader = RangeReader(properties, topic, 0)
    with pytest.raises(RefusedError) as gone:
        list(reader.read(5, 9))
    assert (gone.value.code, gone.value.where) == ("TG-RETENTION", f"{topic}-0@5")
    reader.close()


def test_after_a_refused_record_nothing_more_is_written(properties: dict[str, str]) -> None:
    """What reaches a partition is a prefix: the record too large is named, and none behind it arrives."""
    topic = create(properties["bootstrap.servers"], fresh("paths"), 1, {**ANY_TIME, "max.message.bytes": "2000"})
    producer = GaplessProducer(properties)
    first = pa.array([b"small"] * 10, type=pa.binary())
    producer.send_columns(topic, columns(first, pa.nulls(10, pa.binary()), 0, np.ones(10)))
    producer.flush(topic)
    large = pa.array([os.urandom(5_000), *[b"behind"] * 1_000], type=pa.binary())
    with pytest.raises(TidegateError) as refused:
        producer.send_columns(topic, columns(large, pa.nulls(len(large), pa.binary()), 0, np.ones(len(large))))
        producer.flush(topic)
    producer.discard()
    assert (refused.value.code, refused.value.where) == ("TG-RECORD-TOO-LARGE", topic)
    assert {message.value() for message in records(properties["bootstrap.servers"], topic)} == {b"small"}


def test_a_partition_that_is_not_there_is_an_error(properties: dict[str, str]) -> None:
    """Not a record lost in silence."""
    topic = create(properties["bootstrap.servers"], fresh("paths"), 1)
    producer = GaplessProducer(properties)
    with pytest.raises(TidegateError):
        producer.send_columns(topic, columns(pa.array([b"x"]), pa.array([b"k"]), 7, [1]))
        producer.flush(topic)
    producer.discard()


def test_a_plain_record_goes_where_the_partitioner_says(properties: dict[str, str]) -> None:
    """A dead letter has its headers, its key and the time at which it was sent."""
    topic, before_ms = create(properties["bootstrap.servers"], fresh("paths"), 3), time.time() * 1000 - 5_000
    producer = GaplessProducer(properties)
    producer.send_plain(topic, None, b"k", [("reason", b"no_payload"), ("origin", b"t-0@1")])
    producer.flush(topic)
    producer.discard()
    (message,) = records(properties["bootstrap.servers"], topic)
    assert (message.value(), message.key(), message.headers()) == (None, b"k", [("reason", b"no_payload"), ("origin", b"t-0@1")])
    assert message.timestamp()[1] > before_ms


def test_a_reader_that_follows_a_topic_gets_all_that_has_come(properties: dict[str, str]) -> None:
    """Kafka's client says at each end that it has met one; what came behind it since must not wait for calls of its own."""
    topic = create(properties["bootstrap.servers"], fresh("follows"), 1)
    producer = Producer(properties)
    reader = RangeReader(properties, topic, 0)
    read = 0
    assert reader.read_on(0, 200) is None
    for _ in range(5):
        for number in range(10):
            producer.produce(topic, b"%d" % number)
        producer.flush()
        time.sleep(0.3)  # the client fetches them, and then meets the end
    calls = 0
    while read < 50 and calls < 20:
        records = reader.read_on(read, 200)
        calls += 1
        read += len(records.offset) if records is not None else 0
    reader.close()
    assert (read, calls) == (50, 1)


def test_readers_are_waited_for_together(properties: dict[str, str]) -> None:
    """A record of any of them ends the wait, each time anew; readers without a connection in common are looked at again soon."""
    topic = create(properties["bootstrap.servers"], fresh("waits"), 3)
    producer, connections = Producer(properties), SharedConnections()
    readers = [RangeReader(properties, topic, number, connections=connections) for number in range(3)]
    next_offsets = [0, 0, 0]
    wait_ms = 60_000
    for number in (1, 2, 2, 0, 1):
        assert [reader.read_on(offset, 0) for reader, offset in zip(readers, next_offsets, strict=True)] == [None] * 3
        producer.produce(topic, b"x", partition=number)
        producer.flush()
        began_s = time.monotonic()
        while (records := readers[number].read_on(next_offsets[number], 0)) is None:
            ranges.wait_for_any(readers, wait_ms)
            assert time.monotonic() - began_s < wait_ms / 1_000, "nobody was woken"
        next_offsets[number] += len(records)
    began_s = time.monotonic()
    while time.monotonic() - began_s < 0.2:
        ranges.wait_for_any(readers, 100)
    assert next_offsets == [1, 2, 2]
    for reader in readers:
        reader.close()


def test_a_lookout_wakes_with_the_next_record(properties: dict[str, str], path: str) -> None:
    """In whichever partition it comes, twice in a row; without the native part a wait is so short that nobody needs to be woken."""
    topic = create(properties["bootstrap.servers"], fresh("lookout"), 2)
    lookout, ends = Lookout(properties), {(topic, 0): 0, (topic, 1): 0}
    for partition in (1, 0):
        lookout.wait(ends, 0.2)  # connects
        sending = threading.Timer(0.3, send, [properties["bootstrap.servers"], topic, [Raw(partition, b"k", b"v", 1)]])
        sending.start()
        # Nothing else ends it: the test would last as long.
        lookout.wait(ends, 600.0)
        sending.join()
        ends[topic, partition] = 1
    lookout.stop_fetching()


def test_a_lookout_that_fails_says_so_and_looks_again(properties: dict[str, str], path: str) -> None:
    """Where nobody can wait, such as at an end that is no offset, of a broker that has lost its partitions: who asks brokers goes on."""
    topic = create(properties["bootstrap.servers"], fresh("lookout"), 1)
    send(properties["bootstrap.servers"], topic, [Raw(0, b"k", b"v", 1)])
    lookout = Lookout(properties)
    for end in (OFFSET_INVALID, 5):
        with capture_logs() as logs:
            for _ in range(3):
                lookout.wait({(topic, 0): end}, 10.0)
        assert len({log["reason"] for log in logs}) == len(logs) == (path == "auto"), logs
    lookout.wait({(topic, 0): 0}, 60.0)
    lookout.stop_fetching()


def test_a_lookout_wakes_for_a_descriptor(properties: dict[str, str]) -> None:
    """So whoever waits hears of a request to end."""
    topic = create(properties["bootstrap.servers"], fresh("lookout"), 1)
    heard, asks = os.pipe()
    os.write(asks, b"!")
    lookout = Lookout(properties)
    lookout.wait({(topic, 0): 0}, 60.0, heard)
    lookout.stop_fetching()
    for descriptor in (heard, asks):
        os.close(descriptor)
