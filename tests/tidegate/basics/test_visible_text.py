"""Texts that we write into TOML."""

from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from tidegate.basics.visible_text import quote_toml


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_toml_reads_a_text_as_it_was_quoted(text: str) -> None:
    """Whatever is in it; a half of a surrogate pair is no text."""
    assert tomllib.loads(f"a = {quote_toml(text)}") == {"a": text}
