"""
Places of events: the offset of an event's record, or, if records are arrays of events, offset and index as one number.

Law: places are in the order of (offset, index), and the place of a record's first element is the first place of its offset. So whatever
compares offsets compares places, and an event's header holds either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # settings name elements, and most commands that read settings need no arrays
    from ordering.arrays import Ints

ELEMENT_BITS = 20
# The most elements of a record that can be numbered.
ELEMENTS_MAX = 2**ELEMENT_BITS


@dataclass(frozen=True, slots=True)
class Places:
    """How the events of an input are numbered: *bits* of a place hold the index."""

    bits: int = 0

    def place_of(self, offset: int, index: int = 0) -> int:
        """Return the place of an element; of the first one without *index*."""
        return offset << self.bits | index

    def offset_of(self, place: int) -> int:
        """Return the offset of the record at *place*."""
        return place >> self.bits

    def offsets_of(self, places: Ints) -> Ints:
        return places >> self.bits if self.bits else places

    def index_of(self, place: int) -> int:
        return place & ((1 << self.bits) - 1)

    def text(self, place: int) -> str:
        """Return a place as origins are written: ``offset``, or ``offset[index]``."""
        return f"{self.offset_of(place)}[{self.index_of(place)}]" if self.bits else str(place)


OF_RECORDS, OF_ELEMENTS = Places(), Places(ELEMENT_BITS)
