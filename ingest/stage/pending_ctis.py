"""
CTIs that wait until the events below them are acknowledged.

Law: what is written after all says of every channel, and of every substream in it, what was due. Where CTIs follow
batches only the newest of a channel is kept, with the lists of those it replaces: a range is read in pieces whose ends
mean nothing. Where they follow events, each stands for a record of the log, and all are kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ordering.policies import Generation
from ordering.protocol.punctuation import Cti

PENDING_MAX = 10_000
"""So many are not kept waiting for the end of a range."""


class PendingCtis:
    """
    The CTIs of one range.

    Args:
        generation: When CTIs are written.
    """

    def __init__(self, generation: Generation) -> None:
        self._newest_only = generation.is_per_batch
        self._newest: dict[int, Cti] = {}
        self._all: list[Cti] = []

    def add(self, ctis: Iterable[Cti]) -> None:
        """Take the CTIs of one step, in their order."""
        if not self._newest_only:
            self._all.extend(ctis)
            return
        for cti in ctis:
            before = self._newest.get(cti.output_partition)
            self._newest[cti.output_partition] = cti if before is None else _merge_lists(before, cti)

    @property
    def is_full(self) -> bool:
        """Whether so many wait that they should be written soon."""
        return len(self._all) >= PENDING_MAX

    def pop_all(self) -> list[Cti]:
        """Return what waits, in the order in which it is to be written, and forget it."""
        ctis = self._all or list(self._newest.values())
        self._newest, self._all = {}, []
        return ctis


def _merge_lists(before: Cti, cti: Cti) -> Cti:
    """Return *cti* with what *before* listed: what it said of a substream holds on, unless c has passed it."""
    if not before.listed:
        return cti
    listed = {**dict(before.listed), **dict(cti.listed)}
    return replace(cti, listed=tuple((key, w) for key, w in sorted(listed.items()) if w > cti.c))
