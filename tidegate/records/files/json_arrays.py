"""
JSON values over several lines: a file that is one JSON array of records, which many tools write instead of one object a line, or a sequence
of objects that take several lines each, as ``jq`` and ``json.dumps(indent=2)`` write them.

Law: the elements and their numbers, from 1, depend on the file alone, not on how it is cut into pieces. Text between two commas
is an element, even if it cannot be parsed. After an array may come others, and objects, each an element. Only the current element is kept
in memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import BinaryIO

import orjson

_SPACE = b" \t\r\n"
BOM = b"\xef\xbb\xbf"
_SIGN = re.compile(rb'["\\\[\]{},]')
_QUOTE_END = re.compile(rb'["\\]')
_OPENING, _CLOSING = b"[{", b"]}"
_PEEK_BYTES = 4_096
# How much of a file is read to see whether its first object ends on a later line.
_PEEK_BYTES_MAX = 2**20


class JsonForm(Enum):
    """How a file holds its JSON records."""

    LINES = "one object a line"
    ARRAY = "an array of objects first"
    OBJECTS = "objects over several lines each"


def detect_form(source: BinaryIO) -> tuple[JsonForm, bytes]:
    """Return how *source* holds its records, and the bytes that were read to find out: of most files only the first line."""
    read = getattr(source, "read1", source.read)
    peeked = b""
    # A pipe may never send more, so no more is read than decides.
    while (form := _form_of(peeked)) is None and len(peeked) <= _PEEK_BYTES_MAX:
        piece = read(max(_PEEK_BYTES, len(peeked)))
        if not piece:
            # The last line may lack its end.
            form = _form_of(peeked + b"\n")
            break
        peeked += piece
    return form or JsonForm.LINES, peeked


def _form_of(peeked: bytes) -> JsonForm | None:
    """Return the form of a file that begins with these bytes; None if they do not decide."""
    text = peeked.removeprefix(BOM).lstrip(_SPACE)
    if text[:1] in (b"", b"["):
        opening = text.translate(None, _SPACE)[:2]
        return None if len(opening) < 2 else JsonForm.ARRAY if opening in (b"[{", b"[]") else JsonForm.LINES
    first_line, newline, others = text.partition(b"\n")
    if text[:1] != b"{":
        return JsonForm.LINES
    if not newline:
        return None
    first = next(ObjectElements(len(text)).feed(text), b"")
    if len(first) > len(first_line):
        return JsonForm.OBJECTS if _is_object(first) else JsonForm.LINES
    # The first line may be a record that was cut off; then a record follows in a line of its own.
    if first or any(_is_object(line) for line in others.split(b"\n")[:-1] if line.startswith(b"{")):
        return JsonForm.LINES
    return None


def _is_object(text: bytes) -> bool:
    return text[:1] == b"{" and is_json(text)


def is_json(text: bytes) -> bool:
    """Return whether a text is one JSON value."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


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
            if (cut := self._cut(sign, match.start())) is not None:
                yield from self._element(piece[element_start : cut[0]])
                element_start = cut[1]
        self._keep(piece[element_start:])

    def flush(self) -> Iterator[bytes]:
        """Yield the element that the end of the file leaves open."""
        yield from self._element(b"")

    def _cut(self, sign: bytes, at: int) -> tuple[int, int] | None:
        """Count brackets; return where the element before *sign*, which stands outside of strings, ends, and where the next begins."""
        if sign in _OPENING:
            self._depth += 1
            return (at, at + 1) if self._depth == 1 and sign == b"[" else None
        if sign in _CLOSING:
            # A closing bracket too many must not end the search for elements.
            self._depth = max(self._depth - 1, 0)
            return (at, at + 1) if self._depth == 0 and sign == b"]" else None
        return (at, at + 1) if self._depth == 1 else None

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


class ObjectElements(ArrayElements):
    """The objects of a sequence, found piece by piece; commas may stand between them."""

    def _cut(self, sign: bytes, at: int) -> tuple[int, int] | None:
        if sign in _OPENING:
            self._depth += 1
            return (at, at) if self._depth == 1 else None
        if sign in _CLOSING:
            self._depth = max(self._depth - 1, 0)
            return (at + 1, at + 1) if self._depth == 0 else None
        return (at, at + 1) if self._depth == 0 else None


class MixedElements(ArrayElements):
    """The objects of a sequence and the elements of the arrays in it, found piece by piece."""

    def __init__(self, element_bytes_max: int) -> None:
        super().__init__(element_bytes_max)
        self._in_object = False

    def _cut(self, sign: bytes, at: int) -> tuple[int, int] | None:
        if sign in _OPENING and self._depth == 0:
            self._depth, self._in_object = 1, sign == b"{"
            return at, at if self._in_object else at + 1
        if sign in _CLOSING and self._depth == 1 and self._in_object:
            self._depth = 0
            return at + 1, at + 1
        if self._depth == 0 and sign == b",":
            return at, at + 1
        return None if self._depth == 1 and self._in_object and sign == b"," else super()._cut(sign, at)
