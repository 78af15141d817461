"""
Mutations: from inputs that are known to inputs that are not.

Law: what comes out follows from the inputs and the random source alone, and is never longer than ``BYTES_MAX``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

BYTES_MAX = 16_384
# Numbers and bytes at which readers change their minds.
_EDGES = (0, 1, 0x1F, 0x20, 0x22, 0x5C, 0x7F, 0x80, 0xC0, 0xED, 0xF4, 0xFE, 0xFF)
_INTEGERS = (0, 1, -1, 2**7, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53, 2**63 - 1, 2**63, -(2**63), 2**64, 10**15, 10**17, 10**18, 10**19)


def _flip(octets: bytearray, random: Random) -> None:
    octets[random.randrange(len(octets))] ^= 1 << random.randrange(8)


def _set_edge(octets: bytearray, random: Random) -> None:
    octets[random.randrange(len(octets))] = random.choice(_EDGES)


def _delete(octets: bytearray, random: Random) -> None:
    start = random.randrange(len(octets))
    del octets[start : start + _length(random)]


def _repeat(octets: bytearray, random: Random) -> None:
    start = random.randrange(len(octets))
    octets[start:start] = octets[start : start + _length(random)] * random.choice((1, 1, 2, 10, 600))


def _insert_random(octets: bytearray, random: Random) -> None:
    start = random.randrange(len(octets) + 1)
    octets[start:start] = random.randbytes(_length(random))


def _insert_number(octets: bytearray, random: Random) -> None:
    number, start = random.choice(_INTEGERS) + random.choice((-1, 0, 0, 1)), random.randrange(len(octets) + 1)
    written = random.choice((str(number).encode(), number.to_bytes(12, "little", signed=True)[: random.choice((1, 2, 4, 8))]))
    octets[start : start + random.choice((0, len(written)))] = written


def _cut(octets: bytearray, random: Random) -> None:
    del octets[random.randrange(len(octets)) :]


def _length(random: Random) -> int:
    return random.choice((1, 1, 2, 3, 4, 8, random.randint(1, 64)))


_MUTATIONS: Sequence[Callable[[bytearray, Random], None]] = (
    _flip,
    _set_edge,
    _set_edge,
    _delete,
    _repeat,
    _insert_random,
    _insert_number,
    _cut,
)


def mutate(known: Sequence[bytes], words: Sequence[bytes], random: Random) -> bytes:
    """Return an input made from one or two of *known*, which is not empty; *words* are pieces that its format has."""
    octets = bytearray(random.choice(known))
    if random.random() < 0.2:
        other = random.choice(known)
        octets[random.randrange(len(octets) + 1) :] = other[random.randrange(len(other) + 1) :]
    for _ in range(random.choice((1, 1, 2, 3, 5, 8))):
        if words and random.random() < 0.3:
            start = random.randrange(len(octets) + 1)
            # Many times in a row they show what takes more than linear time.
            octets[start : start + random.choice((0, 0, 1, 4))] = random.choice(words) * random.choice((1, 1, 1, 1, 1, 1, 30, 3_000))
        elif octets:
            random.choice(_MUTATIONS)(octets, random)
    return bytes(octets[:BYTES_MAX])
