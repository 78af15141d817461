"""
Places in a text: offsets of characters, and the lines and columns in which editors count.

Editors count columns in units of an encoding that they agree on: most in those of UTF-16, where a character beyond U+FFFF has two.
Law: the place of an offset is that offset again, unless it lies in the middle of a character.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

UTF_8, UTF_16, UTF_32 = "utf-8", "utf-16", "utf-32"


@dataclass(frozen=True)
class TextPlaces:
    """The places of a text, with columns in units of *encoding*."""

    text: str
    encoding: str = UTF_16

    @cached_property
    def _starts(self) -> list[int]:
        """The offset at which each line begins."""
        starts = [0]
        while (end := self.text.find("\n", starts[-1])) >= 0:
            starts.append(end + 1)
        return starts

    def place(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset, both from 0."""
        line = bisect_right(self._starts, offset) - 1
        return line, sum(map(self._units, self.text[self._starts[line] : offset]))

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a place; beyond the end of a line that end, beyond the last line the end of the text."""
        if line >= len(self._starts):
            return len(self.text)
        start = self._starts[line]
        end = self._starts[line + 1] - 1 if line + 1 < len(self._starts) else len(self.text)
        offset = start
        while offset < end and column > 0:
            column -= self._units(self.text[offset])
            offset += 1
        return offset

    def _units(self, character: str) -> int:
        if self.encoding == UTF_32:
            return 1
        if self.encoding == UTF_8:
            return len(character.encode("utf-8", "surrogatepass"))
        return 2 if character > "\uffff" else 1
