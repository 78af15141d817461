"""
Records in an ordered topic that are none of the protocol: whoever may write to the topic can leave one there.

Law: every reader passes over the same records, so a stranger's record changes nothing that is read. What this protocol wrote and cannot be
read any more is passed over too, and still never lost without a word: the numbers of a channel have no gaps, so the reader waits for the
missing event, and a CTI that counts it stops the reader (PROTOCOL.md, "What a reader must do"). Only a record of a newer version of the
protocol is an error: its events would be lost together with their numbers.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints
from ordering.errors import ProtocolError
from ordering.protocol.wire import (
    CTI_HEADER_BYTES,
    EVENT_HEADER_BYTES,
    PLAIN,
    VERSION,
    VERSION_MAX,
    Kind,
    decode_cti,
    decode_event_headers,
    newer_version,
)

# Version, kind and the six bits of the flags that a plain event never has, in the first word of its header.
_WORD_BYTES = 4
_PLAIN_WORD, _PLAIN_MASK = Kind.EVENT << 8 | PLAIN, 0xFFFCFFFF


def foreign_reason(header: bytes | None, value: bytes | None, where: str = "") -> str:
    """
    Return why a record with this header ``tg`` (None: it has none) and value is none of the protocol; an empty text if it is one.
    ProtocolError (TG-PROTOCOL-VERSION): it may be one of a newer version; *where* names it.
    """
    if header is None:
        return "it has no header tg"
    if len(header) < CTI_HEADER_BYTES or not PLAIN <= header[0] <= VERSION_MAX:
        return "its header tg is none of the protocol"
    if header[0] > VERSION:
        raise newer_version(header[0], "a record", where)
    try:
        if len(header) == EVENT_HEADER_BYTES:
            decode_event_headers([header])
        else:
            decode_cti(header, value or b"", 0)
    except ProtocolError as error:
        return error.what
    return ""


def suspicious_rows(header: pa.Array) -> Ints:
    """Return the rows of a column of headers ``tg`` that are no plain events; all others are sound."""
    lengths = pc.binary_length(header).fill_null(0).to_numpy()
    is_plain = lengths == EVENT_HEADER_BYTES
    _, ends, data = header.buffers()
    if data is not None and is_plain.any():
        rows = np.flatnonzero(is_plain)
        starts = np.frombuffer(ends, dtype=np.int32)[header.offset : header.offset + len(header)][rows]
        first = np.frombuffer(data, dtype=np.uint8)[starts[:, None] + np.arange(_WORD_BYTES)]
        is_plain[rows] = (first.view("<u4")[:, 0] & np.uint32(_PLAIN_MASK)) == _PLAIN_WORD
    return np.flatnonzero(~is_plain)
