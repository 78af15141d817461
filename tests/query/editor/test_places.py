"""Editors count columns in units of their encoding; offsets count characters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from query.editor.places import UTF_8, UTF_16, UTF_32, TextPlaces

TEXT = "SELECT '😋' AS x,\n  é FROM a\n"


@pytest.mark.parametrize(
    ("encoding", "behind_smile", "behind_e"),
    [(UTF_8, 12, 4), (UTF_16, 10, 3), (UTF_32, 9, 3)],
)
def test_columns_count_the_units_of_the_encoding(encoding: str, behind_smile: int, behind_e: int) -> None:
    """A character beyond U+FFFF has two units of UTF-16 and four of UTF-8."""
    places = TextPlaces(TEXT, encoding)
    assert places.place(TEXT.index("😋") + 1) == (0, behind_smile)
    assert places.place(TEXT.index("é") + 1) == (1, behind_e)


def test_a_place_beyond_its_line_is_the_lines_end() -> None:
    """And beyond the last line the end of the text."""
    places = TextPlaces(TEXT)
    assert places.offset(0, 1_000) == TEXT.index("\n")
    assert places.offset(9, 0) == len(TEXT)
    assert TextPlaces("").offset(0, 3) == 0


@given(st.text(st.characters(codec="utf-8")), st.sampled_from([UTF_8, UTF_16, UTF_32]))
def test_the_place_of_an_offset_is_that_offset_again(text: str, encoding: str) -> None:
    """Whatever the text holds."""
    places = TextPlaces(text, encoding)
    for offset in range(len(text) + 1):
        assert places.offset(*places.place(offset)) == offset
