"""The error of code that does not keep the law: what differed, and the case that shows it."""

from __future__ import annotations

from pathlib import Path


class LawBrokenError(AssertionError):
    """
    A query, function, operator or sink gave other bytes when it was disturbed.

    Args:
        sentence: What differed, after what.
        case: The folder with the fewest events found that show it; None for a sink.
    """

    def __init__(self, sentence: str, case: Path | None = None, listing: str = "") -> None:
        self.sentence, self.case = sentence, case
        shown = f"\n\nA case that shows it, for tidegate test: {case}\n{listing}" if case is not None else ""
        super().__init__(f"{sentence}{shown}")
