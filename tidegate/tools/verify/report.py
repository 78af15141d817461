"""The result of a verification as JSON, as text, and as the statement of an attestation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import pyarrow as pa

from ordering.ticks import NEVER, format_tick
from tidegate.tools.verify.stages import Stage


def as_dict(target: str, stages: Sequence[Stage], explanations: Mapping[int, list[str]]) -> dict[str, Any]:
    """Return the result for ``--format json``; *explanations*: lines for each stage, by the stage's index."""
    return {
        "equal": all(stage.is_equal for stage in stages),
        "target": target,
        "stages": [{**stage.as_dict(), "because": explanations.get(index, [])} for index, stage in enumerate(stages)],
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Return the versions of the programs that computed the results."""
    return {"tidegate": version("tidegate"), "pyarrow": pa.__version__, "duckdb": version("duckdb")}


def as_lines(target: str, stages: Sequence[Stage], explanations: Mapping[int, list[str]]) -> Iterator[str]:
    """Yield the result as lines of text."""
    for index, stage in enumerate(stages):
        yield from stage.as_lines()
        yield from (f"  because: {line}" for line in explanations.get(index, []))
        yield from (f"  note: {note}" for note in stage.notes)
    yield _verdict(target, stages)


def _verdict(target: str, stages: Sequence[Stage]) -> str:
    differing = [stage.name for stage in stages if not stage.is_equal]
    if differing:
        return f"different: {', '.join(differing)}"
    last = stages[-1]
    if last.vouched_from_us is None:
        return f"equal, as far as it can be checked: {target} follows from its input, which cannot be vouched for"
    if last.vouched_from_us > (NEVER if last.since_us is None else last.since_us):
        since = format_tick(last.vouched_from_us)
        return f"equal: {target} follows byte for byte, from {since} on from the raw topics, before that from its unverified input"
    since = "" if last.since_us is None else f", from {format_tick(last.since_us)} on"
    return f"equal: {target} follows from the raw topics{since}, byte for byte"


def make_statement(verification: Mapping[str, Any], since_us: int | None, until_us: int | None, at_us: int) -> dict[str, Any]:
    """Return the statement of an attestation for a verification that found no difference; *verification* is the dict of :func:`as_dict`."""
    target = verification["stages"][-1]
    stage_fields = ("kind", "name", "topic", "topic_id", "topic_ids", "reads", "start", "events", "settings", "vouched_from", "notes")
    stages = [{name: stage[name] for name in stage_fields if name in stage} for stage in verification["stages"]]
    published_fields = ("kind", "name", "rows", "from", "until", "partitions", "sha256")
    return {
        "target": verification["target"],
        "at": format_tick(at_us),
        "since": None if since_us is None else format_tick(since_us),
        "until": None if until_us is None else format_tick(until_us),
        "published": [
            {name: published[name] for name in published_fields if name in published}
            for published in target.get("published", [])
            if published["kind"] in ("topic", "files") or published["can_be_attested"]
        ],
        "stages": stages,
        "versions": verification["versions"],
    }
