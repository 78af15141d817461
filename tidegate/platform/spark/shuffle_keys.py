"""Keys that Spark's hash partitioning spreads evenly. Law: the first keys are the same for every count, so a running stage may add keys."""

from __future__ import annotations


def even_labels(count: int, tasks: int) -> list[int]:
    """Return *count* distinct keys that Spark's hash spreads evenly over *tasks* shuffle partitions."""
    # Spark's hash spreads small numbers unevenly: 0, 1, 2, 3 over two partitions fall 1, 1, 0, 1.
    labels: list[int] = []
    candidate = 0
    for number in range(count):
        while _murmur3_of_int(candidate) % tasks != number % tasks:
            candidate += 1
        labels.append(candidate)
        candidate += 1
    return labels


def same_task(number: int, count: int, tasks: int) -> range:
    """Return which of *count* labels of :func:`even_labels` go to the same task as label *number*, that one included."""
    return range(number % tasks, count, tasks)


def _murmur3_of_int(value: int) -> int:
    """Return Spark's hash of an int column, a signed number."""
    mask, seed = 0xFFFFFFFF, 42

    def rotate_left(word: int, by: int) -> int:
        return ((word << by) | (word >> (32 - by))) & mask

    mixed = rotate_left((value & mask) * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask
    hashed = (rotate_left(seed ^ mixed, 13) * 5 + 0xE6546B64) & mask
    hashed ^= 4
    hashed = (hashed ^ (hashed >> 16)) * 0x85EBCA6B & mask
    hashed = (hashed ^ (hashed >> 13)) * 0xC2B2AE35 & mask
    hashed ^= hashed >> 16
    return hashed - (1 << 32) if hashed >> 31 else hashed
