"""
Conversion of columns of payload values to ticks: ISO-8601 text, numbers since the epoch, Arrow dates and timestamps.

Law: the tick of a value depends on the value and the declared unit alone, not on other values, the batch or the column's form. So no cut of
the input changes an event time. An invalid value is marked as invalid; it never raises.

Text is ``YYYY-MM-DD``, optionally followed by ``T`` or a space and ``hh:mm``, ``hh:mm:ss`` or ``hh:mm:ss.`` with 1 to 9 digits, and by a
zone: ``Z``, ``+hh:mm``, ``+hhmm`` or ``+hh`` (default UTC). T and Z may be small, as in RFC 3339. Other text is read as a decimal number. A
float means the shortest decimal that reads back as the same float, so 1700000000.123 is exact. Fractions of a microsecond are rounded down.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal, localcontext
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordering.arrays import Ints, Mask
from ordering.errors import SettingError
from ordering.ticks import DAY_US, TICK_MAX, TICK_MIN

# The units that may be declared. ``auto`` takes ISO text, and numbers by their size: below 1e11 seconds, 1e14 ms, 1e17 us, else ns.
UNITS: Final = ("auto", "iso", "s", "ms", "us", "ns")

# Ticks, 0 if invalid, and which of them are valid.
CheckedTicks = tuple[Ints, Mask]
# Texts of one length, one row for each position in the text and one column for each value.
Characters = npt.NDArray[np.uint8]

_INT64_MAX = 2**63 - 1
_AUTO_BELOW = {"s": 10**11, "ms": 10**14, "us": 10**17, "ns": _INT64_MAX}
_MULTIPLY = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}
_DIVIDE = {"s": 1, "ms": 1, "us": 1, "ns": 1_000}
# From here on a float may lie a quarter of a microsecond from the decimal that it stands for. One operation on it then may round to another
# microsecond, so the decimal itself is read. (Microseconds need no operation; there neighbouring floats lie two apart.)
_FLOAT_COARSE_FROM = {"s": 2.0**32, "ms": 2.0**42, "us": 2.0**53, "ns": 2.0**61}
_NUMBER = re.compile(rb"\+?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?")
_TEXT_LENGTH_MAX = 64
_BLOCK_ROWS = 16_384  # one block of characters and its intermediate columns stay in the processor's cache

_FIRST_YEAR = 1969  # 1969-12-31T23:00:00-02:00 lies in 1970
_MONTH_STARTS = np.arange(f"{_FIRST_YEAR}-01", "10000-02", dtype="datetime64[M]").astype("datetime64[D]").astype(np.int32)
_MONTH_LENGTHS = np.diff(_MONTH_STARTS).astype(np.uint8)


def to_ticks(values: pa.Array | pa.ChunkedArray, unit: str = "auto") -> CheckedTicks:
    """
    Convert a column of timestamps to ticks.

    Args:
        values: A column of text, binary, integer, float, decimal, date or timestamp type, or a dictionary of these; values of any other
            type are invalid.
        unit: One of :data:`UNITS`. ``iso`` accepts only ISO text; ``s`` to ``ns`` accept numbers and numeric text; typed dates and
            timestamps have their own unit.

    Returns:
        Ticks, 0 if invalid; and which are valid: not null, well formed, within [TICK_MIN, TICK_MAX].

    Raises:
        SettingError: *unit* is not one of :data:`UNITS`.
    """
    if unit not in UNITS:
        raise SettingError(f"{unit!r} is not a unit of time", code="TG-TIMESTAMP-UNIT", fix=f"use one of {', '.join(UNITS)}", example="ms")
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    parts = [_read(chunk, unit) for chunk in chunks] or [_all_invalid(0)]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([ticks for ticks, _ in parts]), np.concatenate([valid for _, valid in parts])


def _read(values: pa.Array, unit: str) -> CheckedTicks:
    kind = values.type
    if pa.types.is_dictionary(kind):
        ticks, valid = _read(values.dictionary, unit)
        # A null is mapped to the entry appended after the dictionary, which is invalid.
        index = np.asarray(values.indices.fill_null(len(ticks)))
        return np.append(ticks, 0)[index], np.append(valid, False)[index]
    if pa.types.is_timestamp(kind):
        return _scale(_numbers(values.cast(pa.int64())), kind.unit)
    if pa.types.is_date32(kind):
        return _scale(_numbers(values.cast(pa.int32())).astype(np.int64) * DAY_US, "us")
    if pa.types.is_date64(kind):
        return _scale(_numbers(values.cast(pa.int64())), "ms")
    if _is_text(kind):
        return _read_text(values, unit)
    if unit == "iso":
        return _all_invalid(len(values))
    if pa.types.is_uint64(kind):
        return _read_unsigned(_numbers(values), unit)
    if pa.types.is_integer(kind):
        return _read_integers(_numbers(values).astype(np.int64, copy=False), unit)
    if pa.types.is_floating(kind):
        return _read_floats(_numbers(values).astype(np.float64, copy=False), unit)
    if pa.types.is_decimal(kind):
        return _read_text(values.cast(pa.string()), unit)
    return _all_invalid(len(values))


def _all_invalid(rows: int) -> CheckedTicks:
    return np.zeros(rows, np.int64), np.zeros(rows, np.bool_)


def _is_text(kind: pa.DataType) -> bool:
    is_kind = pa.types
    strings = is_kind.is_string(kind) or is_kind.is_large_string(kind) or is_kind.is_string_view(kind)
    return bool(strings or is_kind.is_binary(kind) or is_kind.is_large_binary(kind) or is_kind.is_binary_view(kind))


def _numbers(values: pa.Array) -> npt.NDArray[Any]:
    # Null becomes 0, which is no valid time in any unit.
    return np.asarray(values.fill_null(0) if values.null_count else values)


def _read_integers(values: Ints, unit: str) -> CheckedTicks:
    if unit != "auto":
        return _scale(values, unit)
    if not len(values):
        return _all_invalid(0)
    smallest, largest = int(values.min()), int(values.max())
    low = 0
    for band, high in _AUTO_BELOW.items():
        if low <= smallest and largest < high:
            return _scale(values, band)
        low = high
    ticks, valid = _all_invalid(len(values))
    for band in _AUTO_BELOW:
        rows = np.flatnonzero(_in_band(values, band))
        ticks[rows], valid[rows] = _scale(values[rows], band)
    return ticks, valid


def _in_band(values: npt.NDArray[Any], unit: str) -> Mask:
    bands = list(_AUTO_BELOW)
    at = bands.index(unit)
    above = values > 0 if at == 0 else values >= _AUTO_BELOW[bands[at - 1]]
    below = np.True_ if unit == "ns" else values < _AUTO_BELOW[unit]
    return np.asarray(above & below, np.bool_)


def _scale(values: Ints, unit: str) -> CheckedTicks:
    multiply, divide = _MULTIPLY[unit], _DIVIDE[unit]
    # Rounded inwards, so that the product stays within the ticks and within int64.
    low = -(-TICK_MIN * divide // multiply)
    high = min(((TICK_MAX + 1) * divide - 1) // multiply, _INT64_MAX)
    valid = (values >= low) & (values <= high)
    kept = values if valid.all() else np.where(valid, values, 0)
    return (kept // divide if divide > 1 else kept * multiply), valid


def _read_unsigned(values: npt.NDArray[np.uint64], unit: str) -> CheckedTicks:
    huge = np.flatnonzero(values > _INT64_MAX)
    ticks, valid = _read_integers(values.astype(np.int64), unit)
    ticks[huge], valid[huge] = _read_decimals((b"%d" % int(value) for value in values[huge]), unit, len(huge))
    return ticks, valid


def _read_floats(values: npt.NDArray[np.float64], unit: str) -> CheckedTicks:
    ticks, valid = _all_invalid(len(values))
    for band in _AUTO_BELOW if unit == "auto" else (unit,):
        meant = _in_band(values, band) if unit == "auto" else values > 0
        fine = meant & (values < _FLOAT_COARSE_FROM[band]) & (values >= 1)
        rows = np.flatnonzero(fine)
        ticks[rows], valid[rows] = _scale(_fine_floats_us(values[rows], band), "us")
        rows = np.flatnonzero(meant & ~fine & np.isfinite(values))
        ticks[rows], valid[rows] = _read_decimals((repr(float(value)).encode() for value in values[rows]), band, len(rows))
    return ticks, valid


def _fine_floats_us(values: npt.NDArray[np.float64], unit: str) -> Ints:
    """Return the nearest microsecond if converting it to *unit* gives the same float, else the value rounded down."""
    multiply, divide = _MULTIPLY[unit], _DIVIDE[unit]
    nearest = np.rint(values * multiply / divide)
    whole = np.floor(values)
    below = whole.astype(np.int64) * multiply // divide + ((values - whole) * multiply // divide).astype(np.int64)
    return np.where(nearest * divide / multiply == values, nearest.astype(np.int64), below)


def _read_decimals(texts: Iterable[bytes], unit: str, rows: int) -> CheckedTicks:
    with localcontext(prec=4 * _TEXT_LENGTH_MAX):
        read = np.fromiter((_decimal_us(text, unit) for text in texts), np.int64, rows)
    return read, read > 0


def _decimal_us(text: bytes, unit: str) -> int:
    """Return the tick of a decimal number, 0 if it is invalid. The caller's decimal context must be wide enough to be exact."""
    if not _NUMBER.fullmatch(text):
        return 0
    value = Decimal(text.decode())
    if unit == "auto":
        unit = next((band for band, high in _AUTO_BELOW.items() if value < high), "ns")
    value *= _MULTIPLY[unit]
    if not TICK_MIN * _DIVIDE[unit] <= value < (TICK_MAX + 1) * _DIVIDE[unit]:
        return 0
    return int(value) // _DIVIDE[unit]


def _read_text(values: pa.Array, unit: str) -> CheckedTicks:
    texts = values.cast(pa.large_binary())
    if not len(texts):
        return _all_invalid(0)
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
    lengths = np.diff(offsets)
    # Length 0 marks values that are invalid in any unit; they are not read below.
    lengths[lengths > _TEXT_LENGTH_MAX] = 0
    if texts.null_count:
        lengths[np.asarray(texts.is_null())] = 0
    ticks, valid = _all_invalid(len(texts))
    for start in range(0, len(texts), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        for length in np.flatnonzero(np.bincount(lengths[block])):
            rows = np.flatnonzero(lengths[block] == length) + start
            if length:
                ticks[rows], valid[rows] = _read_texts(_characters(data, offsets[rows], int(length)), unit)
    return ticks, valid


def _characters(data: Characters, starts: Ints, length: int) -> Characters:
    together = len(starts) * length
    if starts[-1] - starts[0] + length == together:
        return np.ascontiguousarray(data[starts[0] : starts[0] + together].reshape(-1, length).T)
    gathered: Characters = data[starts + np.arange(length)[:, None]]
    return gathered


def _read_texts(chars: Characters, unit: str) -> CheckedTicks:
    is_iso = (chars[4] == ord("-")) & (chars[7] == ord("-")) if len(chars) >= 10 else np.zeros(chars.shape[1], np.bool_)
    if unit in ("auto", "iso") and is_iso.all():
        return _read_iso(chars)
    ticks, valid = _all_invalid(chars.shape[1])
    if unit in ("auto", "iso") and is_iso.any():
        ticks[is_iso], valid[is_iso] = _read_iso(chars[:, is_iso])
    if unit != "iso":
        ticks[~is_iso], valid[~is_iso] = _read_numerals(chars[:, ~is_iso], unit)
    return ticks, valid


def _read_numerals(chars: Characters, unit: str) -> CheckedTicks:
    plain = _all_digits(chars) if len(chars) <= 18 else np.zeros(chars.shape[1], np.bool_)
    ticks, valid = _all_invalid(chars.shape[1])
    ticks[plain], valid[plain] = _read_integers(_decimal_digits(chars[:, plain], np.int64), unit)
    odd = np.flatnonzero(~plain)
    ticks[odd], valid[odd] = _read_decimals((text.tobytes() for text in np.ascontiguousarray(chars[:, odd].T)), unit, len(odd))
    return ticks, valid


def _all_digits(chars: Characters) -> Mask:
    return np.asarray((chars - ord("0")).max(axis=0) <= 9, np.bool_)


def _decimal_digits(chars: Characters, kind: type[np.signedinteger[Any]]) -> npt.NDArray[Any]:
    total: npt.NDArray[Any] = (chars[0] - ord("0")).astype(kind)
    for digit in chars[1:]:
        total *= 10
        total += digit - np.uint8(ord("0"))
    return total


def _read_iso(chars: Characters) -> CheckedTicks:
    zone_length = _zone_lengths(chars)
    if (zone_length == zone_length[0]).all():
        return _read_iso_shape(chars, int(zone_length[0]))
    ticks, valid = _all_invalid(chars.shape[1])
    for length in np.unique(zone_length):
        rows = zone_length == length
        ticks[rows], valid[rows] = _read_iso_shape(chars[:, rows], int(length))
    return ticks, valid


def _zone_lengths(chars: Characters) -> npt.NDArray[np.int8]:
    """Return the length of the zone at the end of each text: 1 for Z; 6, 5 or 3 for an offset; 0 for none."""
    found = np.zeros(chars.shape[1], np.int8)
    if len(chars) >= len("2001-01-01T00:00Z"):
        for length in (3, 5, 6):
            found[(chars[-length] == ord("+")) | (chars[-length] == ord("-"))] = length
        found[_is_letter(chars[-1], "z")] = 1
    return found


def _is_letter(chars: Characters, small: str) -> Mask:
    """Return where a letter stands, whether small or capital: they differ in one bit."""
    return np.asarray((chars | np.uint8(0x20)) == ord(small), np.bool_)


def _read_iso_shape(chars: Characters, zone_length: int) -> CheckedTicks:
    """Read texts that all have the same length and zone length, so each character position has one meaning."""
    body, zone = chars[: len(chars) - zone_length], chars[len(chars) - zone_length :]
    size = len(body)
    if size not in (10, 16, 19) and not 21 <= size <= 29:
        return _all_invalid(chars.shape[1])
    days, valid = _read_date(body)
    second_of_day = np.zeros(len(days), np.int32)
    if size > 10:
        valid &= (_is_letter(body[10], "t") | (body[10] == ord(" "))) & (body[13] == ord(":"))
        second_of_day += _two_digits(body, 11, 23, valid) * np.int32(3600)
        second_of_day += _two_digits(body, 14, 59, valid) * np.int32(60)
    if size > 16:
        valid &= body[16] == ord(":")
        second_of_day += _two_digits(body, 17, 59, valid)
    if zone_length > 1:
        second_of_day -= _zone_offset_s(zone, valid)
    ticks = (days * np.int64(86_400) + second_of_day) * np.int64(1_000_000)
    if size > 19:
        valid &= (body[19] == ord(".")) & _all_digits(body[20:])
        ticks += _decimal_digits(body[20:26], np.int32) * np.int64(10 ** max(26 - size, 0))
    valid &= (ticks >= TICK_MIN) & (ticks <= TICK_MAX)
    return (ticks if valid.all() else np.where(valid, ticks, 0)), valid


def _read_date(body: Characters) -> tuple[npt.NDArray[np.int32], Mask]:
    valid = _all_digits(body[[0, 1, 2, 3, 5, 6, 8, 9]])
    month, day = _pair(body, 5), _pair(body, 8)
    at = (_decimal_digits(body[:4], np.int32) - _FIRST_YEAR) * 12 + month - 1
    valid &= (month >= 1) & (month <= 12) & (at >= 0) & (day >= 1)
    at[~valid] = 0
    valid &= day <= _MONTH_LENGTHS[at]
    return _MONTH_STARTS[at] + day - np.int32(1), valid


def _pair(chars: Characters, at: int) -> Characters:
    zero = np.uint8(ord("0"))
    number: Characters = (chars[at] - zero) * np.uint8(10) + (chars[at + 1] - zero)
    return number


def _two_digits(chars: Characters, at: int, largest: int, valid: Mask) -> Characters:
    """Return the two-digit number at position *at*; clear *valid* where it is no number or exceeds *largest*."""
    number = _pair(chars, at)
    valid &= _all_digits(chars[at : at + 2]) & (number <= largest)
    return number


def _zone_offset_s(zone: Characters, valid: Mask) -> npt.NDArray[np.int32]:
    offset_s = _two_digits(zone, 1, 23, valid) * np.int32(3600)
    if len(zone) == len("+hh:mm"):
        valid &= zone[3] == ord(":")
    if len(zone) > len("+hh"):
        offset_s = offset_s + _two_digits(zone, len(zone) - 2, 59, valid) * np.int32(60)
    return np.where(zone[0] == ord("-"), -offset_s, offset_s)
