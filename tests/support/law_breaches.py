"""Laws that the simulation and the fault campaign check, and how a breach of one is told."""

from __future__ import annotations


class BrokenLawError(AssertionError):
    """A check failed: *law* names it, the text tells where."""

    def __init__(self, law: str, text: str) -> None:
        super().__init__(f"{law}: {text}")
        self.law = law


def demand(holds: bool, law: str, text: str) -> None:
    """
    Check one thing.

    Raises:
        BrokenLawError: It does not hold.
    """
    if not holds:
        raise BrokenLawError(law, text)
