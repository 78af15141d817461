"""A dead letter always fits, and says what it was; the broker's part is in tests/integration/poison."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from ordering.columns.framed_payloads import Headers
from tidegate.platform.kafka.dead_letters import DeadLetter

SIZES = st.sampled_from([0, 1, 100, 127, 128, 129, 1000, 5000, 16_383, 16_384, 70_000])
OCTETS = st.none() | st.builds(lambda size, tail: b"x" * size + tail, SIZES, st.binary(max_size=9))
REASONS = st.text(max_size=40) | st.builds(lambda size: "ä{}" * size, SIZES)
LETTERS = st.builds(DeadLetter, REASONS, st.sampled_from(["a-0@1", f"{'t' * 249}-123456@{2**63 - 1}"]), OCTETS, OCTETS)
LIMITS = st.integers(0, 3000) | st.sampled_from([4096, 16_000, 70_000, 200_000])


def varint(number: int) -> int:
    """Return how many bytes Kafka writes a length in: seven bits a byte, zigzag."""
    return max((2 * number).bit_length() + 6, 7) // 7


def batch_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return the size of a batch with this record alone, as Kafka's message format 2 has it; its time and offset as large as can be."""
    parts = [len(octets or b"") + varint(len(octets or b"")) for octets in (key, value)]
    parts += [len(name) + varint(len(name)) + len(octets or b"") + varint(len(octets or b"")) for name, octets in headers]
    record = 1 + 10 + 5 + varint(len(headers)) + sum(parts)
    return 61 + varint(record) + record


def at_limits(letter: DeadLetter) -> DeadLetter:
    """Return the letter with views instead of bytes, as a stage has them."""
    key, value = (None if octets is None else memoryview(octets) for octets in (letter.key, letter.value))
    return DeadLetter(letter.reason, letter.origin, key, value)


@given(LETTERS, LIMITS)
def test_a_letter_fits_or_is_a_pointer_alone(letter: DeadLetter, limit: int) -> None:
    """Whatever its size, as the broker counts it; a limit below its headers leaves these, with a short reason."""
    cut = at_limits(letter).cut(limit)
    size = batch_bytes(cut.key, cut.value, cut.headers)  # type: ignore[arg-type]
    assert size <= cut.size_bytes
    assert cut.size_bytes <= limit or (not cut.key and not cut.value and size < 1500)


@given(LETTERS, LIMITS)
def test_a_letter_is_as_it_was_or_says_how_it_was(letter: DeadLetter, limit: int) -> None:
    """What fits is not touched; what is cut is a prefix, with its full size, and its hash if it lacks anything; null stays null."""
    cut, headers = at_limits(letter).cut(limit), dict(at_limits(letter).cut(limit).headers)
    assert headers["origin"] == letter.origin.encode()
    if letter.size_bytes <= limit:
        assert (cut, set(headers)) == (letter, {"reason", "origin"})
        return
    assert letter.reason.startswith(cut.reason)
    for name, was, now in (("key", letter.key, cut.key), ("value", letter.value, cut.value)):
        assert isinstance(now, bytes | None)
        if was is None:
            assert now is None
            assert f"{name}_bytes" not in headers
            continue
        assert now is not None
        assert bytes(was).startswith(now)
        assert headers[f"{name}_bytes"] == b"%d" % len(was)
        hashed = hashlib.sha256(was).hexdigest().encode() if len(now) < len(was) else None
        assert headers.get(f"{name}_sha256") == hashed


@given(LETTERS, LIMITS, LIMITS)
def test_a_letter_cut_twice_is_as_if_cut_once(letter: DeadLetter, first: int, second: int) -> None:
    """A topic's limit that is lowered again and again leaves the same as the last one, and one that is raised adds nothing."""
    cut = letter.cut(first)
    once = letter.cut(min(first, second))
    assert cut.cut(second) == once or letter.size_bytes <= max(first, second)


@given(LETTERS, LIMITS)
def test_little_room_is_left_unused(letter: DeadLetter, limit: int) -> None:
    """A letter is cut no more than it must, and a key is not lost to a large value."""
    cut = letter.cut(limit)
    if cut.uncut is not None and len(cut.value or b"") < len(letter.value or b"") and cut.value:
        assert limit - cut.size_bytes < 2 * 100
        assert len(cut.key or b"") in {len(letter.key or b""), len(cut.value), len(cut.value) - 1, len(cut.value) + 1}
