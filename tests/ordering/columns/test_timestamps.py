"""Columns of timestamps: every value means the same whatever stands beside it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.edge_floats import decimal_tick, floats_on_edges, within_range

from ordering.columns.timestamps import UNITS, to_ticks
from ordering.errors import SettingError
from ordering.ticks import TICK_MAX, TICK_MIN, parse_tick

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def one(value: object, unit: str = "auto", kind: pa.DataType | None = None) -> int | None:
    """Read one value alone; None if it is not valid."""
    ticks, valid = to_ticks(pa.array([value], type=kind), unit)
    assert valid[0] or ticks[0] == 0
    return int(ticks[0]) if valid[0] else None


def moment_us(moment: datetime) -> int:
    """Return microseconds since the epoch by Python's own calendar."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("text", "same_as"),
    [
        ("2001-02-03", "2001-02-03T00:00:00+00:00"),
        ("2001-02-03T04:05", "2001-02-03T04:05:00+00:00"),
        ("2001-02-03 04:05:06", "2001-02-03T04:05:06+00:00"),
        ("2001-02-03T04:05:06Z", "2001-02-03T04:05:06+00:00"),
        ("2001-02-03T04:05Z", "2001-02-03T04:05:00+00:00"),
        ("2001-02-03T04:05:06.7", "2001-02-03T04:05:06.700000+00:00"),
        ("2001-02-03T04:05:06.78Z", "2001-02-03T04:05:06.780000+00:00"),
        ("2001-02-03T04:05:06.1234567Z", "2001-02-03T04:05:06.123456+00:00"),
        ("2001-02-03T04:05:06.999999999-01:30", "2001-02-03T05:35:06.999999+00:00"),
        ("2001-02-03T04:05:06+0530", "2001-02-02T22:35:06+00:00"),
        ("2001-02-03T04:05+05", "2001-02-02T23:05:00+00:00"),
        ("2001-02-03t04:05:06.25z", "2001-02-03T04:05:06.250000+00:00"),
        ("2001-02-03T04:05z", "2001-02-03T04:05:00+00:00"),
        ("2000-02-29", "2000-02-29T00:00:00+00:00"),
        ("1969-12-31T23:30:00-01:00", "1970-01-01T00:30:00+00:00"),
        ("9999-12-31T23:59:59.999999999", "9999-12-31T23:59:59.999999+00:00"),
    ],
)
def test_iso_text_is_read_in_every_shape(text: str, same_as: str) -> None:
    """Dates, minutes, seconds, 1 to 9 fraction digits (cut, not rounded) and every form of zone."""
    assert one(text) == one(text, "iso") == moment_us(datetime.fromisoformat(same_as))


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "soon",
        "2001-02-30",
        "2001-13-01",
        "2001-00-10",
        "2001-01-00",
        "1900-02-29",
        "2001-2-3",
        "2001-02-03T",
        "2001-02-03T04",
        "2001-02-03Z",
        "2001-02-03X04:05",
        "2001-02-03z",
        "2001-02-03T04:05:06:",
        "2001-02-03T04:05:06zz",
        "2001-02-03T24:00:00",
        "2001-02-03T04:60:00",
        "2001-02-03T04:05:60",
        "2001-02-03T04:05:06.",
        "2001-02-03T04:05:06.1234567890",
        "2001-02-03T04:05:06.12a",
        "2001-02-03T04:05:06,123",
        "2001-02-03T04:05:06+24:00",
        "2001-02-03T04:05:06+01:60",
        "2001-02-03T04:05:06+01.30",
        "2001-02-03T04:05:06+1:30",
        " 2001-02-03T04:05:06",
        "2001-02-03T04:05:06ZZ",
        "２００１-02-03",
        "1970-01-01T00:00:00.000999Z",
        "1969-12-31T23:59:59Z",
        "9999-12-31T23:59:59-00:01",
        "0001-01-01",
        "-1700000000",
        "1_700_000_000",
        "0x10",
        "1e",
        ".",
        "1e999",
        "nan",
        "inf",
        "17" * 40,
    ],
)
def test_what_is_no_time_is_invalid_and_not_an_error(text: str) -> None:
    """Bad text costs its own row only."""
    assert one(text) is None
    ticks, valid = to_ticks(pa.array(["2001-02-03", text, "2001-02-03"]))
    assert valid.tolist() == [True, False, True]
    assert ticks[1] == 0


@pytest.mark.parametrize("text", ["2001-02-03T04:05:06Z", "2001-02-03t04:05:06Z", "2001-02-03T04:05:06z", "2001-02-03t04:05:06z"])
def test_small_letters_are_the_same_time_in_settings_and_in_every_form_of_column(text: str) -> None:
    """As RFC 3339 has it: t and z may be written small."""
    expected = moment_us(datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC))
    assert parse_tick(text) == expected
    forms = [pa.array([text]), pa.array([text.encode()]), pa.array([text, "1"]).dictionary_encode()[:1]]
    assert [to_ticks(form)[0].tolist() for form in forms] == [[expected]] * 3


@pytest.mark.parametrize("write", [int, str, float, lambda value: f"{value}.0", lambda value: f"+{value}", lambda value: f"{value}e0"])
def test_auto_tells_the_unit_from_the_size_of_each_number(write: object) -> None:
    """1700000000 in seconds, milliseconds, microseconds and nanoseconds is the same moment, as number or as text."""
    moment_s = 1_700_000_000
    for per_second in (1, 10**3, 10**6, 10**9):
        assert one(write(moment_s * per_second)) == moment_s * 10**6  # type: ignore[operator]


@pytest.mark.parametrize(
    ("value", "tick"),
    [
        (10**11 - 1, (10**11 - 1) * 10**6),
        (10**11, 10**14),
        (10**14 - 1, (10**14 - 1) * 10**3),
        (10**14, 10**14),
        (10**17 - 1, 10**17 - 1),
        (10**17, 10**14),
        (2**63 - 1, (2**63 - 1) // 1000),
    ],
)
def test_auto_changes_unit_at_1e11_1e14_and_1e17(value: int, tick: int) -> None:
    """The bounds belong to the finer unit."""
    assert one(value) == tick
    assert one(str(value)) == tick


def test_typical_float_seconds_show_no_binary_dust() -> None:
    """1700000000.123 is 123 milliseconds sharp, though no float has that value."""
    assert one(1700000000.123) == 1_700_000_000_123_000
    assert one("1700000000.123") == 1_700_000_000_123_000
    assert one(1700000000123.4, "ms") == 1_700_000_000_123_400


def test_a_declared_unit_excludes_every_other_reading() -> None:
    """With a declared unit size says nothing; ISO text is not a number, nor a number ISO text."""
    assert one(1_700_000_000, "ms") == 1_700_000_000_000
    assert one(1_700_000_000, "us") == 1_700_000_000
    assert one(1_700_000_000_999, "ns") == 1_700_000_000
    assert one(10**15, "s") is None
    assert one("2001-02-03", "s") is None
    assert one(1_700_000_000, "iso") is None
    assert one("1700000000", "iso") is None


def test_an_unknown_unit_is_a_setting_error() -> None:
    """The error names what is allowed."""
    with pytest.raises(SettingError, match="auto, iso, s, ms, us, ns"):
        to_ticks(pa.array([1]), "minutes")


@pytest.mark.parametrize("unit", UNITS)
def test_typed_dates_and_timestamps_carry_their_own_unit(unit: str) -> None:
    """Arrow's date32, date64 and timestamp columns ignore the declared unit."""
    moment = datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC)
    for arrow_unit in ("s", "ms", "us", "ns"):
        assert one(moment, unit, pa.timestamp(arrow_unit)) == moment_us(moment)
        assert one(moment, unit, pa.timestamp(arrow_unit, "Europe/Vienna")) == moment_us(moment)
    for kind in (pa.date32(), pa.date64()):
        assert one(date(2001, 2, 3), unit, kind) == moment_us(datetime(2001, 2, 3, tzinfo=UTC))


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.dictionary(pa.int8(), pa.string())],
    ids=str,
)
def test_every_column_of_text_reads_alike(kind: pa.DataType) -> None:
    """Layout is not meaning; nulls are invalid."""
    texts = pa.array(["2001-02-03", None, "1700000000", "x", "2001-02-03"]).cast(kind)
    ticks, valid = to_ticks(texts[1:])
    assert valid.tolist() == [False, True, False, True]
    assert ticks.tolist() == [0, 1_700_000_000_000_000, 0, moment_us(datetime(2001, 2, 3, tzinfo=UTC))]


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.uint32(), pa.uint64(), pa.float64(), pa.decimal128(20, 3)], ids=str)
def test_every_column_of_numbers_reads_alike(kind: pa.DataType) -> None:
    """Width is not meaning; nulls and zeros are invalid."""
    ticks, valid = to_ticks(pa.array([1_700_000_000, None, 0], type=kind))
    assert valid.tolist() == [True, False, False]
    assert ticks.tolist() == [1_700_000_000_000_000, 0, 0]


def test_numbers_beyond_int64_are_read_exactly() -> None:
    """Nanoseconds of the year 2500 fit no int64, but they are a valid time."""
    year_2500_ns = 16_725_225_600_123_456_789
    for value, kind in ((year_2500_ns, pa.uint64()), (str(year_2500_ns), pa.string()), (Decimal(year_2500_ns), pa.decimal128(20, 0))):
        assert one(value, "auto", kind) == one(value, "ns", kind) == year_2500_ns // 1000


@pytest.mark.parametrize(
    "column", [pa.array([True, False]), pa.nulls(2), pa.array([[1], [2]]), pa.array([float("nan"), float("inf")]), pa.array([-1.5, -0.0])]
)
def test_columns_without_times_hold_no_valid_value(column: pa.Array) -> None:
    """Booleans, nulls, lists, not-a-number, infinity and numbers below the epoch are no times."""
    for unit in UNITS:
        assert not to_ticks(column, unit)[1].any()


def test_empty_columns_and_chunks_are_fine() -> None:
    """Chunks are read one by one and joined; none at all gives nothing."""
    assert len(to_ticks(pa.array([], pa.string()))[0]) == len(to_ticks(pa.chunked_array([], pa.int64()))[0]) == 0
    ticks, valid = to_ticks(pa.chunked_array([["2001-02-03"], [], [None, "2001-02-04"]]))
    assert np.diff(ticks[valid]).tolist() == [86_400_000_000]


@st.composite
def iso_texts(draw: st.DrawFn) -> tuple[str, datetime]:
    """Draw an ISO text in any shape together with the moment it means by Python's calendar."""
    moment = _EPOCH + timedelta(days=draw(st.integers(-2, 2_932_896)), microseconds=draw(st.integers(0, 86_399_999_999)))
    size = draw(st.sampled_from([10, 16, 19, *range(21, 30)]))
    full = moment.strftime("%Y-%m-%dT%H:%M:%S.%f")
    text = (full + "789")[:size].replace("T", draw(st.sampled_from("T ")))
    local = datetime.strptime(full[:size] + "2001-01-01T00:00:00.000000"[size:], "%Y-%m-%dT%H:%M:%S.%f").replace(tzinfo=UTC)
    if size == 10:
        return text, local
    shape = draw(st.sampled_from(["", "Z", "+hh", "+hhmm", "+hh:mm"]))
    if shape in ("", "Z"):
        return text + shape, local
    sign, hours = draw(st.sampled_from("+-")), draw(st.integers(0, 23))
    minutes = draw(st.integers(0, 59)) if "mm" in shape else 0
    zone = f"{sign}{hours:02}" + shape[3:].replace("mm", f"{minutes:02}")
    return text + zone, local.replace(tzinfo=timezone((1 if sign == "+" else -1) * timedelta(hours=hours, minutes=minutes)))


@given(iso_texts())
def test_iso_text_means_what_the_calendar_says(case: tuple[str, datetime]) -> None:
    """Against Python's datetime, over the whole range of valid times and a little beyond."""
    text, moment = case
    assert one(text) == one(text, "iso") == within_range((moment - _EPOCH) // timedelta(microseconds=1))


@given(st.integers(TICK_MIN, TICK_MAX))
def test_text_columns_agree_with_parse_tick(tick: int) -> None:
    """One time and a column of times are read alike."""
    text = (_EPOCH + timedelta(microseconds=tick)).isoformat()
    assert one(text) == parse_tick(text) == tick


@given(st.floats(0, 1e21) | st.floats(1e9, 2e9) | st.integers(0, 2**63).map(lambda n: n / 1000), st.sampled_from(UNITS))
def test_a_float_stands_for_the_shortest_decimal_that_reads_back_as_it(value: float, unit: str) -> None:
    """Against exact decimals, in every unit; the text of the same number reads alike."""
    expected = None if unit == "iso" else decimal_tick(Decimal(repr(value)), unit)
    assert one(value, unit) == one(repr(value), unit) == expected


@pytest.mark.parametrize("unit", UNITS)
def test_floats_on_every_edge_of_size_and_unit_are_exact(unit: str) -> None:
    """Against exact decimals, as floats, as texts and as integers."""
    floats = floats_on_edges()
    expected = [None if unit == "iso" else decimal_tick(Decimal(repr(value)), unit) for value in floats]
    for column in (pa.array(floats), pa.array(map(repr, floats)), pa.array([f"{Decimal(repr(value)):f}" for value in floats])):
        ticks, valid = to_ticks(column, unit)
        read = [tick if is_valid else None for tick, is_valid in zip(ticks.tolist(), valid.tolist(), strict=True)]
        assert [wrong for wrong in zip(floats, read, expected, strict=True) if wrong[1] != wrong[2]] == []


@given(st.decimals(0, 10**19, places=6, allow_nan=False), st.sampled_from(["auto", "s", "ms", "us", "ns"]))
def test_numeric_text_is_exact(value: Decimal, unit: str) -> None:
    """Against exact decimals."""
    assert one(f"{value:f}", unit) == decimal_tick(value, unit)


@given(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 10**13), st.sampled_from(["auto", "s", "ms", "us", "ns"]))
def test_integers_are_exact(value: int, unit: str) -> None:
    """Against exact decimals; no unit overflows."""
    assert one(value, unit) == one(str(value), unit) == (decimal_tick(Decimal(value), unit) if value > 0 else None)


_TEXTS = (
    iso_texts().map(lambda case: case[0])
    | st.integers(0, 10**20).map(str)
    | st.floats(0, 1e18).map(repr)
    | st.text("0123456789-:.T Z+eé", max_size=30)
    | st.none()
)


@given(st.lists(_TEXTS, min_size=1, max_size=25), st.sampled_from(UNITS))
def test_a_text_means_the_same_alone_and_among_any_neighbours(texts: list[str | None], unit: str) -> None:
    """The law of the module, for text."""
    ticks, valid = to_ticks(pa.array(texts, pa.string()), unit)
    assert [int(tick) if ok else None for tick, ok in zip(ticks, valid, strict=True)] == [one(text, unit, pa.string()) for text in texts]


@given(st.lists(st.integers(-5, 2**63 - 1) | st.integers(0, 10**13) | st.none(), min_size=1, max_size=25), st.sampled_from(UNITS))
def test_a_number_means_the_same_alone_and_among_any_neighbours(numbers: list[int | None], unit: str) -> None:
    """The law of the module, for integers and floats."""
    for kind in (pa.int64(), pa.float64()):
        values = [None if number is None else float(number) if kind == pa.float64() else number for number in numbers]
        ticks, valid = to_ticks(pa.array(values, kind), unit)
        alone = [one(value, unit, kind) for value in values]
        assert [int(tick) if ok else None for tick, ok in zip(ticks, valid, strict=True)] == alone


def test_long_columns_are_read_like_short_ones() -> None:
    """A column of several internal blocks, uniform and mixed, sliced or not."""
    ticks = np.arange(50_000, dtype=np.int64) * 1_234_567 + 10**15
    uniform = np.datetime_as_string(ticks.astype("M8[us]"), unit="us").tolist()
    mixed = [text if row % 3 else text[:19] if row % 2 else str(tick) for row, (text, tick) in enumerate(zip(uniform, ticks, strict=True))]
    assert np.array_equal(to_ticks(pa.array(uniform))[0], ticks)
    read, valid = to_ticks(pa.array(["x", *mixed])[1:])
    assert valid.all()
    cut = np.array([row % 3 == 0 and row % 2 == 1 for row in range(len(ticks))])
    assert np.array_equal(read, np.where(cut, ticks // 10**6 * 10**6, ticks))
