"""The JSON schema of tidegate.toml, tried with a real validator: it takes what is right, and finds what is misspelled."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import typer
from support.repository import ROOT
from typer.testing import CliRunner

from tidegate.platform.observe.console import report_errors
from tidegate.platform.settings.json_schema import json_schema
from tidegate.platform.settings.load import Settings
from tidegate.platform.settings.manual import describe_settings
from tidegate.tools.commands.config import config

FILES = sorted(
    path for folder in ("examples", "tests/cases", "tidegate/tools/project", "deploy") for path in (ROOT / folder).rglob("tidegate.toml")
)


@cache
def validator() -> Any:
    """Return the validator of the printed schema, which is a schema itself."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(report_errors(config))
    printed = json.loads(CliRunner().invoke(app, ["--format", "json-schema"]).output)
    assert printed == json_schema(Settings)
    jsonschema_rs.meta.validate(printed)
    return jsonschema_rs.validator_for(printed)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_configuration_of_the_repository_is_valid(file: Path) -> None:
    """Those of examples, cases, and new projects."""
    validator().validate(tomllib.loads(file.read_text("utf-8")))


@pytest.mark.parametrize(
    "text",
    [
        '[inputs.a]\ntopic = "a"\nlaet = "5m"',
        '[inputs.a]\nlate_action = "adjsut"',
        '[inputs."a-b"]\ntopic = "a"',
        "[kafka]\nbootstrap = 9092",
        "[sprak]",
        '[outputs.o]\ntopic = "o"\npartitions = [1]',
        '[inputs.a.fields]\nx = "biging"',
    ],
)
def test_what_is_misspelled_is_found(text: str) -> None:
    """Keys, words of a list, names and types."""
    assert not validator().is_valid(tomllib.loads(text))


def test_every_setting_has_its_meaning() -> None:
    """As the manual gives it, for an editor to show."""
    for doc in describe_settings(Settings):
        table = json_schema(Settings)
        for step in doc.key.split(".")[:-1]:
            table = next(iter(table["patternProperties"].values())) if step == "NAME" else table["properties"][step]
        assert doc.doc in table["properties"][doc.key.rpartition(".")[2]]["description"], doc.key
