"""What a job names by a text, to be made in another process, exists."""

from __future__ import annotations

import ast
import importlib

from support.repository import ROOT

from tidegate.platform.spark.deferred import Deferred


def test_a_deferred_object_is_made_of_its_plan() -> None:
    """Each call makes one anew."""
    make = Deferred("builtins:sorted", (3, 1, 2))
    assert make() == make() == [1, 2, 3]


def test_every_deferred_object_is_named_as_it_is_called() -> None:
    """No checker of types reads these texts, and only a running job would notice a name that was changed."""
    makers = [
        node.args[0].value
        for package in ("ingest", "query", "sinks", "tidegate")
        for path in sorted((ROOT / package).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == Deferred.__name__
        if isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
    ]
    assert len(makers) >= 4
    for maker in makers:
        module, _, name = maker.partition(":")
        assert callable(getattr(importlib.import_module(module), name)), maker
