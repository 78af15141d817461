"""``tidegate local``: a script on files gives what a job would write; how files are cut or written changes nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from support.query_oracle import Event
from support.repository import ROOT
from support.script_runs import answers_of
from typer.testing import CliRunner

from ordering.errors import TidegateError
from ordering.policies import Policies
from ordering.ticks import NEVER, format_tick, parse_tick
from query.commands.local import local
from query.local.files import LocalFile, parse_file_flags
from query.local.inputs import FileInput, TimeRules
from query.local.run_setup import PolicyFlags, RunSetup, open_run
from query.local.script import bind_script
from query.plan.nodes import Scan
from tidegate.language.expressions.tree import Field
from tidegate.platform.observe.console import report_errors
from tidegate.records.files.blocks import FileFormat

APP = typer.Typer(pretty_exceptions_enable=False)
APP.command()(report_errors(local))
SECOND = 1_000_000


@dataclass
class Run:
    """What one call of the command gave."""

    code: int
    out: bytes
    errors: str

    @property
    def lines(self) -> list[Any]:
        """The results."""
        return [json.loads(line) for line in self.out.splitlines()]


def run(*arguments: str, given: bytes = b"") -> Run:
    """Call the command in this process."""
    result = CliRunner().invoke(APP, list(arguments), input=given)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Run(result.exit_code, result.stdout_bytes, result.stderr)


def written(folder: Path, name: str, text: str) -> str:
    """Write a file; return its path."""
    path = folder / name
    path.write_text(text, "utf-8")
    return str(path)


def ndjson(records: Sequence[dict[str, Any]]) -> str:
    """Write records one a line."""
    return "".join(json.dumps(record) + "\n" for record in records)


def at(second: float, **more: Any) -> dict[str, Any]:
    """A record of some second of 2001."""
    return {"at": format_tick(parse_tick("2001-01-01T00:00:00Z") + int(second * SECOND)), **more}


COUNTING = "SELECT k, COUNT(*) AS n INTO out FROM a TIMESTAMP BY at GROUP BY k, TumblingWindow(second, 10)"


def test_results_go_to_standard_output_and_the_summary_beside(tmp_path: Path) -> None:
    """One output: just its lines. Numbers of what happened go to standard error."""
    script = written(tmp_path, "q.sql", COUNTING)
    file = written(tmp_path, "a.ndjson", ndjson([at(1, k="x"), at(3, k="y"), at(2, k="x"), at(11, k="x")]))
    found = run(script, "--input", f"a={file}", "--format", "json")
    assert found.out == b'{"k":"x","n":2}\n{"k":"y","n":1}\n{"k":"x","n":1}\n'
    told = json.loads(found.errors)
    assert told["outputs"] == {"out": 3}
    assert (told["inputs"]["a"]["records"], told["inputs"]["a"]["out_of_order_adjusted"]) == (4, 1)
    assert "3 results" in run(script, "--input", f"a={file}").errors


def test_the_example_of_the_manual_gives_what_it_shows(tmp_path: Path) -> None:
    """The script, the command and its results, as docs/queries/local.md has them."""
    shown = (ROOT / "docs" / "queries" / "local.md").read_text("utf-8").partition("```console\n$ cat late.sql\n")[2].partition("\n```")[0]
    script, _, rest = shown.partition("\n$ tidegate local ")
    command, _, results = rest.partition("\n")
    path, *arguments = command.split()
    found = run(written(tmp_path, path, script), *(one.replace("tests/cases", str(ROOT / "tests" / "cases")) for one in arguments))
    assert found.out.decode() == results + "\n"


def test_what_a_script_hardly_means_is_told_with_the_summary(tmp_path: Path) -> None:
    """A misspelled alias is a record that no event has: nothing is found, and nobody would know why."""
    script = written(tmp_path, "q.sql", "SELECT t.v INTO out FROM toll t TIMESTAMP BY at WHERE tol.v = 1")
    file = written(tmp_path, "a.ndjson", ndjson([at(1, v=1)]))
    found = run(script, "--input", f"toll={file}")
    assert (found.code, found.out) == (0, b"")
    assert f"{script}:1:55: warning TG-LINT-PREFIX: tol.v is in a record tol of the event" in found.errors
    told = json.loads(run(script, "--input", f"toll={file}", "--format", "json").errors)
    assert [one["code"] for one in told["warnings"]] == ["TG-LINT-PREFIX", "TG-LINT-ABSENT"]


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "jsonl"])
def test_every_kind_of_file_gives_the_same(tmp_path: Path, kind: str) -> None:
    """What a record is, is the file's affair; what comes of it is not."""
    script = written(tmp_path, "q.sql", COUNTING)
    records = [at(1, k="x"), at(2, k="y"), at(3, k="x")]
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table({"at": [parse_tick(one["at"]) for one in records], "k": [one["k"] for one in records]}), path)
    elif kind == "jsonl":
        path.write_text(ndjson(records))
    else:
        between = "," if kind == "csv" else "\t"
        path.write_text("\n".join(between.join(row) for row in [("at", "k"), *((one["at"], one["k"]) for one in records)]))
    assert run(script, "--input", f"a={path}").out == b'{"k":"x","n":2}\n{"k":"y","n":1}\n'


def test_a_csv_has_the_delimiter_of_a_flag_else_of_the_configuration(tmp_path: Path) -> None:
    """For all .csv files, or for one input or table; a .tsv file has its own."""
    sql = "SELECT a.k, b.n, r.name INTO out FROM a TIMESTAMP BY at JOIN b TIMESTAMP BY at ON a.k = b.k AND DATEDIFF(second, a, b) = 0"
    script = written(tmp_path, "q.sql", f"{sql} JOIN r ON r.k = a.k")
    first = written(tmp_path, "a.csv", f"at;k\n{at(1)['at']};x\n")
    second = written(tmp_path, "b.csv", f"at|k|n\n{at(1)['at']}|x|7\n")
    tabs = written(tmp_path, "b.tsv", f"at\tk\tn\n{at(1)['at']}\tx\t7\n")
    table = written(tmp_path, "r.csv", "k;name\nx;one\n")
    expected = b'{"k":"x","n":"7","name":"one"}\n'
    files = ("--input", f"a={first}", "--input", f"b={second}", "--reference", f"r={table}")
    assert run(script, *files, "--delimiter", ";", "--delimiter", "b=|").out == expected
    assert run(script, *files[:2], "--input", f"b={tabs}", *files[4:], "--delimiter", ";").out == expected
    config = written(
        tmp_path,
        "tidegate.toml",
        '[inputs.a]\nformat = "csv"\ncsv_columns = ["at", "k"]\ncsv_delimiter = ";"\ntimestamp_by = "at"\n'
        '[inputs.b]\nformat = "csv"\ncsv_columns = ["at", "k", "n"]\ncsv_delimiter = "|"\ntimestamp_by = "at"\n'
        f'[references.r]\npath = "{table}"\ncsv_delimiter = ";"\n',
    )
    assert run(script, *files, "--config", config).out == expected
    assert run(script, *files[:2], "--input", f"b={tabs}", *files[4:], "--config", config).out == expected
    for flags, code in ((["--delimiter", "none=;"], "TG-SETTING-FLAG"), (["--delimiter", ";;"], "TG-SETTING-VALUE")):
        assert code in run(script, *files, *flags).errors
    (tmp_path / "a.csv").write_text(f"{at(1)['at']};x\n{at(2)['at']};x\n")
    refused = run(script, *files, "--config", config)
    assert (refused.code, "TG-ORDER-HEADER" in refused.errors, "example: at;k" in refused.errors) == (2, True, True)
    (tmp_path / "a.csv").write_text(f"at;k\n{at(1)['at']};x\n")
    assert run(script, *files, "--config", config).out == expected


@pytest.mark.parametrize("between", [",\n", "\n"])
@pytest.mark.parametrize("indent", [None, 2])
def test_json_is_read_however_it_is_laid_out(tmp_path: Path, indent: int | None, between: str) -> None:
    """Pretty-printed objects and lines that end in a comma are all of the events, not half of them or none."""
    script = written(tmp_path, "q.sql", COUNTING)
    records = [at(1, k="x"), at(2, k="y"), at(3, k="x")]
    file = written(tmp_path, "a.json", between.join(json.dumps(record, indent=indent) for record in records) + between)
    found = run(script, "--input", f"a={file}", "--strict")
    assert (found.code, found.out) == (0, b'{"k":"x","n":2}\n{"k":"y","n":1}\n')


def test_a_file_of_which_nothing_can_be_used_is_an_error(tmp_path: Path) -> None:
    """Results without one event would look like an answer."""
    script = written(tmp_path, "q.sql", COUNTING)
    file = written(tmp_path, "a.json", '{"data": [' + ndjson([at(1, k="x")]).strip() + "]}")
    folder = tmp_path / "out"
    found = run(script, "--input", f"a={file}", "--output-dir", str(folder))
    assert found.code == 2
    assert 'TG-ORDER-UNREADABLE: none of the 1 records of a can be used; the first for its timestamp: {"data": [' in found.errors
    assert not list(folder.glob("*.ndjson"))


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path) -> None:
    """Editors of Windows write it in front of configuration, script and data."""
    config = written(tmp_path, "tidegate.toml", '\ufeff[inputs.a]\ntimestamp_by = "at"\n')
    script = written(tmp_path, "q.sql", "\ufeff" + COUNTING)
    file = written(tmp_path, "a.ndjson", "\ufeff" + ndjson([at(1, k="x")]))
    assert run(script, "--input", f"a={file}", "--config", config).out == b'{"k":"x","n":1}\n'


def test_a_folder_takes_a_file_for_each_output_and_one_for_bad_records(tmp_path: Path) -> None:
    """Files are whole; --strict makes bad records an exit code."""
    sql = "SELECT CAST(v AS bigint) AS v INTO good FROM a TIMESTAMP BY at; SELECT v INTO all_of_them FROM a TIMESTAMP BY at"
    script = written(tmp_path, "q.sql", sql)
    file = written(tmp_path, "a.ndjson", ndjson([at(1, v="1"), at(2, v="x")]) + "nonsense\n")
    folder = tmp_path / "deep" / "out"
    arguments = (script, "--input", f"a={file}", "--output-dir", str(folder))
    told = run(script, "--input", f"a={file}")
    assert (told.code, "2 records could not be used; with --output-dir dead.ndjson has each of them:" in told.errors) == (0, True)
    assert "1 conversion failed: CAST(v AS bigint)\n      first: a, line 2: " in told.errors
    assert run(*arguments).code == 0
    assert sorted(path.name for path in folder.iterdir()) == ["all_of_them.ndjson", "dead.ndjson", "good.ndjson"]
    assert (folder / "good.ndjson").read_bytes() == b'{"v":1}\n'
    assert (folder / "all_of_them.ndjson").read_bytes() == b'{"v":"1"}\n{"v":"x"}\n'
    dead = [json.loads(line) for line in (folder / "dead.ndjson").read_bytes().splitlines()]
    assert dead == [
        {"reason": "json", "input": "a", "partition": None, "line": 3, "value": "nonsense"},
        {"reason": "conversion failed: CAST(v AS bigint)", "input": "a", "partition": 0, "line": 2, "value": at(2, v="x")},
    ]
    assert run(*arguments, "--strict").code == 1


def test_several_outputs_on_standard_output_are_named_and_in_order_of_time(tmp_path: Path) -> None:
    """At one instant the outputs come in the order of the script, whatever blocks the file was read in."""
    script = written(
        tmp_path, "q.sql", "SELECT v INTO z FROM a TIMESTAMP BY at; SELECT v + 1 AS w INTO b FROM a TIMESTAMP BY at WHERE v > 1"
    )
    found = run(script, "--input", "a=-", given=ndjson([at(1, v=1), at(2, v=2), at(3, v=3)]).encode())
    assert [(line["output"], *line["value"].values()) for line in found.lines] == [("z", 1), ("z", 2), ("b", 3), ("z", 3), ("b", 4)]


def test_a_file_without_times_has_that_of_its_last_change(tmp_path: Path) -> None:
    """Neither TIMESTAMP BY nor arrivals: all events arrived when the file was written."""
    script = written(tmp_path, "q.sql", "SELECT v, System.Timestamp() AS s INTO out FROM a")
    file = written(tmp_path, "a.ndjson", ndjson([{"v": 1}, {"v": 2}]))
    moment = parse_tick("2001-01-01T00:00:01.5Z")
    os.utime(file, ns=(moment * 1_000, moment * 1_000))
    assert run(script, "--input", f"a={file}").lines == [{"v": v, "s": "2001-01-01T00:00:01.500Z"} for v in (1, 2)]
    refused = run(script, "--input", "a=-", given=b'{"v": 1}\n')
    assert (refused.code, "TG-LOCAL-INPUT" in refused.errors, "-:1" in refused.errors) == (2, True, True)


def test_partitions_of_standard_input_are_merged_at_its_end(tmp_path: Path) -> None:
    """Nobody knows which partitions still come, so nothing leaves before; the result is that of the file."""
    script = written(tmp_path, "q.sql", "SELECT v, PartitionId AS p INTO out FROM a TIMESTAMP BY at")
    text = ndjson([at(5, v=1, PartitionId=0), at(6, v=2, PartitionId="0"), at(1, v=3, PartitionId=7), at(2, v=4, PartitionId=None)])
    file = written(tmp_path, "a.ndjson", text + ndjson([at(2, v=5, PartitionId=-1), at(2, v=6, PartitionId=[1])]))
    found = run(script, "--input", f"a={file}", "--format", "json")
    assert [(line["v"], line["p"]) for line in found.lines] == [(3, 7), (1, 0), (2, 0), (4, 0)]
    assert json.loads(found.errors)["bad"] == {"partition": 2}
    assert run(script, "--input", "a=-", given=Path(file).read_bytes()).out == found.out


def test_a_time_jump_is_told_by_the_bound_of_the_input(tmp_path: Path) -> None:
    """As a job logs it: with early off one wrong time makes all later events out of order."""
    script = written(tmp_path, "q.sql", "SELECT v INTO out FROM a TIMESTAMP BY at")
    records = [at(1, v=1, EventEnqueuedUtcTime="2001-01-01T00:00:01Z"), at(91, v=2, EventEnqueuedUtcTime="2001-01-01T00:00:02Z")]
    given = ("--input", f"a={written(tmp_path, 'a.ndjson', ndjson(records))}", "--early", "off")
    assert "time jump" not in run(script, *given).errors
    config = written(tmp_path, "tidegate.toml", '[inputs.a]\ntimestamp_by = "at"\nwatermark_jump_warn = "1m"\n')
    assert "    time jump: line 2 of partition 0 moves time by 1m29s: an event's time" in run(script, *given, "--config", config).errors
    told = json.loads(run(script, *given, "--config", config, "--format", "json").errors)
    jump = {"count": 1, "partition": "0", "line": 2, "by_us": 89 * SECOND}
    assert told["inputs"]["a"]["time_jumps"] == {"event_time": jump}


def test_a_configuration_must_be_agreed_with(tmp_path: Path) -> None:
    """Policies, types and the form of times come from it; what the script says otherwise is refused as for a job."""
    config = written(
        tmp_path,
        "tidegate.toml",
        '[inputs.a]\ntimestamp_by = "ts"\ntimestamp_format = "ms"\nreorder = "5s"\n[inputs.a.fields]\nv = "nvarchar(max)"\n',
    )
    file = written(tmp_path, "a.ndjson", ndjson([{"ts": 3000, "v": 3}, {"ts": 1000, "v": 1}]))
    script = written(tmp_path, "q.sql", "SELECT v, System.Timestamp() AS s INTO out FROM a TIMESTAMP BY ts")
    given = ("--input", f"a={file}", "--config", config)
    assert run(script, *given).lines == [{"v": "1", "s": "1970-01-01T00:00:01Z"}, {"v": "3", "s": "1970-01-01T00:00:03Z"}]
    assert run(script, *given, "--reorder", "0s").lines[0] == {"v": "3", "s": "1970-01-01T00:00:03Z"}
    other = written(tmp_path, "other.sql", "SELECT v INTO out FROM a TIMESTAMP BY at")
    refused = run(other, *given)
    assert (refused.code, "a is ordered by ts, not by at" in refused.errors) == (2, True)


def test_reference_data_is_looked_up(tmp_path: Path) -> None:
    """A table is whole or refused; a configuration says the types of its fields."""
    sql = "SELECT a.v AS v, p.size AS size INTO out FROM a TIMESTAMP BY at JOIN places p ON a.k = p.code"
    script = written(tmp_path, "q.sql", sql)
    file = written(tmp_path, "a.ndjson", ndjson([at(1, k="x", v=1), at(2, k="y", v=2)]))
    table = written(tmp_path, "places.csv", "code,size\nx,07\nz,9\n")
    given = (script, "--input", f"a={file}", "--reference", f"places={table}")
    assert run(*given).lines == [{"v": 1, "size": "07"}]
    config = written(
        tmp_path, "tidegate.toml", '[references.places]\npath = "elsewhere.csv"\n[references.places.fields]\nsize = "bigint"\n'
    )
    assert run(*given, "--config", config).lines == [{"v": 1, "size": 7}]
    written(tmp_path, "places.csv", "code,size\nx\n")
    assert run(*given).code == 3
    assert "TG-SETTING-CONFLICT" in run(*given[:3], "--reference", f"A={table}").errors


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--input", "a"], 2, "TG-SETTING-FLAG"),
        (["--input", "a=a.ndjson", "--input", "A=b.ndjson"], 2, "TG-SETTING-CONFLICT"),
        (["--input", "a=a.log"], 2, "TG-ORDER-FORMAT"),
        (["--input", "a=missing.ndjson"], 2, "TG-ORDER-FILE"),
        (["--input", "a=a.ndjson", "--late", "5"], 2, "TG-DURATION"),
        (["--input", "b=a.ndjson"], 2, "TG-QUERY-INPUT"),
        (["--input", "a=a.ndjson", "--output-dir", "q.sql"], 2, "TG-LOCAL-OUTPUT"),
        (["--input", "a=out.ndjson", "--output-dir", "."], 2, "TG-SETTING-CONFLICT"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, told: str
) -> None:
    """Wrong flags and files have codes; no result is printed."""
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "q.sql", COUNTING)
    written(tmp_path, "a.ndjson", ndjson([at(1, k="x")]))
    written(tmp_path, "out.ndjson", ndjson([at(1, k="x")]))
    found = run("q.sql", *arguments)
    assert (found.code, found.out) == (code, b"")
    assert told in found.errors


def test_an_output_called_dead_would_be_two_things(tmp_path: Path) -> None:
    """It may be printed, not written."""
    script = written(tmp_path, "q.sql", "SELECT k INTO dead FROM a TIMESTAMP BY at")
    file = written(tmp_path, "a.ndjson", ndjson([at(1, k="x")]))
    assert run(script, "--input", f"a={file}").code == 0
    assert "TG-LOCAL-OUTPUT" in run(script, "--input", f"a={file}", "--output-dir", str(tmp_path / "out")).errors


def test_a_script_without_into_may_have_its_output_beside(tmp_path: Path) -> None:
    """--into, as for a job."""
    script = written(tmp_path, "q.sql", "SELECT k FROM a TIMESTAMP BY at")
    file = written(tmp_path, "a.ndjson", ndjson([at(1, k="x")]))
    assert run(script, "--input", f"a={file}", "--into", "out").lines == [{"k": "x"}]


def test_nothing_passes_a_partition_that_has_not_come_yet(tmp_path: Path) -> None:
    """The partitions of a file are known before its first record is walked."""
    file = written(tmp_path, "a.ndjson", ndjson([at(5, PartitionId=3), at(9, PartitionId=3), at(1, PartitionId=1)]))
    rules = TimeRules(Policies(early_us=None, late_us=None))
    source = FileInput(LocalFile("a", file, FileFormat.NDJSON), Scan("a", Field(("at",))), rules, 1)
    source.read()
    assert source.frontier.members.keys() == {1, 3}
    assert source.frontier.value == NEVER
    source.close()


# The law: what is read, and how, shows in no result

SCRIPTS = (
    "SELECT k, SUM(v) AS s, System.Timestamp() AS e FROM a TIMESTAMP BY at {over} GROUP BY k, HoppingWindow(second, 9, 4)",
    "SELECT k, v FROM a TIMESTAMP BY at {over} WHERE v > 0 UNION SELECT k, w FROM b TIMESTAMP BY at {over}",
    "WITH s AS (SELECT k, COUNT(*) AS n FROM b TIMESTAMP BY at {over} GROUP BY k, TumblingWindow(second, 5)) "
    "SELECT k, n FROM s UNION SELECT k, v FROM a TIMESTAMP BY at {over}",
)
RECORDS = st.lists(
    st.builds(
        lambda second, arrives, part, k, v: at(second, EventEnqueuedUtcTime=at(arrives)["at"], PartitionId=part, k=k, v=v, w=-v),
        st.integers(0, 40),
        st.integers(0, 40),
        st.integers(0, 2),
        st.sampled_from("xyz"),
        st.integers(-3, 3),
    ),
    max_size=15,
)


def results_of(folder: Path, script: str, inputs: Sequence[str], flags: PolicyFlags, block_bytes: int) -> list[list[tuple[int, bytes]]]:
    """Run a script over the files of a folder; return time and value of what each output gives."""
    given = RunSetup.of(parse_file_flags([f"{name}={folder / name}.ndjson" for name in inputs]), flags)
    reads = bind_script(Path(script), given.settings, into="out")
    found: list[list[tuple[int, bytes]]] = [[] for _ in reads.plans]
    with open_run(reads, given, block_bytes) as one:
        for piece in one.steps():
            for rows, results in zip(found, piece.results, strict=True):
                rows += results.timed_values()
    return found


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(SCRIPTS),
    st.booleans(),
    RECORDS,
    RECORDS,
    st.sampled_from([1, 150, 400, 1_000]),
    st.sampled_from([("5s", "3s"), ("10s", "0s"), ("0s", "2s")]),
)
def test_any_cut_of_the_files_gives_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory,
    sql: str,
    over: bool,
    a: list[dict[str, Any]],
    b: list[dict[str, Any]],
    block_bytes: int,
    tolerances: tuple[str, str],
) -> None:
    """Levels 2 (with OVER) and 3: where files are cut, and which is read on first, shows in no result; time never goes back."""
    folder = tmp_path_factory.mktemp("cut")
    for name, records in (("a", a), ("b", b)):
        written(folder, f"{name}.ndjson", ndjson(records))
    script = written(folder, "q.sql", sql.format(over="OVER k" if over else ""))
    inputs = ("a", "b") if "FROM b" in sql else ("a",)
    flags = PolicyFlags(early="1m", late=tolerances[0], reorder=tolerances[1])
    whole = results_of(folder, script, inputs, flags, 2**20)
    assert results_of(folder, script, inputs, flags, block_bytes) == whole
    assert all(rows == sorted(rows, key=lambda row: row[0]) for rows in whole)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(SCRIPTS), RECORDS, RECORDS)
def test_files_in_order_give_what_the_operators_give(
    tmp_path_factory: pytest.TempPathFactory, sql: str, a: list[dict[str, Any]], b: list[dict[str, Any]]
) -> None:
    """Where no policy has anything to do, a run on files is the program over the events in the order (s, partition, line)."""
    folder = tmp_path_factory.mktemp("order")
    events: dict[str, list[Event]] = {}
    for name, records in (("a", a), ("b", b)):
        plain = [{key: value for key, value in one.items() if key != "EventEnqueuedUtcTime"} for one in records]
        ordered = sorted(plain, key=lambda one: (one["at"], one["PartitionId"]))
        written(folder, f"{name}.ndjson", ndjson(ordered))
        events[name] = [Event(0, parse_tick(one["at"]), one) for one in ordered]
    text = sql.format(over="")
    inputs = [name for name in ("a", "b") if f"FROM {name}" in text]
    script = written(folder, "q.sql", text)
    (found,) = results_of(folder, script, inputs, PolicyFlags(), 700)
    # Inputs that are in order already have no TIMESTAMP BY.
    ready = text.replace(" TIMESTAMP BY at", "")
    wanted = answers_of(ready, {name: events[name] for name in inputs}).results["out"].get(0, [])
    assert found == [(system_us, value) for system_us, _, value in wanted]


def test_late_off_cannot_stand_with_over(tmp_path: Path) -> None:
    """Only the floor lets silent substreams advance."""
    script = written(tmp_path, "q.sql", "SELECT k INTO out FROM a TIMESTAMP BY at OVER k")
    file = written(tmp_path, "a.ndjson", ndjson([at(1, k="x", EventEnqueuedUtcTime=at(1)["at"])]))
    refused = run(script, "--input", f"a={file}", "--late", "off")
    assert (refused.code, "OVER" in refused.errors) == (2, True)


def test_a_broken_parquet_file_is_named(tmp_path: Path) -> None:
    """Errors name the file."""
    script = written(tmp_path, "q.sql", COUNTING)
    file = written(tmp_path, "a.parquet", "no parquet")
    found = run(script, "--input", f"a={file}")
    assert (found.code, file in found.errors) == (2, True)
    with pytest.raises(TidegateError):
        parse_file_flags(["=x"])


def test_a_file_that_the_script_does_not_read_is_a_warning(tmp_path: Path) -> None:
    """One command may serve several scripts; the file need not be there."""
    script, file = written(tmp_path, "q.sql", COUNTING), written(tmp_path, "a.ndjson", ndjson([at(1, k="x")]))
    found = run(script, "--input", f"a={file}", "--input", "b=missing.ndjson")
    assert (found.code, found.lines) == (0, [{"k": "x", "n": 1}])
    assert "--input: warning TG-LOCAL-INPUT: the script does not read b" in found.errors


@pytest.mark.parametrize(
    ("sql", "told"), [("SELECT FROM", "TG-QUERY-"), ("SELECT LENN(a.k) AS k INTO out FROM a JOIN r ON a.k = r.k", "TG-QUERY-FUNCTION")]
)
def test_a_script_is_checked_before_its_files(tmp_path: Path, sql: str, told: str) -> None:
    """Who has made both mistakes is told that of the script."""
    script = written(tmp_path, "q.sql", sql)
    assert told in run(script, "--input", "a=missing.ndjson", "--reference", "r=missing.csv").errors


def test_without_a_file_the_inputs_of_the_script_are_named(tmp_path: Path) -> None:
    """And a script that is no SQL is told first, though no flag is given."""
    joining = "WITH s AS (SELECT k FROM a) SELECT s.k INTO out FROM s JOIN [two b] b ON DATEDIFF(minute, s, b) = 0 JOIN r ON r.k = s.k"
    found = run(written(tmp_path, "q.sql", joining), "--reference", "r=r.csv")
    assert (found.code, found.out) == (2, b"")
    assert "TG-SETTING-FLAG: no file is given" in found.errors
    assert "example: --input a=a.ndjson --input 'two b=two b.ndjson'\n" in found.errors
    assert "did you mean FROM?" in run(written(tmp_path, "q.sql", "SELECT k INTO out FORM a")).errors


def test_a_column_of_reference_data_is_typed_as_a_whole(tmp_path: Path) -> None:
    """Codes with leading zeros among numbers are texts, and match as texts; the warning says how to declare them, which a flag can."""
    table = written(tmp_path, "zips.csv", "code,city\n01234,Aue\n1234,Bonn\n")
    file = written(tmp_path, "a.ndjson", '{"zip":"01234"}\n')
    script = written(tmp_path, "q.sql", "SELECT z.city AS city FROM a JOIN zips z ON a.zip = z.code")
    found = run(script, "--input", f"a={file}", "--reference", f"zips={table}")
    assert found.lines == [{"city": "Aue"}]
    assert f"{table}:2: warning TG-REFERENCE-TYPE" in found.errors
    assert "--reference zips=FILE:code=nvarchar(max)" in found.errors
    declared = run(script, "--input", f"a={file}", "--reference", f"zips={table}:code=nvarchar(max)")
    assert (declared.lines, "TG-REFERENCE-TYPE" in declared.errors) == ([{"city": "Aue"}], False)
    # As bigint both are 1234, since = reads the text of the other side as a number.
    whole = run(script, "--input", f"a={file}", "--reference", f"zips={table}:code=bigint,city=nvarchar(max)")
    assert whole.lines == [{"city": "Aue"}, {"city": "Bonn"}]


def test_patterns_come_from_reference_data(tmp_path: Path) -> None:
    """A bad one is refused with its record before anything is written."""
    table = written(tmp_path, "rules.csv", "id,p\n1,^dis[ck]\n2,fan$\n")
    file = written(tmp_path, "a.ndjson", '{"t":"Disk full"}\n{"t":"no fan"}\n{"t":"ok"}\n')
    script = written(tmp_path, "q.sql", "SELECT a.t AS t, r.id AS id FROM a JOIN rules r ON REGEXMATCH(a.t, r.p) > 0")
    given = (script, "--input", f"a={file}", "--reference", f"rules={table}")
    assert run(*given).lines == [{"t": "Disk full", "id": 1}, {"t": "no fan", "id": 2}]
    written(tmp_path, "rules.csv", "id,p\n1,^dis[ck\n2,fan$\n")
    refused = run(*given)
    assert (refused.code, refused.lines) == (3, [])
    assert "record 1 of rules has no pattern for REGEXMATCH" in refused.errors


def test_a_type_of_reference_data_must_be_one(tmp_path: Path) -> None:
    """And its column one of the file's."""
    table = written(tmp_path, "zips.csv", "code\n1\n")
    given = (written(tmp_path, "q.sql", "SELECT z.code AS c FROM a JOIN zips z ON a.zip = z.code"), "--input", "a=a.ndjson", "--reference")
    assert "'text' in 'zips=zips.csv:code=text' is no type" in run(*given, "zips=zips.csv:code=text").errors
    assert "TG-REFERENCE-FIELD" in run(*given, f"zips={table}:cod=bigint").errors


def test_reference_data_is_read_where_the_configuration_says(tmp_path: Path) -> None:
    """With its versions; a flag counts more, a table that the script does not name is not read, and one that is not there is told."""
    script = written(tmp_path, "q.sql", "SELECT p.city AS city INTO out FROM a TIMESTAMP BY at JOIN places p ON a.k = p.k")
    file = written(tmp_path, "a.ndjson", ndjson([at(1, k="x")]))
    written(tmp_path, "places-2000-01-01.csv", "k,city\nx,Ulm\n")
    tables = f'[references.places]\npath = "{tmp_path}/places-{{date}}.csv"\n[references.others]\npath = "nowhere.csv"\n'
    config = written(tmp_path, "tidegate.toml", f'[inputs.a]\ntimestamp_by = "at"\n{tables}')
    flags = ["--input", f"a={file}", "--config", config]
    assert run(script, *flags).lines == [{"city": "Ulm"}]
    other = written(tmp_path, "other.csv", "k,city\nx,Aue\n")
    assert run(script, *flags, "--reference", f"places={other}").lines == [{"city": "Aue"}]
    Path(tmp_path / "places-2000-01-01.csv").unlink()
    assert run(script, *flags).errors.startswith("TG-REFERENCE-")


def test_a_table_that_is_given_as_a_stream_is_told_its_flag(tmp_path: Path) -> None:
    """Or is not given at all: the error names the input and both ways to give it, and no DATEDIFF alone."""
    script = written(tmp_path, "q.sql", "SELECT a.k AS k INTO out FROM a TIMESTAMP BY at JOIN places p ON a.k = p.k")
    file = written(tmp_path, "a.ndjson", ndjson([at(1, k="x")]))
    assert "--reference places=FILE" in run(script, "--input", f"a={file}").errors
    assert "--reference places=FILE, or [references.places]" in run(script, "--input", f"a={file}", "--input", f"places={file}").errors


def test_a_column_that_no_record_has_is_a_warning(tmp_path: Path) -> None:
    """Its results are NULL, which nobody would notice; the name that was meant is shown."""
    script = written(tmp_path, "q.sql", "SELECT SUM(amuont) AS total INTO out FROM a TIMESTAMP BY at GROUP BY TumblingWindow(hour, 1)")
    file = written(tmp_path, "a.ndjson", ndjson([at(1, amount=5)]))
    found = run(script, "--input", f"a={file}")
    assert (found.code, found.lines) == (0, [{"total": None}])
    assert "TG-LINT-ABSENT: amuont has no value in 1 records of a" in found.errors
    assert "did you mean amount?" in found.errors


def test_a_column_that_comes_after_some_records_is_no_warning(tmp_path: Path) -> None:
    """As many records are looked at as a running job looks at, however few of them the first read brings."""
    script = written(tmp_path, "q.sql", "SELECT rare, never INTO out FROM a TIMESTAMP BY at")
    file = written(tmp_path, "a.ndjson", ndjson([*(at(1, k="x" * 100) for _ in range(900)), at(1, rare=5), *(at(1) for _ in range(900))]))
    told = run(script, "--input", f"a={file}").errors
    assert "never has no value in 1,000 records of a" in told
    assert "rare has" not in told


def test_a_time_and_a_key_are_found_in_another_case(tmp_path: Path) -> None:
    """As every other name is, and without a warning."""
    script = written(tmp_path, "q.sql", "SELECT K INTO out FROM a TIMESTAMP BY At OVER K, at")
    found = run(script, "--input", f"a={written(tmp_path, 'a.ndjson', ndjson([at(1, k='x')]))}")
    assert found.out == b'{"K":"x"}\n'
    assert "TG-LINT" not in found.errors
