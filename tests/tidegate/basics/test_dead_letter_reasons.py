"""The reasons of dead letters are those of the documentation."""

from __future__ import annotations

import re

import pytest
from support.repository import ROOT

from ordering.model.events import Reason
from ordering.proof.explanation import Policy
from tidegate.basics.dead_letter_reasons import DropReason, IngestReason, QueryReason, with_place


@pytest.mark.parametrize(("heading", "reasons"), [("ingest", IngestReason), ("a query", QueryReason)])
def test_the_reasons_are_those_of_the_documentation(heading: str, reasons: type[IngestReason] | type[QueryReason]) -> None:
    """docs/operate/dead-letters.md has a line for each, in the order of the list."""
    section = (ROOT / "docs" / "operate" / "dead-letters.md").read_text().split(f"## Reasons of {heading}\n")[1].split("\n#")[0]
    assert re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE) == [reason.replace("{}", "…") for reason in reasons]


def test_every_policy_that_drops_has_its_reason_in_the_documentation() -> None:
    """A policy's reason is spelled as the model names it."""
    section = (ROOT / "docs" / "operate" / "dead-letters.md").read_text().split("## Dropped events\n")[1].split("\n#")[0]
    assert [reason.name for reason in DropReason] == [
        reason.name for reason in sorted(Reason, key=lambda each: list(Policy).index(Policy[each.name]))
    ]
    assert all(f"`{reason}`" in section for reason in DropReason)


def test_a_reason_has_its_details_and_the_expression() -> None:
    """Braces in a detail stay as they are."""
    text = with_place(QueryReason.WRONG_KIND.text("a {number}", "record"), "v / 2")
    assert text == "a {number} is needed, not record: v / 2"
