"""Reference data is read from files: what their values become, which version begins when, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ordering.errors import QueryError, RefusedError, SettingError
from ordering.ticks import NEVER, parse_tick
from query.reference.files import load_reference, load_references, versions_of
from query.reference.tables import ReferenceTable
from tidegate.platform.settings.load import load
from tidegate.platform.settings.tables.references import ReferenceSettings


def settings(**given: Any) -> ReferenceSettings:
    """The table [references.r]."""
    return ReferenceSettings.model_validate({"__name__": "r", **given})


def loaded(path: Path, text: str | bytes, **given: Any) -> ReferenceTable:
    """Write a file and read it as a table."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_reference(settings(path=str(path), **given))


def values(table: ReferenceTable) -> list[str]:
    """The records of the only version."""
    (version,) = table.versions
    return [value.decode() for value in version.values.to_pylist()]


def test_a_csv_column_is_typed_as_a_whole(tmp_path: Path) -> None:
    """Integers, numbers, or text; what is empty is NULL; a declared field is left to its type."""
    table = loaded(
        tmp_path / "r.csv",
        'k,zip,name,n,x\r\n1,01234,"a ""b"", c",-1.50,\r\n2,12,,+5,2e3\r\n\r\n3,77,"two\nlines",1,4\r\n',
        fields={"zip": "bigint"},
    )
    assert values(table) == [
        r'{"k":1,"zip":"01234","name":"a \"b\", c","n":"-1.50","x":null}',
        '{"k":2,"zip":"12","name":null,"n":"+5","x":2e3}',
        r'{"k":3,"zip":"77","name":"two\nlines","n":"1","x":4.0}',
    ]
    assert table.versions[0].effective_us == NEVER
    assert (table.schema.is_closed, table.schema.is_reference) == (True, True)
    assert table.schema.fields == {"zip": "bigint", "k": "any", "name": "any", "n": "any", "x": "any"}
    assert [(warning.where, warning.what) for warning in table.warnings] == [
        (f"{tmp_path}/r.csv:3", "column n of r is read as text, since not all of its values are numbers")
    ]


@pytest.mark.parametrize(
    ("column", "read", "warned_row"),
    [
        (["1", "-2", "9223372036854775807"], ["1", "-2", "9223372036854775807"], None),
        (["1", "2.5", "1e3"], ["1.0", "2.5", "1e3"], None),
        (["01234", "1234"], ['"01234"', '"1234"'], 0),
        (["1234", "", "01234"], ['"1234"', "null", '"01234"'], 2),
        (["01", "02"], ['"01"', '"02"'], None),
        (["12345678901234567890", "12345678901234567891"], ['"12345678901234567890"', '"12345678901234567891"'], None),
        (["1", "12345678901234567891"], ['"1"', '"12345678901234567891"'], 1),
        (["1e400", "1.5"], ['"1e400"', '"1.5"'], 0),
        (["1.5", "12345678901234567891"], ['"1.5"', '"12345678901234567891"'], 1),
        (["true", "1"], ['"true"', '"1"'], 0),
        (["", ""], ["null", "null"], None),
    ],
)
def test_the_values_of_a_column_are_of_one_kind(tmp_path: Path, column: list[str], read: list[str], warned_row: int | None) -> None:
    """So that a code with leading zeros, or with too many digits for a number, equals no other; mixed values are reported."""
    table = loaded(tmp_path / "r.csv", "".join(f"{value},x\n" for value in ["c", *column]).replace("c,x", "c,d", 1))
    assert values(table) == [f'{{"c":{value},"d":"x"}}' for value in read]
    assert [warning.where for warning in table.warnings] == ([] if warned_row is None else [f"{tmp_path}/r.csv:{warned_row + 2}"])


def test_a_version_keeps_its_types_whatever_comes_after_it(tmp_path: Path) -> None:
    """A type that changes from one version to the next is reported; a declared one is the same in all."""
    (tmp_path / "r-2001-01-01.csv").write_text("code\n1234\n")
    (tmp_path / "r-2001-01-02.csv").write_text("code\n01234\n")
    path = str(tmp_path / "r-{date}.csv")
    table = load_reference(settings(path=path))
    assert [version.values.to_pylist() for version in table.versions] == [[b'{"code":1234}'], [b'{"code":"01234"}']]
    (warning,) = table.warnings
    assert (warning.where, warning.begins_us) == (f"{tmp_path}/r-2001-01-02.csv:2", parse_tick("2001-01-02T00:00:00Z"))
    assert warning.what == "column code of r is nvarchar(max) in this version, bigint in the one before"
    assert load_reference(settings(path=path, fields={"code": "nvarchar(max)"})).warnings == ()


def test_other_delimiters_and_json_lines(tmp_path: Path) -> None:
    """A line is a JSON object as it is; its fields are not known beforehand."""
    assert values(loaded(tmp_path / "r.csv", "a;b\n1;x,y\n", csv_delimiter=";")) == ['{"a":1,"b":"x,y"}']
    table = loaded(tmp_path / "r.jsonl", '{"a": 1}\n\n {"a":{"b":2}} \n')
    assert values(table) == ['{"a": 1}', '{"a":{"b":2}}']
    assert not table.schema.is_closed
    assert values(loaded(tmp_path / "r.txt", '{"a":1}', format="ndjson")) == ['{"a":1}']


def test_one_json_array_is_a_table_too(tmp_path: Path) -> None:
    """As Stream Analytics takes reference data: records over several lines, whose digits stay as they are."""
    text = '\ufeff[\n  {"a":\n 1.50},{"a": "],[\\n{"}\n, {"b": [1, {"c": 2}]}]\n'
    assert values(loaded(tmp_path / "r.json", text)) == ['{"a":  1.50}', r'{"a": "],[\n{"}', '{"b": [1, {"c": 2}]}']
    assert values(loaded(tmp_path / "r.json", " [ ] ")) == []


@pytest.mark.parametrize("between", ["\n", ",\n", "", "\r\n\r\n"])
def test_objects_over_several_lines_are_a_table_as_they_are_inputs(between: str, tmp_path: Path) -> None:
    """As ``jq`` and ``json.dumps(indent=2)`` write them; digits stay as they are."""
    text = "\ufeff" + between.join(['{\n  "a": 1.50,\n  "b": {"c": "}{,"}\n}', '{\n  "a": 2\n}', '{"a":3}']) + "\n"
    assert values(loaded(tmp_path / "r.json", text)) == ['{   "a": 1.50,   "b": {"c": "}{,"} }', '{   "a": 2 }', '{"a":3}']


def test_a_comma_at_the_end_of_a_line_is_no_part_of_a_record(tmp_path: Path) -> None:
    """Lines that were cut out of an array."""
    assert values(loaded(tmp_path / "r.ndjson", '{"a":1},\r\n{"a":2} , \n{"a":","}\n')) == ['{"a":1}', '{"a":2}', '{"a":","}']


def test_a_parquet_file_gives_its_columns_types(tmp_path: Path) -> None:
    """Numbers, texts, times, records and lists; what is not a number is NULL."""
    moment = datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC)
    columns = {
        "i": pa.array([1, None], pa.int16()),
        "f": pa.array([1.5, float("nan")]),
        "s": pa.array(["x", None]).dictionary_encode(),
        "b": [True, None],
        "t": pa.array([moment, None], pa.timestamp("ms", "UTC")),
        "d": pa.array([moment.date(), None]),
        "r": [{"a": 1}, None],
        "a": [[1, 2], None],
        "n": pa.nulls(2),
    }
    pq.write_table(pa.table(columns), tmp_path / "r.parquet")
    table = load_reference(settings(path=str(tmp_path / "r.parquet")))
    assert values(table)[0] == (
        '{"i":1,"f":1.5,"s":"x","b":true,"t":"2001-02-03T04:05:06Z","d":"2001-02-03T00:00:00Z","r":{"a":1},"a":[1,2],"n":null}'
    )
    assert values(table)[1] == "{" + ",".join(f'"{name}":null' for name in columns) + "}"
    assert list(table.schema.fields.values()) == [
        "bigint", "float", "nvarchar(max)", "bit", "datetime", "datetime", "record", "array", "any",
    ]  # fmt: skip


def test_a_parquet_records_members_are_json(tmp_path: Path) -> None:
    """At any depth what is not a number is NULL, and a map is a record, an empty one too."""
    columns = {
        "r": pa.array([{"f": float("nan"), "in": {"f": float("inf")}}]),
        "a": pa.array([[1.5, float("-inf"), None]]),
        "m": pa.array([[]], pa.map_(pa.string(), pa.int64())),
        "in": pa.array([[[(1, {"f": float("nan")})]]], pa.list_(pa.map_(pa.int64(), pa.struct({"f": pa.float64()})))),
    }
    pq.write_table(pa.table(columns), tmp_path / "r.parquet")
    table = load_reference(settings(path=str(tmp_path / "r.parquet")))
    assert values(table) == ['{"r":{"f":null,"in":{"f":null}},"a":[1.5,null,null],"m":{},"in":[{"1":{"f":null}}]}']


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("r-{date}.csv", {"r-2001-02-03.csv": "2001-02-03", "r-20010204.csv": "2001-02-04", "r-2001-2-5.csv": None, "x.csv": None}),
        ("{date}/{time}/r.csv", {"2001/02/03/04-05/r.csv": "2001-02-03T04:05", "2001-02-04/0405/r.csv": "2001-02-04T04:05"}),
        (
            "{date}/{time}/{date}T{time}.csv",
            {
                "2001-02-03/04/20010203T04.csv": "2001-02-03T04:00",
                "2001/02/03/04-05/2001-02-03T0405.csv": "2001-02-03T04:05",
                "2001-02-03/05/2001-02-04T05.csv": None,
                "2001-02-03/06/2001-02-03T0607.csv": None,
                "2001-02-03/0608/2001-02-03T06.csv": None,
            },
        ),
        ("in/{date}T{time}.csv", {"in/2001-02-03T04.csv": "2001-02-03T04:00", "in/2001-02-03T040506.csv": "2001-02-03T04:05:06"}),
    ],
)
def test_a_file_says_in_its_name_when_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, names: Mapping[str, str | None]
) -> None:
    """Whatever else lies in the folder does not count; paths may begin where the job does."""
    monkeypatch.chdir(tmp_path)
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("k\n1\n")
    expected = [(parse_tick(begins), name) for name, begins in names.items() if begins]
    for prefix in ("", f"{tmp_path}/"):
        assert [(us, path.as_posix().removeprefix(prefix)) for us, path in versions_of(settings(path=prefix + pattern))] == expected


def test_versions_may_be_listed(tmp_path: Path) -> None:
    """Each from its own instant on; columns that only some of them have are NULL in the others."""
    (tmp_path / "a.csv").write_text("k,v\n1,2\n")
    (tmp_path / "b.ndjson").write_text('{"k":1}\n')
    table = load_reference(settings(effective={"2001-01-02T00:00:00Z": str(tmp_path / "b.ndjson"), "2001-01-01": str(tmp_path / "a.csv")}))
    assert [version.effective_us for version in table.versions] == [parse_tick("2001-01-01"), parse_tick("2001-01-02")]
    assert table.records["sub"].to_pylist() == [0, 1]


@pytest.mark.parametrize(
    ("name", "text", "given", "message"),
    [
        ("r.csv", "a,b\n1\n", {}, "TG-REFERENCE-RECORD: 1 values for 2 columns\n  where: r.csv:2"),
        ("r.csv", 'a\n"1"x\n', {}, "TG-REFERENCE-RECORD: this is no CSV: ',' expected after '\"'\n  where: r.csv:2"),
        ("r.csv", "a,A\n1,2\n", {}, "TG-REFERENCE-RECORD: the first line must name every column, each name once\n  where: r.csv:1"),
        ("r.csv", "", {}, "TG-REFERENCE-RECORD: the first line must name every column, each name once\n  where: r.csv:1"),
        ("r.csv", "a\n1\n\nx\n", {"fields": {"a": "bigint"}}, "TG-REFERENCE-RECORD: conversion failed: a\n  where: r.csv:4"),
        ("r.ndjson", "{}\n[1]\n", {}, "TG-REFERENCE-RECORD: this line is no JSON object\n  where: r.ndjson:2"),
        ("r.json", '[{"a":1},\n\n2]', {}, "TG-REFERENCE-RECORD: this element is no JSON object\n  where: r.json:3"),
        ("r.json", '[{"a":1}\n{"a":2}]', {}, "TG-REFERENCE-RECORD: this is no JSON array: Expecting ',' delimiter\n  where: r.json:2"),
        ("r.json", '[{"a":1}]\n[{"a":2}]', {}, "TG-REFERENCE-RECORD: this is no JSON array: Extra data\n  where: r.json:2"),
        ("r.ndjson", "\n{\n", {}, "TG-REFERENCE-RECORD: this line is no JSON object\n  where: r.ndjson:2"),
        (
            "r.json",
            '{\n"a":1\n}\n{\n"a":2,\n"a"\n}',
            {},
            "TG-REFERENCE-RECORD: this is no JSON object: Expecting ':' delimiter\n  where: r.json:7",
        ),
        ("r.json", '{\n"a":1\n}\n7\n', {}, "TG-REFERENCE-RECORD: this value is no JSON object\n  where: r.json:4"),
        ("r.json", '{\n"a":1\n}\n{\n"a":2', {}, "TG-REFERENCE-RECORD: this is no JSON object: Expecting"),
        # Events with such a text are dead letters; a record with it would silently be no record.
        ("r.ndjson", '{"a":1}\n{"b":"\\ud800"}\n', {}, "TG-REFERENCE-RECORD: payload is not JSON\n  where: r.ndjson:2"),
        (
            "r.csv",
            "amount\n1\n",
            {"fields": {"amuont": "bigint"}},
            "TG-REFERENCE-FIELD: r has no column amuont\n  where: references.r.fields.amuont",
        ),
        ("r.ndjson", '{"a":' + "[" * 5000 + "]" * 5000 + "}", {}, "TG-REFERENCE-RECORD: this line is no JSON object\n  where: r.ndjson:1"),
        ("r.json", "[" * 5000 + "]" * 5000, {}, "TG-REFERENCE-FILE: the reference data cannot be read: maximum recursion depth"),
        ("r.csv", b"a\n\xff\n", {}, "TG-REFERENCE-FILE: the reference data cannot be read: 'utf-8' codec"),
        ("r.parquet", "no parquet", {}, "TG-REFERENCE-FILE: the reference data cannot be read: Could not open Parquet"),
        ("r.xml", "<a/>", {}, "TG-REFERENCE-FILE: the ending of r.xml stands for no format\n  where: r.xml"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str | bytes, given: dict[str, Any], message: str
) -> None:
    """A table is there whole or not at all."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RefusedError) as caught:
        loaded(Path(name), text, **given)
    assert str(caught.value).startswith(message)


def test_a_declared_field_without_a_name_is_refused_with_its_setting(tmp_path: Path) -> None:
    """The message names the table of the settings, as the script is not at fault."""
    with pytest.raises(QueryError, match=r"cannot be named \* or nothing\n  where: references\.r\.fields\n"):
        loaded(tmp_path / "r.ndjson", "{}\n", fields={"a..b": "bigint"})


def test_missing_files_are_refused(tmp_path: Path) -> None:
    """So are two that begin at the same instant, and names that are no time."""
    with pytest.raises(RefusedError, match="TG-REFERENCE-FILE: the reference data cannot be read"):
        load_reference(settings(path=str(tmp_path / "r.csv")))
    with pytest.raises(RefusedError, match=r"TG-REFERENCE-FILE: no file is called .*\{date\}\.csv"):
        load_reference(settings(path=str(tmp_path / "{date}.csv")))
    (tmp_path / "2001-13-01.csv").write_text("k\n")
    with pytest.raises(RefusedError, match="TG-REFERENCE-FILE: '2001-13-01T00:00:00Z' is not an ISO-8601 time"):
        load_reference(settings(path=str(tmp_path / "{date}.csv")))
    (tmp_path / "2001-13-01.csv").unlink()
    for name in ("2001-01-01", "20010101"):
        (tmp_path / f"{name}.csv").write_text("k\n")
    with pytest.raises(RefusedError, match="are valid from the same instant on"):
        load_reference(settings(path=str(tmp_path / "{date}.csv")))


def test_only_tables_that_are_named_are_read(tmp_path: Path) -> None:
    """A missing file of a table that no query asks for stops nobody."""
    (tmp_path / "a.csv").write_text("k\n1\n")
    tables = {"Codes": settings(path=str(tmp_path / "a.csv")), "other": settings(path=str(tmp_path / "missing.csv"))}
    assert list(load_references(tables, ["codes", "flights"])) == ["Codes"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "reference data needs path or effective"),
        ('path = "r.csv"\n[references.r.effective]\n"2001-01-01" = "s.csv"', "path and effective say the same thing twice"),
        ('path = "r-{time}.csv"', "{time} says nothing without {date}"),
        ('[references.r.effective]\nsoon = "s.csv"', "'soon' is not an ISO-8601 time"),
        ('path = "r.csv"\n[inputs.R]\ntopic = "t"', "there is an input R too"),
        ('path = "r.csv"\nformat = "xml"', 'references.r.format = "xml" is not allowed'),
    ],
)
def test_settings_that_contradict_each_other_are_refused(tmp_path: Path, lines: str, message: str) -> None:
    """Before any file is looked at."""
    file = tmp_path / "tidegate.toml"
    file.write_text(f"[references.r]\n{lines}\n")
    with pytest.raises(SettingError) as caught:
        load(file, env={})
    assert message in str(caught.value)
