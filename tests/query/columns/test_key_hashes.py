"""The law of hashes: among the rows found are all that have one of the keys asked for, where both have keys of the same types."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from query.columns.key_hashes import KeyHashes

PAIRS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["a", "b", "", None, "ä"]), st.sampled_from([0.0, -0.0, 1.5, None])), max_size=30
)


def keys_of(rows: list[tuple[int, str | None, float | None]]) -> pa.Table:
    """A table of keys: a substream, a text, a float."""
    sub, text, number = ([row[at] for row in rows] for at in range(3))
    return pa.table({"sub": pa.array(sub, pa.int64()), "k0_s": pa.array(text, pa.string()), "k1_f": pa.array(number, pa.float64())})


@given(PAIRS, PAIRS)
def test_no_row_with_a_key_asked_for_is_missed(rows: list[tuple[int, str, float]], asked: list[tuple[int, str, float]]) -> None:
    """They come in their order, each once; the two zeros are equal."""
    index, wanted = KeyHashes.of(keys_of(rows)), KeyHashes.of(keys_of(asked))
    found = index.matching_rows(wanted).to_pylist()
    assert index.is_comparable_to(wanted)
    assert found == sorted(set(found))
    assert set(found) >= {at for at, row in enumerate(rows) if row in asked}
    assert len(found) <= len(rows)


def test_keys_of_several_types_are_not_told_apart_by_hashes() -> None:
    """A bigint may equal a float: where types differ, or one key has two, every row has to be looked at."""
    bigints, floats = (KeyHashes.of(pa.table({"sub": [0], "k0_" + kind: [1]})) for kind in "if")
    both = KeyHashes.of(pa.table({"sub": [0, 0], "k0_i": [1, None], "k0_f": [None, 1.5]}))
    assert bigints.is_comparable_to(bigints)
    assert not bigints.is_comparable_to(floats)
    assert not both.is_comparable_to(both)
