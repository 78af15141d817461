"""
A file that is one JSON array of records, which many tools write instead of one object a line.

Law: the elements and their numbers, from 1, depend on the file alone, not on how it is cut into pieces. Text between two commas
is an element, even if it cannot be parsed. One array may follow another. Only the current element is kept in memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

_SPACE = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
_SIGN = re.compile(rb'["\\\[\]{},]')
_QUOTE_END = re.compile(rb'["\\]')
_OPENING, _CLOSING = b"[{", b"]}"


def detect_array(source: BinaryIO) -> tuple[bool, bytes]:
    """Return whether *source* begins as an array of objects, and the bytes that were read to find out."""
    read = getattr(source, "read1", source.read)
    peeked = b""
    # The first two characters that are not spaces decide. A pipe may never send more, so no more is read.
    while len(opening := peeked.removeprefix(_BOM).translate(None, _SPACE)[:2]) < 2 and (not opening or opening == b"["):
        piece = read(4096)
        if not piece:
            break
        peeked += piece
    return opening in (b"[{", b"[]"), peeked


class ArrayElements:
    """The elements of arrays, found piece by piece; an element longer than *element_bytes_max* is cut to one byte more than that."""

    def __init__(self, element_bytes_max: int) -> None:
        self._element_bytes_max = element_bytes_max
        self._depth, self._in_text, self._is_escaped = 0, False, False
        self._kept: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the elements that end in *piece*, the next part of the file."""
        element_start, position = 0, 0
        while position < len(piece):
            if self._is_escaped:
                self._is_escaped, position = False, position + 1
                continue
            # The regular expression jumps to the next sign: most bytes are no sign.
            match = (_QUOTE_END if self._in_text else _SIGN).search(piece, position)
            if match is None:
                break
            sign, position = match[0], match.end()
            # A backslash outside of strings is an error; treating it as part of the element leaves the error to the JSON parser.
            if self._in_text or sign in b'"\\':
                self._is_escaped = self._in_text and sign == b"\\"
                self._in_text = self._in_text != (sign == b'"')
                continue
            if self._ends_element(sign):
                yield from self._element(piece[element_start : match.start()])
                element_start = position
        self._keep(piece[element_start:])

    def flush(self) -> Iterator[bytes]:
        """Yield the element that the end of the file leaves open."""
        yield from self._element(b"")

    def _ends_element(self, sign: bytes) -> bool:
        """Count brackets; return whether *sign*, which is outside of strings, ends an element or begins an array."""
        if sign in _OPENING:
            self._depth += 1
            return self._depth == 1 and sign == b"["
        if sign in _CLOSING:
            # A closing bracket too many must not end the search for elements.
            self._depth = max(self._depth - 1, 0)
            return self._depth == 0 and sign == b"]"
        return self._depth == 1

    def _keep(self, part: bytes) -> None:
        # One byte more than the maximum shows the reader that the element is too long.
        room = self._element_bytes_max + 1 - self._size
        if room > 0 and part:
            self._kept.append(part[:room])
            self._size += len(self._kept[-1])

    def _element(self, end: bytes) -> Iterator[bytes]:
        self._keep(end)
        element = b"".join(self._kept).strip(_SPACE)
        self._kept, self._size = [], 0
        if element:
            yield element
