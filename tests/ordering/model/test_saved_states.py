"""
States saved by older programs go on: each file below was written by the version its name begins with (``states/make.py``).
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
from support.strategies import Case, Range

from ordering.model.state import STATE_VERSION
from ordering.policies import Action, Generation, Policies, Shape
from ordering.proof.oracle import Record, Story
from ordering.ticks import NEVER

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
        """Read one file, of any version."""
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
            imports=dict(document.get("imports", [])),
            joined_us=document.get("joined_us", NEVER),
            generation=Generation(**document.get("generation", {})),
            shape=Shape(document.get("shape", "point")),
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
def test_a_state_of_any_version_goes_on_where_it_was_saved(path: Path, size: int) -> None:
    """Level 1: what follows is what the oracle tells of the whole log; the final promises too."""
    saved = Saved.read(path)
    run, before, story = go_on(saved, size), saved.before(), saved.whole()
    rest = [event for event in told(saved.case, story)[len(before.ordered) :] if event[1] >= saved.numbered.get(event[0], 0)]
    assert len(rest) > 3
    assert run.events() == rest
    assert run.drops() == dropped_in(story)[len(before.dropped) :]
    for channel, ctis in run.channels().items():
        assert said(ctis[-1])[:3] == promised(story, story.snapshots[-1], channel, 0)[:3]


@pytest.mark.parametrize("version", range(1, STATE_VERSION + 1))
def test_there_are_states_of_every_version(version: int) -> None:
    """A version without files is not known to be readable: run ``states/make.py`` before it is released."""
    assert [path for path in STATES if path.name.startswith(f"v{version}.")], f"no state of version {version}"
