"""
A CTI whose list needs several records: its parts are put together again.

Law: the list of a CTI is whole only if its parts 0, 1, ..., parts - 1 follow each other among the channel's CTIs and
agree in all but their lists. Anything else of the channel between them undoes what was gathered: a writer that died in
the midst of them, or one that should be gone, costs a list and nothing else, for the last part's ``c`` and ``n`` count
like those of any CTI.
"""

from __future__ import annotations

from dataclasses import replace

from ordering.protocol.punctuation import Cti
from ordering.protocol.wire import decode_cti, encode_cti


class ListAssembler:
    """
    What has come of CTIs whose last part is still to come: one at most for each channel of an output partition.

    Attributes:
        begun: Roster number -> its parts so far, as one. Nearly always empty: then only a CTI in parts need be taken.
    """

    def __init__(self) -> None:
        self.incomplete: dict[int, Cti] = {}

    def add_part(self, cti: Cti) -> tuple[tuple[bytes, int], ...] | None:
        """Take the channel's next CTI or part of one; return its list once it counts, else None: more parts are to come."""
        begun = self.incomplete.pop(cti.number, None)
        if cti.part == 0:
            whole: Cti | None = cti
        elif begun is not None and _is_next_part(begun, cti):
            whole = replace(cti, listed=begun.listed + cti.listed)
        else:
            whole = None
        if cti.part == cti.parts - 1:
            return whole.listed if whole else ()
        if whole:
            self.incomplete[cti.number] = whole
        return None

    def save(self) -> list[list[str]]:
        """Return what :meth:`restore` needs, fit for JSON."""
        return [[octets.hex() for octets in encode_cti(cti)] for _, cti in sorted(self.incomplete.items())]

    @classmethod
    def restore(cls, saved: list[list[str]], output_partition: int) -> ListAssembler:
        """Return what was saved."""
        gathering = cls()
        for header, body in saved:
            cti = decode_cti(bytes.fromhex(header), bytes.fromhex(body), output_partition)
            gathering.incomplete[cti.number] = cti
        return gathering


def _is_next_part(begun: Cti, cti: Cti) -> bool:
    return replace(begun, listed=(), part=begun.part + 1) == replace(cti, listed=())
