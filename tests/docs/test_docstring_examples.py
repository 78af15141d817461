"""The examples in docstrings are executed: each shows a core type at work, and what it prints is true."""

from __future__ import annotations

import doctest
import re
from importlib import import_module

import pytest
from support.repository import ROOT, tracked_texts

FUNCTIONS = "tidegate.language.expressions.functions"
"""Each family of functions shows what it does."""
MODULES = (
    "ingest.tuning.questions",
    "ordering",
    "ordering.model.timelines",
    "ordering.model.watermark",
    "ordering.policies",
    "ordering.protocol.reader",
    "query.engine.program",
    "sinks.base",
    "tidegate.basics.budget",
    "tidegate.ordered_topic.decode",
    "tidegate.ordered_topic.tails",
    *(
        f"{FUNCTIONS}.{family}"
        for family in (
            "column_functions",
            "column_patterns",
            "conditional",
            "conversions",
            "dates",
            "extension_aggregates",
            "geography",
            "numeric",
            "operators",
            "patterns",
            "records",
            "texts",
            "zoned_times",
        )
    ),
)


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_module_are_true(module: str) -> None:
    """Each module of the list has some."""
    result = doctest.testmod(import_module(module))
    assert result.attempted
    assert not result.failed


def test_every_example_is_executed() -> None:
    """A module with an example is on the list."""
    texts = [(path.relative_to(ROOT), text) for path, text in tracked_texts() if path.suffix == ".py"]
    with_examples = [path for path, text in texts if path.parts[0] != "tests" and re.search(r"^ *>>> ", text, re.MULTILINE)]
    assert {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in with_examples} == set(MODULES)
