"""
Wakes a task of an open batch once the end of the batch is requested (:mod:`tidegate.platform.checkpoint.open_batches`), so that it need not
look ten times a second whether it is.

Law: a watch only makes a wait shorter. What is true is in the file: whoever wakes, or waits no longer, looks there. Linux tells only of
changes that this machine makes; batches stay open only in jobs of one machine.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path
from typing import Self

from tidegate.platform.checkpoint.open_batches import END_FILE

# The request is replaced by a new file: the old one loses its name, which changes its attributes.
_ATTRIBUTES, _MOVED, _DELETED = 0x4, 0x800, 0x400


class EndWatch:
    """
    A descriptor that can be read once another request has replaced the one in a checkpoint *folder*; -1 if there is none to watch. A
    context manager; whoever has entered it looks at the request once more before the first wait.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self.descriptor = folder, -1

    def __enter__(self) -> Self:
        library = ctypes.CDLL(None, use_errno=True)
        if hasattr(library, "inotify_init1"):
            self.descriptor = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            name = os.fsencode(self._folder / END_FILE)
            if self.descriptor >= 0 and library.inotify_add_watch(self.descriptor, name, _ATTRIBUTES | _MOVED | _DELETED) < 0:
                self._close()
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def forget(self) -> bool:
        """
        Forget what has happened so far, so that the descriptor can be read only after more has; return whether anything had: then the
        request is to be looked at.
        """
        with suppress(BlockingIOError):
            return self.descriptor >= 0 and bool(os.read(self.descriptor, 4_096))
        return False

    def _close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
