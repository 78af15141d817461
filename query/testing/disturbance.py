"""
What happens to a run of a query under test, as a value and as the text of a case.

Law: a disturbance is a value, so a difference that it shows can be looked for again: over fewer events, and by ``tidegate test``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

from query.testing.walk import Interruption

Kind = Literal["undisturbed", "again", "interrupted", "repeated", "torn", "started", "apart", "shared", "elsewhere"]
_PLACED: tuple[Kind, ...] = ("repeated", "torn", "started")
_PLAIN: tuple[Kind, ...] = tuple(kind for kind in get_args(Kind) if kind not in (*_PLACED, "interrupted"))
_INTERRUPTION = re.compile(r"(cut|restart|kill) (\d{1,9})(?: back (\d{1,9}))?")


@dataclass(frozen=True)
class Disturbance:
    """What happens to a run."""

    kind: Kind
    interruptions: tuple[Interruption, ...] = ()
    # ``repeated`` and ``torn``: after how many events; ``started``: at which of the instants of results. Counted round.
    place: int = 0

    @classmethod
    def parse(cls, text: str) -> Disturbance:
        """Return what :meth:`__str__` has written; ValueError, with the forms that there are, if it is no such text."""
        words = text.split()
        if text in _PLAIN:
            return cls(text)
        if len(words) == 2 and words[0] in _PLACED and re.fullmatch(r"[1-9]\d{0,8}", words[1]):
            return cls(words[0], place=int(words[1]) - 1)
        found = [_INTERRUPTION.fullmatch(part.strip()) for part in text.split(",")]
        if not all(found):
            raise ValueError(
                f"write {', '.join(_PLAIN)}, {', '.join(f'{kind} 3' for kind in _PLACED)}, or: cut 3, restart 5, kill 7 back 2"
            )
        return cls("interrupted", tuple(Interruption(int(each[2]), each[1], int(each[3] or 0)) for each in found if each))  # type: ignore[arg-type]

    def __str__(self) -> str:
        if self.kind == "interrupted":
            return ", ".join(f"{each.kind} {each.after}{f' back {each.back}' * (each.kind == 'kill')}" for each in self.interruptions)
        return f"{self.kind} {self.place + 1}" if self.kind in _PLACED else self.kind

    def nearby(self, events: int) -> Iterator[Disturbance]:
        """Yield the same one at each place of a log of so many events, the nearest first."""
        match self.kind, self.interruptions:
            case "interrupted", (only,):
                for after in sorted(range(1, events + 1), key=lambda after: abs(after - only.after)):
                    yield replace(self, interruptions=(replace(only, after=after),))
            case "interrupted", several:
                for shift in range(max(several).after):
                    yield replace(self, interruptions=tuple(replace(each, after=max(each.after - shift, 1)) for each in several))
            case (("repeated" | "torn" | "started"), _):
                for place in sorted(range(events), key=lambda place: abs(place - self.place)):
                    yield replace(self, place=place)
            case _:
                yield self
