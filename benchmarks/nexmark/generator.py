"""
Nexmark's events, made by whole columns: people, auctions and bids of an auction house, as the public benchmark draws them.

Of 50 events in a row one is a new person, three are new auctions, 46 are bids. Half of all bids are on one hot auction of the last
hundred, three quarters by one hot bidder, three quarters of all auctions by one hot seller; prices spread over six powers of ten,
half of all bids come through one of four channels, the others through one of 10,000, and each event is padded to its size.

Law: the same :class:`Made` gives the same events in the same order, however they are cut into pieces afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Ints = NDArray[np.int64]

KINDS = "person", "auction", "bid"
"""Names by event_type: 0, 1, 2."""
LAYOUTS, ORDERS = ("one", "three"), ("ordered", "disordered", "ties")
FIRST_MS = 1_436_918_400_000
"""2015-07-15T00:00:00Z, where the benchmark's time begins."""
SIDE_ROWS = 10_000
_FIRST_ID, _FIRST_CATEGORY, _CATEGORIES = 1_000, 10, 5
_EPOCH, _AUCTIONS = 50, 3
_IN_FLIGHT, _ACTIVE, _LEAD, _HOT_EVERY = 100, 1_000, 10, 100
_HOT_AUCTION, _HOT_BIDDER, _HOT_SELLER = 1 / 2, 3 / 4, 3 / 4
_SIZES = 200, 500, 100
_PIECE_EPOCHS = 2_000
_HOT_CHANNELS, _CHANNELS = ("Google", "Facebook", "Baidu", "Apple"), 10_000
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne")
_FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")


@dataclass(frozen=True)
class Made:
    """
    Which events are made.

    Args:
        events: So many.
        order: ordered: by time, ten in a millisecond at the default rate. disordered: each comes up to *bound_ms* after its time.
            ties: by time, all times in whole seconds.
        bound_ms: How far out of order they come, if disordered.
        rate: Events in a second of event time.
        first_ms: Time of the first one.
        seed: Draws everything.
    """

    events: int
    order: str = "ordered"
    bound_ms: int = 2_000
    rate: int = 10_000
    first_ms: int = FIRST_MS
    seed: int = 1


@dataclass(frozen=True)
class Piece:
    """Some events in the order in which they come: kind (event_type), the object as JSON, event time and arrival."""

    kind: NDArray[np.int8]
    value: pa.Array
    time_ms: Ints
    arrival_ms: Ints

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> Piece:
        """Return the events at some places, or those of a mask, in that order."""
        rows = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        return Piece(self.kind[rows], self.value.take(pa.array(rows)), self.time_ms[rows], self.arrival_ms[rows])

    def nested(self, arrivals: bool = False) -> pa.Array:
        """Return the payloads of the one-topic layout; members of other kinds are absent. *arrivals* adds the arrival, for files."""
        heads = [f'"event_type":{kind},"{name}":' for kind, name in enumerate(KINDS)]
        head = pa.array(heads).take(pa.array(self.kind))
        return _join("{", _arrived(self) if arrivals else "", head, self.value, "}")

    def flat(self, arrivals: bool = False) -> pa.Array:
        """Return the payloads of the three-topics layout."""
        return _join("{", _arrived(self), pc.utf8_slice_codeunits(self.value, 1)) if arrivals else self.value


def pieces(made: Made) -> Iterator[Piece]:
    """Yield all events in the order in which they come."""
    waiting: Piece | None = None
    for start in range(0, made.events, _PIECE_EPOCHS * _EPOCH):
        piece = _piece(made, start, min(_PIECE_EPOCHS * _EPOCH, made.events - start))
        if made.order != "disordered":
            yield piece
            continue
        both = piece if waiting is None else _concatenated(waiting, piece)
        both = both.take(np.argsort(both.arrival_ms, kind="stable"))
        end = start + len(piece.kind)
        # What comes in later pieces comes at its time at the earliest.
        is_due = both.arrival_ms < _time_ms(made, np.array([end]))[0] if end < made.events else np.ones(len(both.kind), bool)
        yield both.take(is_due)
        waiting = both.take(~is_due)


def write_files(made: Made, layout: str, folder: Path, arrivals: bool = False) -> dict[str, Path]:
    """
    Have the events as NDJSON in *folder*, one file an input; return them by input. Files that are there are not written again.

    *arrivals*: with the field EventEnqueuedUtcTime, which files need where a query asks when events came.
    """
    name = f"{made.events}-{made.order}-{made.bound_ms}-{made.rate}-{made.first_ms}-{made.seed}-{layout}{'-arrivals' * arrivals}"
    inputs = ["nexmark"] if layout == "one" else list(KINDS)
    files = {one: folder / name / f"{one}.ndjson" for one in inputs}
    done = folder / name / "done"
    if done.exists():
        return files
    done.parent.mkdir(parents=True, exist_ok=True)
    open_files = {one: file.open("wb") for one, file in files.items()}
    for piece in pieces(made):
        if layout == "one":
            open_files["nexmark"].write(_lines(piece.nested(arrivals)))
            continue
        for kind, one in enumerate(KINDS):
            open_files[one].write(_lines(piece.take(piece.kind == kind).flat(arrivals)))
    for file in open_files.values():
        file.close()
    done.touch()
    return files


def write_side(folder: Path) -> Path:
    """Have the side input of q13 in *folder*: a text for each remainder."""
    file = folder / "side_input.ndjson"
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps({"key": number, "value": str(number)}) + "\n" for number in range(SIDE_ROWS)))
    return file


def _piece(made: Made, start: int, count: int) -> Piece:
    rng = np.random.default_rng([made.seed, start])
    number = start + np.arange(count)
    offset = number % _EPOCH
    kind = np.where(offset == 0, 0, np.where(offset <= _AUCTIONS, 1, 2)).astype(np.int8)
    time_ms = _time_ms(made, number)
    makers = _people, _auctions, _bids
    values = [make(made, rng, number[kind == each], time_ms[kind == each]) for each, make in enumerate(makers)]
    back = np.empty(count, np.int64)
    back[np.argsort(kind, kind="stable")] = np.arange(count)
    delay_ms = rng.integers(0, made.bound_ms, count, endpoint=True) if made.order == "disordered" else 0
    return Piece(kind, pa.concat_arrays(values).take(pa.array(back)), time_ms, time_ms + delay_ms)


def _time_ms(made: Made, number: Ints) -> Ints:
    time_ms = made.first_ms + number * 1_000 // made.rate
    return time_ms // 1_000 * 1_000 if made.order == "ties" else time_ms


def _people(made: Made, rng: np.random.Generator, number: Ints, time_ms: Ints) -> pa.Array:
    count, epoch = len(number), number // _EPOCH
    name = _join(_chosen(rng, _FIRST_NAMES, count), " ", _chosen(rng, _LAST_NAMES, count))
    email = _join(_text(rng, 7, count), "@", _text(rng, 5, count), ".com")
    card = _join(*(part for _ in range(4) for part in (pc.utf8_lpad(_digits(rng.integers(0, 10_000, count)), 4, "0"), " ")))
    card, city, state = pc.utf8_rtrim_whitespace(card), _chosen(rng, _CITIES, count), _chosen(rng, _STATES, count)
    texts = name, email, card, city, state
    extra = _extra(rng, 8 + sum(pc.binary_length(text).to_numpy() for text in texts), _SIZES[0])
    return _object(
        id=epoch + _FIRST_ID, name=name, emailAddress=email, creditCard=card, city=city, state=state, dateTime=_stamp(time_ms), extra=extra
    )


def _auctions(made: Made, rng: np.random.Generator, number: Ints, time_ms: Ints) -> pa.Array:
    count, epoch = len(number), number // _EPOCH
    is_hot = rng.random(count) < _HOT_SELLER
    seller = np.where(is_hot, epoch // _HOT_EVERY * _HOT_EVERY, _any_person(rng, epoch)) + _FIRST_ID
    category = _FIRST_CATEGORY + rng.integers(0, _CATEGORIES, count)
    initial, name, description = _price(rng, count), _text(rng, 20, count), _text(rng, 100, count)
    in_flight_ms = _IN_FLIGHT * _EPOCH // _AUCTIONS * 1_000 // made.rate
    expires_ms = time_ms + 1 + rng.integers(0, max(2 * in_flight_ms, 1), count)
    texts = sum(pc.binary_length(text).to_numpy() for text in (name, description))
    return _object(
        id=_FIRST_ID + epoch * _AUCTIONS + number % _EPOCH - 1,
        itemName=name,
        description=description,
        initialBid=initial,
        reserve=initial + _price(rng, count),
        dateTime=_stamp(time_ms),
        expires=_stamp(expires_ms),
        seller=seller,
        category=category,
        extra=_extra(rng, 48 + texts, _SIZES[1]),
    )


def _bids(made: Made, rng: np.random.Generator, number: Ints, time_ms: Ints) -> pa.Array:
    count, epoch = len(number), number // _EPOCH
    last = epoch * _AUCTIONS + _AUCTIONS - 1
    oldest = np.maximum(last - _IN_FLIGHT, 0)
    other = oldest + rng.integers(0, last - oldest + 1 + _LEAD)
    auction = np.where(rng.random(count) < _HOT_AUCTION, last // _HOT_EVERY * _HOT_EVERY, other) + _FIRST_ID
    is_hot = rng.random(count) < _HOT_BIDDER
    # The person after the hot seller, so that hot bidders and hot sellers are not the same.
    bidder = np.where(is_hot, epoch // _HOT_EVERY * _HOT_EVERY + 1, _any_person(rng, epoch)) + _FIRST_ID
    names, urls = _channels(made.seed)
    hot, cold = rng.integers(0, len(_HOT_CHANNELS), count), len(_HOT_CHANNELS) + rng.integers(0, _CHANNELS, count)
    channel = pa.array(np.where(rng.random(count) < 1 / 2, hot, cold))
    return _object(
        auction=auction,
        bidder=bidder,
        price=_price(rng, count),
        channel=names.take(channel),
        url=urls.take(channel),
        dateTime=_stamp(time_ms),
        extra=_extra(rng, np.full(count, 32), _SIZES[2]),
    )


def _any_person(rng: np.random.Generator, epoch: Ints) -> Ints:
    """Return one of the last thousand people each, or one of the next ten."""
    people = epoch + 1
    active = np.minimum(people, _ACTIVE)
    return people - active + rng.integers(0, active + _LEAD)


def _channels(seed: int) -> tuple[pa.Array, pa.Array]:
    """Return names and addresses of all channels, the hot ones first; nine of ten others say their id in the address."""
    rng, count = np.random.default_rng([seed, -1 & 0xFFFF]), len(_HOT_CHANNELS) + _CHANNELS
    url = _join("https://", "www.nexmark.com/", *(part for _ in range(3) for part in (_text(rng, 5, count, "_"), "/")), "item.htm?query=1")
    number = np.arange(_CHANNELS, dtype=np.uint32)
    bits = np.unpackbits(number.view(np.uint8).reshape(-1, 4), axis=1, bitorder="little")
    mirrored = np.abs(np.packbits(bits, axis=1).view(">i4").reshape(-1).astype(np.int64))
    named = _join("&channel_id=", _digits(mirrored))
    is_named = np.concatenate([np.zeros(len(_HOT_CHANNELS), bool), rng.random(_CHANNELS) < 9 / 10])
    named = pa.concat_arrays([pa.array([""] * len(_HOT_CHANNELS)), named])
    names = pa.concat_arrays([pa.array(_HOT_CHANNELS), _join("channel-", _digits(number))])
    return names, _join(url, pc.if_else(pa.array(is_named), named, ""))


def _price(rng: np.random.Generator, count: int) -> Ints:
    return np.round(10 ** (rng.random(count) * 6) * 100).astype(np.int64)


def _text(rng: np.random.Generator, longest: int, count: int, special: str = " ") -> pa.Array:
    """Return texts of 3 to *longest* - 1 letters; one in 13 is *special*, and spaces at the ends are cut off."""
    lengths = rng.integers(3, longest, count)
    total = int(lengths.sum())
    letters = np.where(rng.integers(0, 13, total) == 0, ord(special), rng.integers(ord("a"), ord("z") + 1, total))
    return pc.utf8_trim_whitespace(_strings(lengths, letters.astype(np.uint8)))


def _extra(rng: np.random.Generator, size: Ints, average: int) -> pa.Array:
    """Return padding, so that events of a *size* have the *average* one, more or less a fifth of what lacks."""
    lacks = np.maximum(average - size, 0)
    spread = np.round(lacks * 0.2).astype(np.int64)
    lengths = np.where(lacks > 0, lacks - spread + rng.integers(0, np.maximum(2 * spread, 1)), 0)
    return _strings(lengths, rng.integers(ord("a"), ord("z") + 1, int(lengths.sum()), dtype=np.uint8))


def _strings(lengths: Ints, letters: NDArray[np.uint8]) -> pa.Array:
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(ends), pa.py_buffer(letters))


def _object(**members: pa.Array | Ints) -> pa.Array:
    """Return JSON objects of columns; texts need no escapes here."""
    parts: list[pa.Array | str] = []
    for place, (name, column) in enumerate(members.items()):
        is_text = isinstance(column, pa.Array)
        quote = '"' if is_text else ""
        parts += [f'{"{" if place == 0 else ","}"{name}":{quote}', column if is_text else _digits(column), quote]
    return _join(*parts, "}")


def _join(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _chosen(rng: np.random.Generator, texts: tuple[str, ...], count: int) -> pa.Array:
    return pa.array(texts).take(pa.array(rng.integers(0, len(texts), count)))


def _digits(numbers: NDArray[np.integer]) -> pa.Array:
    return pa.array(numbers).cast(pa.string())


def _stamp(time_ms: Ints) -> pa.Array:
    """Return times as the benchmark's JSON has them: 2015-07-15 00:00:00.000, UTC."""
    return pa.array(time_ms).cast(pa.timestamp("ms")).cast(pa.string())


def _arrived(piece: Piece) -> pa.Array:
    return _join('"EventEnqueuedUtcTime":"', _stamp(piece.arrival_ms), '",')


def _concatenated(first: Piece, second: Piece) -> Piece:
    return Piece(
        np.concatenate([first.kind, second.kind]),
        pa.concat_arrays([first.value, second.value]),
        np.concatenate([first.time_ms, second.time_ms]),
        np.concatenate([first.arrival_ms, second.arrival_ms]),
    )


def _lines(values: pa.Array) -> bytes:
    text = _join(values, "\n")
    start, end = np.frombuffer(text.buffers()[1], np.int32)[[text.offset, text.offset + len(text)]]
    return memoryview(text.buffers()[2])[start:end].tobytes() if len(text) else b""
