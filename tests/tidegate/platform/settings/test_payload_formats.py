"""Settings of payload formats: what each needs, which fields it can have, and what a checkpoint remembers of it."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from ordering.errors import SettingError
from tidegate.platform.settings.load import Settings, load
from tidegate.records.payloads.formats import PayloadFormat, reader_of

REGISTRY = '[schema_registry]\nurl = "http://localhost:8081"\n'


def read(folder: Path, text: str, env: dict[str, str] | None = None) -> Settings:
    """The settings that *text* gives."""
    file = folder / "tidegate.toml"
    file.write_text(text, "utf-8")
    return load(file, env=env or {})


@pytest.mark.parametrize(
    ("lines", "what", "fix"),
    [
        ('format = "csv"', 'format = "csv" needs csv_columns', 'set csv_columns = ["at", "origin"]'),
        ('format = "avro"', 'format = "avro" needs avro_schema', 'set avro_schema = "flights.avsc"'),
        ('csv_columns = ["a"]', 'csv_columns means nothing without format = "csv"', 'set format = "csv", or remove csv_columns'),
        ('avro_schema = "a.avsc"', 'avro_schema means nothing without format = "avro"', 'set format = "avro", or remove avro_schema'),
        (
            'format = "csv"\ncsv_columns = ["at", "origin"]\ntimestamp_by = "att"',
            "att is none of csv_columns",
            "did you mean at? columns are at, origin",
        ),
        (
            'format = "csv"\ncsv_columns = ["at", "origin"]\ntimestamp_by = "DATEADD(day, nope, at)"',
            "nope is none of csv_columns",
            "columns are at, origin",
        ),
        ('format = "avro_registry"', "needs the schema registry", "add [schema_registry]"),
    ],
)
def test_what_a_format_needs_is_told(tmp_path: Path, lines: str, what: str, fix: str) -> None:
    """Before anything starts, with what to write."""
    with pytest.raises(SettingError) as caught:
        read(tmp_path, f"[inputs.flights]\n{lines}\n")
    assert caught.value.code == "TG-SETTING-CONFLICT"
    assert what in caught.value.what
    assert fix in caught.value.fix


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ('timestamp_by = "DATEAD(second, 1, at)"', "column 1: there is no function DATEAD; did you mean DATEADD?"),
        ('timestamp_by = "COUNT(*)"', "column 1: TIMESTAMP BY works on single events"),
        ('csv_delimiter = ", "', "one character"),
        ("csv_delimiter = '\"'", "one character"),
        ('csv_columns = ["a", "A"]', "differ in more than case"),
        ("csv_columns = []", "a list of names"),
    ],
)
def test_a_value_that_is_not_allowed_is_told(tmp_path: Path, line: str, allowed: str) -> None:
    """With the column where it is an expression."""
    with pytest.raises(SettingError) as caught:
        read(tmp_path, f'[inputs.flights]\nformat = "csv"\n{line}\n')
    assert allowed in str(caught.value)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('url = "registry:8081"', "is not allowed"),
        ('url = "http://u:p@registry:8081"', "is not allowed"),
        ('ca_file = "ca.pem"', "ca_file means nothing without TLS"),
        ('password = "env:P"', "password is of no use without username"),
        ('username = "u"\ntoken = "env:P"', "there is a username too"),
    ],
)
def test_a_registry_that_cannot_be_used_is_told(tmp_path: Path, line: str, what: str) -> None:
    """User and password have settings of their own, and never show."""
    with pytest.raises(SettingError) as caught:
        read(tmp_path, f"[schema_registry]\n{line}\n", env={"P": "s3cret"})
    assert what in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert ":p@" not in str(caught.value)


def test_secrets_of_the_registry_do_not_show(tmp_path: Path) -> None:
    """Neither in what tidegate config prints nor in what a plan says of itself; yet workers have them."""
    settings = read(
        tmp_path, f'{REGISTRY}username = "u"\npassword = "env:P"\n[inputs.i]\nformat = "avro_registry"\n', env={"P": "canary-1"}
    )
    payloads = PayloadFormat.of(settings.input("i"), settings.schema_registry)
    shown = f"{settings.origins()} {settings.schema_registry!r} {payloads!r}"
    assert "canary-1" not in shown
    again = pickle.loads(pickle.dumps(payloads))
    assert again.registry.password.get_secret_value() == "canary-1"
    assert reader_of(again) is reader_of(payloads), "one reader for each format in a worker"


def test_old_checkpoints_still_fit(tmp_path: Path) -> None:
    """What has its default is left out; a path in brackets is the path it was."""
    text = (
        '[inputs.a]\ntimestamp_by = "payload.at"\n[inputs.b]\ntimestamp_by = "[payload].[at]"\n[inputs.c]\ntimestamp_by = "[event time]"\n'
    )
    settings = read(tmp_path, text)
    prints = {name: settings.input(name).fingerprint() for name in "abc"}
    assert prints["a"]["timestamp_by"] == prints["b"]["timestamp_by"] == "payload.at"
    assert prints["c"]["timestamp_by"] == "event time"
    assert not {"csv_columns", "csv_delimiter", "avro_schema"} & set(prints["a"])


def test_what_shapes_events_is_remembered(tmp_path: Path) -> None:
    """Columns, delimiter, the meaning of an expression with its types, the text of a schema file."""
    schema = tmp_path / "r.avsc"
    schema.write_text(json.dumps({"type": "record", "name": "R", "fields": [{"name": "at", "type": "long"}]}))
    text = '[inputs.a]\ntimestamp_by = "ts * 1"\n[inputs.b]\ntimestamp_by = "TS*1"\n'
    text += '[inputs.c]\ntimestamp_by = "ts * 1"\nfields.ts = "bigint"\n'
    text += '[inputs.d]\nformat = "csv"\ncsv_columns = ["x"]\n[inputs.e]\nformat = "csv"\ncsv_columns = ["x"]\ncsv_delimiter = ";"\n'
    settings = read(tmp_path, text + f'[inputs.f]\nformat = "avro"\navro_schema = "{schema}"\n')
    prints = {name: settings.input(name).fingerprint() for name in "abcdef"}
    assert prints["a"]["timestamp_by"].lower() == prints["b"]["timestamp_by"].lower()
    assert prints["a"]["timestamp_by"] != prints["c"]["timestamp_by"]
    assert prints["d"]["csv_delimiter"] != prints["e"]["csv_delimiter"]
    before = PayloadFormat.of(settings.input("f")).fingerprint()
    schema.write_text(schema.read_text().replace('"at"', '"et"'))
    assert PayloadFormat.of(settings.input("f")).fingerprint() != before


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        (None, "inputs.f.avro_schema", "cannot be read"),
        ('{"type": "record",\n  "name" }', "r.avsc:2:10", "no JSON"),
        ('{"type": "record", "name": "N", "fields": [{"name": "n", "type": "N"}]}', "r.avsc", "N contains itself"),
    ],
)
def test_a_schema_file_is_checked_at_start(tmp_path: Path, text: str | None, place: str, why: str) -> None:
    """With file, line and column where it is no JSON."""
    schema = tmp_path / "r.avsc"
    if text is not None:
        schema.write_text(text)
    settings = read(tmp_path, f'[inputs.f]\nformat = "avro"\navro_schema = "{schema}"\n')
    with pytest.raises(SettingError) as caught:
        PayloadFormat.of(settings.input("f"))
    assert caught.value.code == "TG-AVRO-SCHEMA"
    assert caught.value.where.endswith(place)
    assert why in caught.value.what
