"""
CTIs that wait until the events below them are acknowledged.
Law: the CTIs written make every promise that was due. If CTIs follow batches, only a channel's newest is kept, with the lists of those it
replaces, until the range ends or much has been written without any. If they follow events or time, each belongs to a record of the log,
and all are kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ordering.policies import Generation
from ordering.protocol.punctuation import Cti

# If this many wait, they are written before the end of the range.
PENDING_MAX = 10_000


class PendingCtis:
    """The CTIs of one range."""

    def __init__(self, generation: Generation) -> None:
        self._newest_only = generation.is_per_batch
        self._newest: dict[int, Cti] = {}
        self._all: list[Cti] = []

    def add(self, ctis: Iterable[Cti]) -> None:
        if not self._newest_only:
            self._all.extend(ctis)
            return
        for cti in ctis:
            before = self._newest.get(cti.output_partition)
            self._newest[cti.output_partition] = cti if before is None else _merge_lists(before, cti)

    @property
    def is_full(self) -> bool:
        return len(self._all) >= PENDING_MAX

    @property
    def lists_substreams(self) -> bool:
        """Whether a CTI that replaces others has a list, which is shorter the later it is written."""
        return any(cti.listed for cti in self._newest.values())

    def pop_all(self) -> list[Cti]:
        """Return the CTIs in the order in which they must be written, and forget them."""
        ctis = self._all or list(self._newest.values())
        self._newest, self._all = {}, []
        return ctis


def _merge_lists(before: Cti, cti: Cti) -> Cti:
    """Return *cti* with the substreams that *before* listed: their entries still hold unless c has passed them."""
    if not before.listed:
        return cti
    listed = {**dict(before.listed), **dict(cti.listed)}
    return replace(cti, listed=tuple((key, w) for key, w in sorted(listed.items()) if w > cti.c))
