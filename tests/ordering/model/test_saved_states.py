"""
States saved by an earlier build of this version go on (``states/make.py`` made the files); states of another version are refused.
"""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.model_runs import Run, batch_of, dropped_in, first_at, model_of, promised, said, tell_case, told
from support.story import Story
from support.strategies import Case, Range

from ordering.errors import ProtocolError
from ordering.model.state import STATE_VERSION
from ordering.policies import Action, Generation, Policies, Shape
from ordering.testing import Record

STATES = sorted((Path(__file__).parent / "states").glob("v*.json"))
_FIRST_OF_ALL = -(2**63)


@dataclass(frozen=True)
class Saved:
    """What a file holds: a case, how far it was walked, and the state as it was written then."""

    case: Case
    walked: int
    head: bytes
    chunks: dict[int, bytes]
    start_us: int
    numbered: dict[int, int]

    @classmethod
    def read(cls, path: Path) -> Saved:
        """Read one file."""
        document: dict[str, Any] = json.loads(path.read_text())
        actions = {name: Action(value) for name, value in document["policies"].items() if name.endswith("_action")}
        case = Case(
            policies=Policies(**(document["policies"] | actions)),
            over=document["over"],
            output_partitions=document["output_partitions"],
            number=document["number"],
            records=tuple(Record(*(part.encode() if isinstance(part, str) else part for part in row)) for row in document["records"]),
            estimates=dict(document["estimates"]),
            ranges=(),
            finish=True,
            imports=dict(document["imports"]),
            joined_us=document["joined_us"],
            generation=Generation(**document["generation"]),
            shape=Shape(document["shape"]),
        )
        return cls(
            case,
            document["walked"],
            json.dumps(document["head"]).encode(),
            {int(number): b64decode(octets) for number, octets in document["chunks"].items()},
            document.get("start_us", _FIRST_OF_ALL),
            {int(channel): n for channel, n in document.get("numbered", {}).items()},
        )

    def rest(self, size: int) -> Case:
        """Return the case cut into batches of *size* offsets from where the state stands."""
        end = self.case.records[-1].offset + 1
        edges = [*range(self.walked, end, size), end]
        cuts = [Range(low, high) for low, high in pairwise(edges)]
        facts = {"estimates": self.case.estimates, "imports": self.case.imports}
        heard = [
            {name: tuple((at, us) for at, us in known.items() if cut.start <= at < cut.end) for name, known in facts.items()}
            for cut in cuts
        ]
        return replace(self.case, ranges=tuple(replace(cut, **laid) for cut, laid in zip(cuts, heard, strict=True)))

    def before(self) -> Story:
        """Tell the story as far as the state had come."""
        case = self.case
        records = case.records[: first_at(case.records, self.walked)]
        facts = [{at: us for at, us in known.items() if at < self.walked} for known in (case.estimates, case.imports)]
        return tell_case(case, records=records, estimates=facts[0], imports=facts[1], finish=False).starting_at(self.start_us)

    def whole(self) -> Story:
        """Tell the story to its end."""
        return tell_case(self.case).starting_at(self.start_us)


def go_on(saved: Saved, size: int) -> Run:
    """Restore a state and walk the rest of its log."""
    case = saved.rest(size)
    model = model_of(case)
    state = model.restore(saved.head, dict(saved.chunks))
    steps = [model.step(state, batch_of(case, cut, finish=cut is case.ranges[-1])) for cut in case.ranges]
    return Run(steps, state)


@pytest.mark.parametrize("size", [7, 10_000])
@pytest.mark.parametrize("path", STATES, ids=lambda path: path.stem)
def test_a_saved_state_goes_on_where_it_was_saved(path: Path, size: int) -> None:
    """Level 1: what follows is what the oracle tells of the whole log; the final promises too."""
    saved = Saved.read(path)
    run, before, story = go_on(saved, size), saved.before(), saved.whole()
    rest = [event for event in told(saved.case, story)[len(before.ordered) :] if event[1] >= saved.numbered.get(event[0], 0)]
    assert len(rest) > 3
    assert run.events() == rest
    assert run.drops() == dropped_in(story)[len(before.dropped) :]
    for channel, ctis in run.channels().items():
        assert said(ctis[-1])[:3] == promised(story, story.snapshots[-1], channel, 0)[:3]


def test_the_states_are_of_the_version_that_this_program_writes() -> None:
    """Without files nothing shows that a state written before a change is read after it."""
    assert len(STATES) == 9
    assert {path.name.partition(".")[0] for path in STATES} == {f"v{STATE_VERSION}"}


def test_a_state_of_a_newer_version_is_refused_by_name() -> None:
    """An older program never guesses at what a newer one has saved, neither in the head nor in a chunk."""
    saved = Saved.read(STATES[0])
    model = model_of(saved.case)
    newer = json.dumps({**json.loads(saved.head), "version": STATE_VERSION + 1}).encode()
    with pytest.raises(ProtocolError, match=f"has version {STATE_VERSION + 1}, this program reads version {STATE_VERSION}") as refusal:
        model.restore(newer, dict(saved.chunks))
    assert refusal.value.fix == "run the version that saved it"
    with pytest.raises(ProtocolError, match="of no version that this program reads"):
        model.restore(saved.head, {number: b"TGC9" + octets[4:] for number, octets in saved.chunks.items()})
