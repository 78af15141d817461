"""``tidegate peek`` without servers: what a record is, which are kept, and how they look."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.written_topics import cti

from ordering.columns.framed_payloads import frame_payload
from ordering.errors import QueryError, SettingError, TickRangeError
from ordering.protocol.wire import Flag, encode_cti, encode_event_headers, encode_source_cti
from ordering.ticks import NEVER, parse_tick
from tidegate.platform.kafka.records import Records
from tidegate.platform.settings.load import load
from tidegate.records.payloads.conditions import is_true
from tidegate.records.payloads.formats import JSON
from tidegate.tools.peek.command import bind_where, find_input, parse_from
from tidegate.tools.peek.decoding import EventHeader, Repetitions, Sight, SightKind, decode_sights
from tidegate.tools.peek.display import Display, show_bytes
from tidegate.tools.peek.reading import RecordChoice, drop_oldest, keep_newest, merge_partitions

NOON = parse_tick("2026-01-05T12:00:00Z")
SHOWN = Display(JSON)


def sight(offset: int, *, number: int | None = None, stamp_ms: int = 0, partition: int = 0, key: bytes | None = None) -> Sight:
    """Return a raw record, or with a *number* a CTI of that channel."""
    if number is None:
        return Sight("t", partition, offset, stamp_ms, key, b"{}", SightKind.RAW)
    return Sight("t", partition, offset, stamp_ms, None, b"", SightKind.CTI, cti=cti(number, offset, 0))


def decoded(value: bytes | None, own: bytes | None = None, headers: tuple[tuple[str, bytes], ...] = (), key: bytes | None = None) -> Sight:
    """Return one record, decoded."""
    framed = pa.array([frame_payload(headers, value)], pa.binary())
    columns = np.array([7]), np.array([1_000]), pa.array([key], pa.binary()), framed, pa.array([own], pa.binary())
    of_null = {7: list(headers)} if value is None else {}
    [found] = decode_sights(Records(*columns, None, is_framed=True), "t", 0, of_null)
    return found


def event_header(flags: int = 0) -> bytes:
    """Return the header of an event at noon that arrived a second later."""
    columns = [np.array([value], dtype=np.int64) for value in (3, NOON, NOON, NOON + 1_000_000, 41)]
    return encode_event_headers(*columns, np.array([flags], dtype=np.uint16), 2)[0]


def test_a_record_is_what_its_header_says() -> None:
    """Event, CTI, dead letter, raw record; headers of others stay with it."""
    event = decoded(b'{"v":1}', event_header(Flag.LATE), (("trace", b"x"),), b"k")
    assert event.event == EventHeader(2, 3, NOON, NOON, NOON + 1_000_000, 41, Flag.LATE)
    assert SHOWN.line(event).endswith(
        'seq 3  2026-01-05T12:00:00Z  key k  {"v":1}  (late: arrived 2026-01-05T12:00:01Z, offset 41 of input partition 2)'
    )
    header, body = encode_cti(cti(1, NOON, 5))
    assert SHOWN.line(decoded(body, header)) == "t-0@7  CTI of channel 1: before 2026-01-05T12:00:00Z all is numbered below 5 (event)"
    assert "CTI of the source: no later event before 2026-01-05T12:00:00Z" in SHOWN.line(decoded(*reversed(encode_source_cti(NOON))))
    letter = decoded(None, None, (("reason", b"no_payload"), ("origin", b"raw-0@1")))
    assert (letter.kind, SHOWN.line(letter)) == (SightKind.DEAD_LETTER, "t-0@7  no_payload, from raw-0@1  (no payload)")
    assert decoded(b"x", None, (("reason", b"mine"),)).kind is SightKind.RAW


@pytest.mark.parametrize("own", [b"", b"\x01\x01" + bytes(46), b"\x09" * 8, event_header()[:-1], b"x" * 48])
def test_a_strangers_record_is_shown_as_one(own: bytes) -> None:
    """A header of the protocol's name that is none of it: the payload, and what is wrong."""
    found = decoded(b"{}", own)
    if found.problem:
        assert "none of the protocol" in SHOWN.line(found)
        assert SHOWN.as_dict(found)["problem"] == found.problem
    else:
        assert found.kind is SightKind.EVENT


def test_bytes_that_are_no_text_are_shown_in_base64_and_text_as_it_is() -> None:
    """Of key, payload and header; JSON output is JSON whatever they are."""
    found = decoded(b"\xff\x00", None, (("h", b"\xfe"),), b"\xfd")
    assert SHOWN.line(found) == "t-0@7  1970-01-01T00:00:01Z  key base64:/Q==  base64:/wA=  [h=base64:/g==]"
    assert json.loads(json.dumps(SHOWN.as_dict(found)))["headers"] == {"h": "base64:/g=="}
    assert SHOWN.as_dict(decoded(b'{"a": [1, "x"]}'))["value"] == {"a": [1, "x"]}
    assert SHOWN.as_dict(decoded(b"[" * 100_000))["value"] == "[" * 100_000


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 8))))
def test_repetitions_are_what_a_reader_skips(events: list[tuple[int, int]]) -> None:
    """Of each channel rising numbers are new, from the first that is seen on."""
    seen, newest = Repetitions(), dict[int, int]()
    for number, seq in events:
        is_new = seq > newest.get(number, -1)
        newest[number] = max(seq, newest.get(number, -1))
        assert seen.is_repeated(EventHeader(number, seq, 0, 0, 0, 0, Flag(0))) is not is_new


@given(st.lists(st.one_of(st.none(), st.integers(0, 2)), max_size=30), st.integers(1, 5))
def test_the_newest_records_are_kept_without_counting_ctis(numbers: list[int | None], limit: int) -> None:
    """All of the last *limit* records, in order; between two of them each channel has one CTI, its last."""
    sights = [sight(offset, number=number) for offset, number in enumerate(numbers)]
    kept = keep_newest(sights, limit)
    records = [each for each in sights if each.cti is None]
    assert [each for each in kept if each.cti is None] == records[-limit:]
    assert [each.offset for each in kept] == sorted(each.offset for each in kept)
    between: list[int] = []
    for each in kept:
        between = [] if each.cti is None else [*between, each.cti.number]
        assert len(set(between)) == len(between)
    for number in set(between):
        assert [each for each in kept if each.cti and each.cti.number == number][-1] == [
            each for each in sights if each.cti and each.cti.number == number
        ][-1]


@given(st.lists(st.lists(st.integers(0, 20), max_size=8), min_size=1, max_size=3), st.integers(1, 6))
def test_partitions_are_merged_by_time_and_stay_in_their_own_order(stamps: list[list[int]], limit: int) -> None:
    """Timestamps of raw records may fall: an older one stays behind the newer one that came before it."""
    pieces = [[sight(offset, stamp_ms=ms, partition=number) for offset, ms in enumerate(each)] for number, each in enumerate(stamps)]
    merged = list(merge_partitions(pieces))
    for number, piece in enumerate(pieces):
        assert [each for each in merged if each.partition == number] == piece
    if all(each == sorted(each) for each in stamps):
        assert [each.timestamp_ms for each in merged] == sorted(each.timestamp_ms for each in merged)
    assert drop_oldest(merged, limit) == merged[-limit:]


def test_conditions_and_keys_choose(tmp_path: Path) -> None:
    """A condition that is NULL or cannot be computed chooses nothing; CTIs are shown only if nothing is looked for."""
    sights = [decoded(value, key=key) for value, key in ((b'{"v": 5}', b"a"), (b'{"v": 7}', b"b"), (b"{}", b"a"), (b"no JSON", b"a"))]
    condition = bind_where("v > 4", None)
    assert [each.value for each in RecordChoice(condition).choose(sights)] == [b'{"v": 5}', b'{"v": 7}']
    assert [each.value for each in RecordChoice(condition, b"a").choose(sights)] == [b'{"v": 5}']
    assert is_true(condition, pa.array([None, b'{"v": "x"}', b'{"v": 4.5}'], pa.binary()), JSON).tolist() == [False, False, True]
    both = [sight(1), sight(2, number=0)]
    assert RecordChoice().choose(both) == both
    assert RecordChoice(has_ctis=False).choose(both) == RecordChoice(key=b"").choose(both) == both[:1]
    with pytest.raises(QueryError):
        bind_where("v >", None)


def test_topics_of_an_input_are_read_in_its_format(tmp_path: Path) -> None:
    """Raw, ordered and dead-letter topics of it, and those that its pattern matches; others are read as JSON."""
    (tmp_path / "tidegate.toml").write_text(
        '[inputs.a]\ntopic = "raw"\nformat = "csv"\ncsv_columns = ["x"]\n[inputs.b]\ntopic_pattern = "b-.*"\ntimestamp_by = "at"\n'
    )
    settings = load(tmp_path / "tidegate.toml", env={})
    names = ["raw", "raw.ordered", "raw.ordered.dead", "b-1", "b.ordered", "other"]
    tables = [find_input(settings, name) for name in names]
    assert [table and table.name for table in tables] == ["a", "a", "a", "b", "b", None]
    assert bind_where("x = '1'", tables[0])


def test_from_takes_a_time_an_age_or_earliest() -> None:
    """Anything else is refused, with the flag's name."""
    assert parse_from("2026-01-05T12:00:00Z", 0) == NOON
    assert parse_from("1h30m", NOON) == NOON - 5_400_000_000
    assert parse_from("10m", 0) == 0
    assert parse_from("earliest", NOON) == NEVER
    with pytest.raises((TickRangeError, SettingError)) as refused:
        parse_from("noon", 0)
    assert refused.value.where == "--from"


def test_bytes_are_shown_one_by_one() -> None:
    """As offset, hexadecimal and text; of many the first, with how many there are."""
    assert show_bytes(None) is None
    assert show_bytes(b"") == {"bytes": 0, "lines": [], "is_cut": False}
    shown = show_bytes(b"\x00<b>\xff" * 7)
    assert shown is not None
    assert shown["lines"][0] == "000000  00 3c 62 3e ff 00 3c 62 3e ff 00 3c 62 3e ff 00  .<b>..<b>..<b>.."
    assert shown["lines"][2] == f"{'000020  62 3e ff':<55}  b>."
    assert show_bytes(b"x" * 5_000) == {"bytes": 5_000, "lines": show_bytes(b"x" * 2_048)["lines"], "is_cut": True}  # type: ignore[index]
