"""
Joins the parts of a CTI whose list needs several records.

Law: the list is complete only if the parts 0, 1, ..., parts - 1 follow each other among the channel's CTIs and agree in all but their
lists. Any other CTI of the channel between them discards the earlier parts. So a writer that stops between two parts, or a stale writer,
only costs a list: the last part's ``c`` and ``n`` count like those of any CTI.
"""

from __future__ import annotations

from dataclasses import replace

from ordering.protocol.punctuation import Cti
from ordering.protocol.wire import decode_cti, encode_cti


class ListAssembler:
    """
    Stores the earlier parts of incomplete CTIs: ``incomplete`` has by roster number the parts so far, as one CTI. While it is empty, only
    CTIs in parts need :meth:`add_part`.
    """

    def __init__(self) -> None:
        self.incomplete: dict[int, Cti] = {}

    def add_part(self, cti: Cti) -> tuple[tuple[bytes, int], ...] | None:
        """Add the channel's next CTI or part; return its list if the CTI is complete, None if more parts must follow."""
        before = self.incomplete.pop(cti.number, None)
        if cti.part == 0:
            joined: Cti | None = cti
        elif before is not None and replace(before, listed=(), part=before.part + 1) == replace(cti, listed=()):
            joined = replace(cti, listed=before.listed + cti.listed)
        else:
            joined = None
        if cti.part == cti.parts - 1:
            return joined.listed if joined else ()
        if joined:
            self.incomplete[cti.number] = joined
        return None

    def save(self) -> list[list[str]]:
        """Return the state for :meth:`restore`, as JSON values."""
        return [[data.hex() for data in encode_cti(cti)] for _, cti in sorted(self.incomplete.items())]

    @classmethod
    def restore(cls, saved: list[list[str]], output_partition: int) -> ListAssembler:
        gathering = cls()
        for header, body in saved:
            cti = decode_cti(bytes.fromhex(header), bytes.fromhex(body), output_partition)
            gathering.incomplete[cti.number] = cti
        return gathering
