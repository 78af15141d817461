"""Settings: precedence, origins, and refusals that name key, value, place, what is allowed and the nearest spelling."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from support.repository import ROOT
from typer.testing import CliRunner

from ordering.errors import SettingError, UnreachableError
from ordering.policies import Action, Generation, Policies, Shape
from ordering.ticks import DAY_US, HOUR_US, MINUTE_US, SECOND_US
from query.commands.lint import lint
from query.commands.local import local
from query.sql.bind import bind_script
from sinks.copying.job import prepare
from sinks.stores.checking import check_stores, warn_of_null_keys
from tidegate.basics.secret_masking import scrub
from tidegate.language.expressions.syntax.parse import parse_script
from tidegate.platform.observe.console import report_errors
from tidegate.platform.settings.kinds import format_size, parse_size, reveal_properties
from tidegate.platform.settings.load import Settings, load
from tidegate.platform.settings.manual import describe_settings
from tidegate.platform.settings.problems import _COUNTERPARTS, SettingsReport
from tidegate.platform.settings.shown_table import show_table
from tidegate.platform.settings.sources import locate_keys, parse_assignments
from tidegate.platform.spark.options import FIXED
from tidegate.tools.commands.config import as_toml

FLIGHTS = """\
[kafka]
bootstrap = "broker:9092"

[inputs.flights]
topic = "flights"
timestamp_by = "scheduled"
over = "origin"
early = "30m"
late = "3h"
reorder = "10m"
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(text: str, overrides: Mapping[str, str] | None = None, env: Mapping[str, str] | None = None) -> Settings:
    """Load *text* as the tidegate.toml of the working directory."""
    Path("tidegate.toml").write_text(text, "utf-8")
    return load(None, overrides, env or {})


def test_paths_of_scripts_and_data_begin_at_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a command runs; those of other sources, URLs and names of installed queries are what they are."""
    project = tmp_path / "project"
    (project / "ref").mkdir(parents=True)
    (project / "tidegate.toml").write_text("""
[inputs.a]
format = "avro"
avro_schema = "a.avsc"
[outputs.o]
topic = "o"
query = "sub/../q.sql"
files = "out"
delta = { path = "lake" }
[outputs.stored]
files = "s3://bucket/out"
[outputs.flagged]
files = "other"
[references.r]
path = "ref/{date}/r.csv"
[references.lake]
path = "ref/lake-{date}T{time}.parquet"
delta = { path = "lake" }
[references.given]
effective = { 2024-01-01 = "first.csv", "2024-02-01" = "/second.csv", "2024-03-01" = "s3://bucket/third.csv" }
[functions.f]
script = "f.js"
[queries.q]
script = "q.sql"
[queries.installed]
script = "delays"
""")
    settings = load(
        project / "tidegate.toml",
        {"references.r.format": "csv", "outputs.flagged.files": "out"},
        {"TIDEGATE_QUERIES__Q__SCRIPT": "here.sql"},
    )
    assert settings.inputs["a"].avro_schema == f"{project}/a.avsc"
    assert Path(settings.outputs["o"].query or "") == project / "sub/../q.sql"
    assert settings.outputs["o"].files == f"{project}/out"
    assert settings.outputs["o"].delta is not None
    assert settings.outputs["o"].delta.path == f"{project}/lake"
    assert settings.outputs["stored"].files == "s3://bucket/out"
    assert settings.outputs["flagged"].files == "out", "a flag's path goes where the command runs"
    assert settings.spark.checkpoint_dir == ".tidegate/checkpoints"
    assert settings.references["r"].path == f"{project}/ref/{{date}}/r.csv"
    assert settings.references["lake"].delta is not None
    assert settings.references["lake"].delta.path == f"{project}/lake"
    assert [*settings.references["given"].effective.values()] == [f"{project}/first.csv", "/second.csv", "s3://bucket/third.csv"]
    assert settings.functions["f"].script == f"{project}/f.js"
    assert (settings.queries["q"].script, settings.queries["installed"].script) == ("here.sql", "delays")
    monkeypatch.chdir(project)
    beside = load(Path("tidegate.toml"), env={})
    assert (beside.functions["f"].script, beside.queries["q"].script) == ("f.js", "q.sql")


def test_a_function_and_reference_data_are_found_from_another_folder(tmp_path: Path) -> None:
    """By lint and local, as they are by a job."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "tidegate.toml").write_text(
        '[inputs.a]\ntimestamp_by = "at"\n[references.r]\npath = "r.csv"\n[functions.f]\nscript = "f.js"\n[queries.q]\nscript = "q.sql"\n'
    )
    (project / "r.csv").write_text("k,name\n1,one\n")
    (project / "f.js").write_text("function main(x) { return x + 1; }")
    (project / "q.sql").write_text("SELECT r.name AS name, udf.f(a.k) AS v INTO out FROM a TIMESTAMP BY at JOIN r ON a.k = r.k")
    (tmp_path / "a.ndjson").write_text('{"at":"2001-01-01T00:00:00Z","k":1}\n')
    flags = ["--config", "project/tidegate.toml"]
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(report_errors(local))
    app.command()(report_errors(lint))
    linted = CliRunner().invoke(app, ["lint", "project/q.sql", *flags])
    assert linted.exit_code == 0, linted.output
    run = CliRunner().invoke(app, ["local", "project/q.sql", "--input", "a=a.ndjson", *flags])
    assert (run.exit_code, run.stdout) == (0, '{"name":"one","v":2}\n'), run.stderr


def refusals(text: str, overrides: Mapping[str, str] | None = None, env: Mapping[str, str] | None = None) -> list[SettingError]:
    """Load *text*, which is wrong, and return every problem reported."""
    with pytest.raises(SettingError) as refusal:
        read(text, overrides, env)
    return list(refusal.value.problems) if isinstance(refusal.value, SettingsReport) else [refusal.value]


def test_nothing_given_gives_defaults() -> None:
    """Without file, variables and flags every setting has its default, and says so."""
    settings = load(env={})
    assert settings.kafka.bootstrap == "localhost:9092"
    assert settings.kafka.connect_timeout_us == 8 * SECOND_US
    assert {origin for _, origin in settings.origins().values()} == {"default"}


def test_flags_beat_variables_beat_the_file() -> None:
    """Three sources, rising precedence, and each value knows its own."""
    settings = read(
        FLIGHTS, {"inputs.flights.late": "5h"}, {"TIDEGATE_INPUTS__FLIGHTS__LATE": "4h", "TIDEGATE_INPUTS__FLIGHTS__EARLY": "1m"}
    )
    flights = settings.input("flights")
    assert (flights.late_us, flights.early_us, flights.reorder_us) == (5 * HOUR_US, MINUTE_US, 10 * MINUTE_US)
    origins = settings.origins()
    assert origins["inputs.flights.late"] == ("5h", "flag")
    assert origins["inputs.flights.early"] == ("1m", "environment variable TIDEGATE_INPUTS__FLIGHTS__EARLY")
    assert origins["inputs.flights.reorder"] == ("10m", "tidegate.toml:10")
    assert origins["inputs.flights.idle_cadence"] == ("1s", "default")


def test_policies_are_those_of_the_file() -> None:
    """The frozen value the model works with has the file's tolerances."""
    settings = read(FLIGHTS + 'late_action = "drop"\n')
    assert settings.input("flights").policies() == Policies(30 * MINUTE_US, 3 * HOUR_US, Action.DROP, 10 * MINUTE_US, Action.ADJUST)


def test_without_timestamp_by_events_are_taken_in_arrival_order() -> None:
    """No event time: early off, late 0, reorder 0, and the settings show none of them."""
    settings = read("[inputs.flights]\n")
    assert settings.input("flights").policies() == Policies.arrival_order()
    assert settings.origins()["inputs.flights.late"] == ("", "default")


def test_spans_ctis_and_their_generation_are_those_of_the_file() -> None:
    """Shapes, CTIs that come in and CTIs that go out, as the model takes them."""
    settings = read(
        FLIGHTS + 'shape = "edge"\nend = "landed"\nsource_ctis = true\nimport_ctis_from = "tower"\ncti_violation_action = "drop"\n'
        'cti_every_events = 100\ncti_every = "1m"\ncti_delay = "2s"\ncti_list_substreams = true\n[inputs.tower]\n'
    )
    flights, tower = settings.input("flights"), settings.input("tower")
    assert flights.event_shape is Shape.EDGE
    assert flights.policies().cti_violation_action is Action.DROP
    assert flights.generation() == Generation(100, MINUTE_US, 2 * SECOND_US, True)
    assert tower.generation() == Generation()
    assert tower.generation().is_per_batch


def test_the_negative_delay_of_one_tick_is_a_watermark_above_the_event() -> None:
    """``cti_delay = "-1us"`` is reorder = -1 tick in the model, and the one negative delay there is."""
    settings = read('[inputs.flights]\ntimestamp_by = "t"\ncti_delay = "-1us"\n')
    assert settings.input("flights").policies().reorder_us == -1
    assert settings.input("flights").generation().delay_us == 0
    assert settings.origins()["inputs.flights.cti_delay"] == ("-1us", "tidegate.toml:3")
    (problem,) = refusals('[inputs.flights]\ntimestamp_by = "t"\ncti_delay = "-2us"\n')
    assert "-1us" in problem.fix


def test_names_follow_from_names() -> None:
    """Topic, ordered topic and dead-letter topic have defaults made of what stands before them."""
    settings = read('[inputs.flights]\n[inputs.two]\ntopic = ["a", "b"]\n')
    flights, two = settings.input("flights"), settings.input("two")
    assert (flights.topics, flights.ordered_topic, flights.dead_letter_topic) == (("flights",), "flights.ordered", "flights.ordered.dead")
    assert (two.topics, two.ordered_topic) == (("a", "b"), "two.ordered")


def test_off_and_forever_are_words() -> None:
    """A tolerance may be off; retention may be forever."""
    flights = read('[inputs.flights]\ntimestamp_by = "t"\nearly = "off"\nlate = "off"\nretention = "30d"\n').input("flights")
    assert (flights.early_us, flights.late_us, flights.retention_us) == (None, None, 30 * DAY_US)


def test_every_problem_is_reported_at_once() -> None:
    """Unknown keys, wrong values, wrong types and contradictions of different tables come in one report, in the file's order."""
    problems = refusals(
        """\
[kafka]
bootstrp = "x:1"
[kafka.client]
acks = "1"
[spark]
trigger = 5
shuffle_partitions = 0
[inputs.flights]
late_action = "ajust"
prefetch_bytes = "many"
[inputs.late-ones]
[outputs.windows]
""",
        env={"TIDEGATE_KAFKA_BOOTSTRAP": "y:2"},
    )
    assert [(problem.code, problem.where) for problem in problems] == [
        ("TG-SETTING-UNKNOWN", "environment"),
        ("TG-SETTING-UNKNOWN", "tidegate.toml:2"),
        ("TG-SETTING-CONFLICT", "tidegate.toml:4"),
        ("TG-SETTING-VALUE", "tidegate.toml:6"),
        ("TG-SETTING-VALUE", "tidegate.toml:7"),
        ("TG-SETTING-VALUE", "tidegate.toml:9"),
        ("TG-SETTING-VALUE", "tidegate.toml:10"),
        ("TG-SETTING-NAME", "tidegate.toml:11"),
        ("TG-SETTING-CONFLICT", "tidegate.toml:12"),
    ]
    assert "TIDEGATE_KAFKA__BOOTSTRAP" in problems[0].fix
    assert problems[1].what == 'unknown setting kafka.bootstrp = "x:1"'
    assert problems[1].fix.startswith("did you mean bootstrap?")
    assert "duration" in problems[3].fix
    assert problems[5].fix == "did you mean adjust? allowed: adjust, drop"


@pytest.mark.parametrize(
    ("lines", "setting", "words"),
    [
        ('timestamp_by = "t"\nover = "k"\nlate = "off"', "late", "over"),
        ('early = "1h"', "early", "timestamp_by"),
        ('over = "k"', "over", "timestamp_by"),
        ('timestamp_by = "t"\nlate = "21d"', "late", "20d"),
        ('ordered_topic = "flights"', "ordered_topic", "read and written"),
        ('dead_letter_topic = "flights.ordered"', "dead_letter_topic", "ordered_topic"),
        ('shape = "interval"', "shape", "timestamp_by"),
        ('timestamp_by = "t"\nshape = "edge"', "shape", "end"),
        ('timestamp_by = "t"\nend = "e"', "end", "shape"),
        ('timestamp_by = "t"\ncti_list_substreams = true', "cti_list_substreams", "over"),
        ('cti_delay = "-1us"', "cti_delay", "timestamp_by"),
        ('timestamp_by = "t"\nreorder = "1s"\ncti_delay = "-1us"', "cti_delay", "reorder"),
        ('cti_every = "0s"', "cti_every", "positive"),
        ('cti_violation_action = "drop"', "cti_violation_action", "source_ctis"),
        ('import_ctis_from = "flights"', "import_ctis_from", "another input"),
        ('import_ctis_from = "flights"', "import_ctis_from", "flights imports CTIs from itself: a cycle"),
        ('import_ctis_from = "nights"', "import_ctis_from", "no input nights"),
        (
            'import_ctis_from = "nights"',
            "import_ctis_from",
            "there is no other input; add [inputs.nights] or remove import_ctis_from",
        ),
    ],
)
def test_settings_of_an_input_that_contradict_each_other_are_refused(lines: str, setting: str, words: str) -> None:
    """What each setting allows alone may not hold together; the refusal stands at the setting at fault."""
    text = f"[inputs.flights]\n{lines}\n"
    (problem,) = refusals(text)
    assert problem.code == "TG-SETTING-CONFLICT"
    assert words in problem.what + problem.fix
    assert problem.where == f"tidegate.toml:{1 + next(n for n, line in enumerate(text.splitlines()) if line.startswith(setting))}"


def imports(*drivers: tuple[str, str]) -> str:
    """Return tables of inputs, each with the input that drives it, if any."""
    return "".join(f"[inputs.{name}]\n" + (f'import_ctis_from = "{driver}"\n' if driver else "") for name, driver in drivers)


@pytest.mark.parametrize(
    ("drivers", "told", "line"),
    [
        ([("a", "b"), ("b", "a")], "a imports CTIs from b, b imports CTIs from a", 2),
        ([("a", "b"), ("b", "c"), ("c", "a")], "a imports CTIs from b, b imports CTIs from c, c imports CTIs from a", 2),
        ([("x", "a"), ("a", "b"), ("b", "a")], "a imports CTIs from b, b imports CTIs from a", 4),
    ],
)
def test_inputs_that_drive_each_other_are_refused(drivers: list[tuple[str, str]], told: str, line: int) -> None:
    """None of a cycle could start before the others; it is told once, and who is driven by it is not at fault."""
    (problem,) = refusals(imports(*drivers))
    assert (problem.code, problem.where) == ("TG-SETTING-CONFLICT", f"tidegate.toml:{line}")
    assert problem.what.startswith(f"{told}: a cycle")
    assert "import_ctis_from" in problem.fix


def test_each_cycle_is_told_and_each_input_that_there_is_not() -> None:
    """All at once, in the order of the file; a chain and a star are none."""
    problems = refusals(imports(("a", "b"), ("b", "a"), ("c", "d"), ("d", "c"), ("e", "bb")))
    assert [problem.where for problem in problems] == ["tidegate.toml:2", "tidegate.toml:6", "tidegate.toml:10"]
    assert problems[2].fix.startswith("did you mean b?")
    assert read(imports(("a", "b"), ("b", "c"), ("c", ""), ("d", "c"))).input("d").import_ctis_from == "c"


@pytest.mark.parametrize("path", ["*", "a.*", "*.b", "", ".", "a.", "a..b"])
@pytest.mark.parametrize("setting", ["timestamp_by", "over"])
def test_a_field_path_has_a_name_at_each_step(setting: str, path: str) -> None:
    """An asterisk would be every member at once, nothing none."""
    problem = next(found for found in refusals(f'[inputs.flights]\n{setting} = "{path}"\n') if found.code == "TG-SETTING-VALUE")
    assert problem.where == "tidegate.toml:2"
    assert "a field path" in problem.fix
    assert setting == "timestamp_by" or ("* is none" in problem.fix) == ("*" in path)
    assert read(f"[inputs.flights]\ntimestamp_by = 't'\n{setting} = 'a*.\"b\"'\n" if setting == "over" else "").inputs is not None


def test_a_field_path_may_hold_any_other_sign() -> None:
    """Quotes, spaces, brackets, and an asterisk that is not alone."""
    path = 'a*.it\'s "b" [0]'
    assert read(f"[inputs.flights]\ntimestamp_by = 'at'\nover = {json.dumps(path)}\n").input("flights").over == path


@pytest.mark.parametrize("setting", ["over", "end"])
def test_a_field_path_is_written_without_brackets(setting: str) -> None:
    """As part of a name they would find nothing in any event."""
    (problem,) = refusals(f"[inputs.flights]\ntimestamp_by = 'at'\n{setting} = '[order].[shop id]'\n")
    assert "without brackets: order.shop id" in problem.fix


@pytest.mark.parametrize("written", ['["city", "place.line"]', '"city, place.line"', '" city ,place.line"'])
def test_over_may_name_several_fields(written: str) -> None:
    """As a list, or with commas between them, as in a variable; to the checkpoint all are the same."""
    table = read(f"[inputs.flights]\ntimestamp_by = 'at'\nover = {written}\n").input("flights")
    assert table.fingerprint()["over"] == "city, place.line"


@pytest.mark.parametrize("written", ['["tenant", "Zürich"]', '"Zürich, tenant"'])
def test_the_order_of_header_names_means_nothing(written: str) -> None:
    """Ordered records have them in one order, so that a changed order of the setting binds nothing else."""
    assert read(f"[inputs.flights]\nheaders = {written}\n").input("flights").headers == ("Zürich", "tenant")


@pytest.mark.parametrize(
    "written", ['["tg"]', '["a", "tf"]', '["*"]', '["a", "a"]', '[""]', '["a\\nb"]', '"a,"', "[7]", "7", f'["{256 * "x"}"]']
)
def test_names_of_headers_are_names_and_none_of_tidegates_own(written: str) -> None:
    """Readers find the numbers of events in a header of the same record."""
    (problem,) = refusals(f"[inputs.flights]\nheaders = {written}\n")
    assert (problem.code, problem.where) == ("TG-SETTING-VALUE", "tidegate.toml:2")
    assert "names of record headers" in problem.fix


@pytest.mark.parametrize("written", ["[]", '["a", "A"]', '"a,"', '["a,b"]', "7"])
def test_over_names_different_fields(written: str) -> None:
    """A name has no comma, and none comes twice."""
    (problem,) = refusals(f"[inputs.flights]\ntimestamp_by = 'at'\nover = {written}\n")
    assert (problem.code, problem.where) == ("TG-SETTING-VALUE", "tidegate.toml:3")


def test_an_ordered_topic_has_one_writer() -> None:
    """Two inputs, or an input and an output, cannot write the same topic."""
    (problem,) = refusals('[inputs.a]\n[inputs.b]\nordered_topic = "a.ordered"\n')
    assert "inputs.a.ordered_topic and inputs.b.ordered_topic" in problem.what
    (problem,) = refusals('[inputs.a]\n[outputs.o]\ntopic = "a.ordered"\n')
    assert problem.where == "tidegate.toml:3"


def test_bad_toml_is_refused_with_line_and_column() -> None:
    """A syntax error says where."""
    (problem,) = refusals("[kafka]\nbootstrap = broker\n")
    assert (problem.code, problem.where) == ("TG-SETTING-SYNTAX", "tidegate.toml:2:13")


def test_a_file_that_was_named_must_exist() -> None:
    """By flag or by variable; only the default file may be missing."""
    for load_it in (lambda: load(Path("no.toml"), env={}), lambda: load(env={"TIDEGATE_CONFIG": "no.toml"})):
        with pytest.raises(SettingError) as refusal:
            load_it()
        assert refusal.value.code == "TG-SETTING-FILE"


def test_of_many_settings_the_nearest_three_are_named() -> None:
    """All forty would hide the one that was meant."""
    (problem,) = refusals('[inputs.flights]\nreordr = "3s"\n')
    assert problem.fix.startswith("did you mean reorder, ")
    names, _, rest = problem.fix.removeprefix("did you mean ").partition("? ")
    assert len(names.replace(" or ", ", ").split(", ")) == 3
    assert rest.startswith("docs/reference/settings.md lists all ")


@pytest.mark.parametrize(
    ("table", "counterpart", "setting"),
    [
        ("inputs.flights", "event_time", "timestamp_by"),
        ("inputs.flights", "Partition-By", "over"),
        ("inputs.flights", "batch_size", "max_events_per_batch"),
        ("kafka", "bootstrap_servers", "bootstrap"),
        ("spark", "checkpoint_location", "checkpoint_dir"),
        ("redis", "host", "url"),
    ],
)
def test_a_word_of_another_system_is_answered_by_the_setting_of_that_meaning(table: str, counterpart: str, setting: str) -> None:
    """Spelling alone would lead elsewhere."""
    (problem,) = refusals(f'[{table}]\n{counterpart} = "3"\n')
    assert problem.code == "TG-SETTING-UNKNOWN"
    assert problem.fix == f"write {setting}, which docs/reference/settings.md describes"


def test_names_of_inputs_are_no_settings() -> None:
    """An input may be called as a setting is."""
    with pytest.raises(SettingError) as refusal:
        read("[inputs.topic]\n").input("name")
    assert "docs/reference/settings.md" not in refusal.value.fix


def test_counterparts_lead_to_settings_that_there_are() -> None:
    """Each is a setting of some table."""
    documented = (ROOT / "docs/reference/settings.md").read_text()
    assert [setting for setting in _COUNTERPARTS if f"| `{setting}` |" not in documented] == []


def test_a_misspelled_input_in_a_variable_makes_no_new_input() -> None:
    """A variable or flag for an input that is written nowhere is refused with the nearest name."""
    (problem,) = refusals(FLIGHTS, env={"TIDEGATE_INPUTS__FLIGTHS__LATE": "1h"})
    assert problem.code == "TG-SETTING-NAME"
    assert problem.fix.startswith("did you mean flights?")
    assert read(FLIGHTS, {"inputs.more.topic": "more"}).input("more").ordered_topic == "more.ordered"


def test_variables_find_inputs_whatever_their_case() -> None:
    """Variables are upper case, names need not be."""
    assert read("[inputs.Flights]\n", env={"TIDEGATE_INPUTS__FLIGHTS__TOPIC": "raw"}).input("Flights").topics == ("raw",)


def test_variables_of_others_are_left_alone() -> None:
    """What starts with TIDEGATE_ but is no setting is no error."""
    assert "flights" in read(FLIGHTS, env={"TIDEGATE_KAFKA_IMAGE": "apache/kafka", "TIDEGATE_STACK_HEAP": "512m"}).inputs


def test_free_tables_may_be_written_with_dots_quotes_or_as_json() -> None:
    """kafka.client and spark.conf take any property, from any source."""
    text = '[kafka.client]\nsecurity.protocol = "SASL_SSL"\n"socket.keepalive.enable" = true\n'
    settings = read(
        text,
        {"kafka.client.client.id": "me"},
        {"TIDEGATE_KAFKA__CLIENT__SASL_USERNAME": "u", "TIDEGATE_SPARK__CONF": '{"spark.ui.enabled": false}'},
    )
    assert settings.kafka.client_properties() == {
        "bootstrap.servers": "localhost:9092",
        "security.protocol": "SASL_SSL",
        "socket.keepalive.enable": "true",
        "client.id": "me",
        "sasl.username": "u",
    }
    assert settings.spark.properties() == {"spark.ui.enabled": "false"}
    (problem,) = refusals("", env={"TIDEGATE_SPARK__CONF__SPARK_UI_ENABLED": "false"})
    assert problem.example.startswith("TIDEGATE_SPARK__CONF=")


def test_field_types_are_declared_with_the_types_of_the_dialect() -> None:
    """A nested field is written with dots; a wrong type is met with the nearest."""
    assert read('[inputs.a.fields]\ndelay = "bigint"\nwind.speed = "float"\n').input("a").fields == {
        "delay": "bigint",
        "wind.speed": "float",
    }
    (problem,) = refusals('[inputs.a.fields]\ndelay = "bigin"\n')
    assert problem.fix.startswith("did you mean bigint?")


def test_secrets_are_read_from_files_and_variables_and_never_shown(tmp_path: Path) -> None:
    """A canary in every secret place: the clients get it, no text of ours has it."""
    (tmp_path / "password").write_text("canary-in-file\n")
    text = """\
[kafka.client]
sasl.password = "file:password"
sasl.username = "visible"
[redis]
url = "env:REDIS"
key_password = "env:KEY"
[spark.conf]
"spark.authenticate.secret" = "env:CONF"
"""
    env = {
        "REDIS": "rediss://me:canary-in-url@cache:6380/1",
        "KEY": "canary-of-key",
        "CONF": "canary-in-conf",
        "TIDEGATE_KAFKA__CLIENT__SSL_KEY_PASSWORD": "canary-in-environment",
    }
    settings = read(text, env=env)
    assert settings.kafka.client_properties()["sasl.password"] == "canary-in-file"
    assert settings.kafka.client_properties()["ssl.key.password"] == "canary-in-environment"
    assert settings.redis.client_options()["ssl_password"] == "canary-of-key"
    assert settings.redis.connection_url() == "rediss://me:canary-in-url@cache:6380/1"
    assert settings.redis.address == "rediss://me:***@cache:6380/1"
    shown = [
        repr(settings),
        str(settings),
        repr(settings.kafka),
        repr(settings.kafka.client_properties()),
        str(settings.redis.client_options()),
        repr(settings.spark.properties()),
        settings.model_dump_json(),
        repr(settings.origins()),
        as_toml(settings.origins()),
    ]
    assert not [text for text in shown if "canary" in text]
    assert settings.origins()["kafka.client.sasl.username"] == ("visible", "tidegate.toml:3")
    assert settings.origins()["kafka.client.sasl.password"] == ("***", "tidegate.toml:2, from file:password")


def test_errors_about_secrets_show_none() -> None:
    """Wrong settings with secrets in them are refused without repeating the secret."""
    text = """\
[redis]
url = "http://me:canary-one@cache"
passwrod = "canary-two"
[kafka]
bootstrap = "u:canary-three@broker:1"
[kafka.client]
sasl.password = ["canary-four"]
"ssl.key.password" = "file:/nowhere"
"""
    problems = refusals(text)
    assert [problem.code for problem in problems].count("TG-SETTING-SECRET") == 3
    assert len(problems) == 5
    assert "canary" not in "\n".join(map(str, problems))


@pytest.mark.parametrize(
    "bootstrap", ["u:canary-one@h", "u:canary-one@h:1", "SASL_SSL://u:canary-one@h:9093", "a:1,u:canary-one@h:9093", ":canary-one@h:1"]
)
def test_a_password_in_the_address_of_a_broker_is_refused_and_its_fix_is_taken(bootstrap: str) -> None:
    """Brokers take none there, so it is no wrong address alone: it stands in a file that is copied around."""
    (problem,) = refusals(f'[kafka]\nbootstrap = "{bootstrap}"\n')
    assert problem.code == "TG-SETTING-SECRET"
    assert "canary" not in str(problem)
    assert scrub("somebody says canary-one") == "somebody says ***"
    fixed = read(f'kafka.bootstrap = "h:9093"\n{problem.example}\n', env={"KAFKA_PASSWORD": "canary-two"})
    assert fixed.kafka.client_properties()["sasl.password"] == "canary-two"


UNSET = """\
[kafka.client]
sasl.password = "env:KAFKA_SECRET"
"client.rack" = "env:RACK"
[redis]
url = "rediss://cache:6380/1"
password = "file:/nowhere/redis"
[schema_registry]
url = "http://registry"
username = "me"
password = "env:REGISTRY"
[spark.conf]
"spark.authenticate.secret" = "env:CONF"
[outputs.shop]
topic = "shop"
[outputs.shop.postgres]
url = "env:SHOP_PG"
[outputs.hook]
topic = "hook"
[outputs.hook.http]
url = "env:HOOK"
secret = "env:SIGNED"
[outputs.lake]
topic = "lake"
[outputs.lake.delta]
path = "d"
[outputs.lake.delta.storage_options]
AWS_SECRET_ACCESS_KEY = "env:LAKE"
"""


def test_a_secret_that_is_not_set_is_missed_where_it_is_needed_and_nowhere_else() -> None:
    """Settings load, are printed so that they can be used, and travel; whoever takes the secret is told what to set."""
    settings = read(UNSET)
    copy = pickle.loads(pickle.dumps(settings))
    uses: dict[str, Callable[[Settings], object]] = {
        "KAFKA_SECRET": lambda given: given.kafka.client_properties(),
        "/nowhere/redis": lambda given: given.redis.client_options(),
        "CONF": lambda given: given.spark.properties(),
        "SHOP_PG": lambda given: given.output("shop").postgres.url.get_secret_value(),  # type: ignore[union-attr]
        "SIGNED": lambda given: given.output("hook").http.secret.get_secret_value(),  # type: ignore[union-attr]
        "LAKE": lambda given: reveal_properties(given.output("lake").delta.storage_options),  # type: ignore[union-attr]
    }
    for name, use in uses.items():
        for loaded in (settings, copy):
            with pytest.raises(SettingError) as missed:
                use(loaded)
            assert missed.value.code == "TG-SETTING-UNSET"
            assert name in missed.value.what
            assert missed.value.where.startswith("tidegate.toml:")
            assert name in missed.value.fix
    assert settings.redis.connection_url() == "rediss://cache:6380/1"
    assert settings.origins()["outputs.shop.postgres.url"][0] == "env:SHOP_PG"
    again = read(as_toml(settings.origins()), env={"SHOP_PG": "postgresql://h/d", "KAFKA_SECRET": "set by now"})
    assert again.output("shop").postgres.url.get_secret_value() == "postgresql://h/d"  # type: ignore[union-attr]
    with pytest.raises(SettingError, match="RACK"):
        again.kafka.client_properties()


@pytest.mark.parametrize(("output", "name"), [("shop", "SHOP_PG"), ("hook", "HOOK"), ("lake", "LAKE")])
def test_a_store_whose_secret_is_not_set_is_not_asked_by_plan_and_refused_by_a_sink_at_once(output: str, name: str) -> None:
    """Plan and lint warn; a sink would otherwise wait for its topic first, whose query may start hours later."""
    settings = read(UNSET.replace('sasl.password = "env:KAFKA_SECRET"', "").replace('"client.rack" = "env:RACK"', ""))
    (warning,) = check_stores(settings.output(output), [("k", "bigint")])
    assert (type(warning), warning.code) == (UnreachableError, "TG-SETTING-UNSET")
    assert not warn_of_null_keys(settings.output(output), [("k", "bigint")], ())
    with pytest.raises(SettingError) as refused:
        prepare(settings, output, [("k", "bigint")])
    assert refused.value.code == "TG-SETTING-UNSET"
    assert name in refused.value.what


def test_a_value_of_a_secret_that_is_set_is_checked_as_before() -> None:
    """A variable that holds no address is a wrong value at once."""
    (problem,) = refusals(UNSET, env={"SHOP_PG": "mysql://h/d"})
    assert problem.code == "TG-SETTING-VALUE"


@pytest.mark.parametrize(
    "text",
    [
        '[kafka.client]\nsasl.password = "canary"\n',
        '[kafka.client]\n"ssl.key.pem" = "-----BEGIN canary"\n',
        "[kafka.client]\nsasl.password = 1234\n",
        '[redis]\nurl = "redis://:canary@localhost"\n',
        '[redis]\npassword = "canary"\n',
        '[spark]\ncheckpoint_dir = "s3://me:canary@bucket"\n',
        '[spark.conf]\n"spark.hadoop.fs.s3a.secret.key" = "canary"\n',
    ],
)
def test_a_secret_written_out_is_refused(text: str) -> None:
    """In the file and on the command line, where others can read it; in the environment it may stand."""
    (problem,) = refusals(text)
    assert problem.code == "TG-SETTING-SECRET"
    assert problem.where == "tidegate.toml:2"
    assert "canary" not in str(problem)
    assert "1234" not in str(problem)


STORE = '[outputs.rides.postgres]\nurl = "postgresql://me@localhost/prod"\n'


def test_an_output_with_a_store_has_a_topic() -> None:
    """Unless it names one the topic is named like the output, and the query copies it; whoever names one decides about both."""
    for table, topic, in_job in (
        ("", "rides", True),
        ("[outputs.rides]\nsink_in_job = false\n", "rides", False),
        ('[outputs.rides]\ntopic = "r"\n', "r", False),
        ('[outputs.rides]\ntopic = "r"\nsink_in_job = true\n', "r", True),
        ('[outputs.rides]\nfiles = "out"\npartitions = 3\n', "rides", True),
    ):
        output = read(table + STORE).output("rides")
        assert (output.topic, output.sink_in_job) == (topic, in_job)
    settings = read('[outputs.rides]\nfiles = "out"\n')
    assert settings.output("rides").topic is None
    assert not settings.output("rides").sink_in_job
    shown = read(STORE).origins()
    assert shown["outputs.rides.topic"] == ("rides", "default")
    assert shown["outputs.rides.sink_in_job"] == ("true", "default")


@pytest.mark.parametrize(
    ("given", "span_us"),
    [
        ({"files": "out"}, MINUTE_US),
        ({"files": "out", "file_format": "parquet"}, HOUR_US),
        ({"files": "out", "file_format": "parquet_json"}, HOUR_US),
        ({"files": "out", "file_format": "parquet", "file_span": "1m"}, MINUTE_US),
        ({"files": "out", "file_format": "parquet", "plain_topic": "plain"}, MINUTE_US),
        ({"topic": "x", "plain_topic": "plain"}, MINUTE_US),
    ],
)
def test_parquet_files_are_of_an_hour_unless_somebody_waits_for_each_minute(given: dict[str, str], span_us: int) -> None:
    """A day of minutes is over a thousand files; whoever reads a plain topic would get a transaction each hour."""
    settings = load(None, {f"outputs.x.{name}": value for name, value in given.items()}, env={})
    assert settings.output("x").file_span_us == span_us
    assert pickle.loads(pickle.dumps(settings)).output("x").file_span_us == span_us


def test_what_a_store_lacks_or_has_elsewhere_is_named() -> None:
    """A required setting is missing; a store's setting stands in the output's table, or beside a store without the output's name."""
    (problem,) = refusals("[outputs.rides.postgres]\n")
    assert (problem.code, problem.what) == ("TG-SETTING-MISSING", "outputs.rides.postgres.url is missing")
    assert problem.fix.startswith("add url (URL, file:PATH or env:NAME): Where PostgreSQL answers")
    (problem,) = refusals('[outputs.rides]\nmode = "upsert"\n')
    assert problem.fix == "write it in the table [outputs.rides.postgres]"
    (problem,) = refusals('[outputs.rides.delta]\npath = ""\n')
    assert problem.fix == "allowed: text that is not empty"
    (problem,) = refusals('[outputs.rides]\nsink = "delta"\n')
    assert problem.fix == "write it as a table: [outputs.rides.delta]"
    (problem,) = refusals('[outputs.postgres]\nurl = "postgresql://me@localhost/prod"\n')
    assert problem.fix == "write it in the table [outputs.NAME.postgres]"
    (problem,) = refusals('[outputs.rides.valkey]\nurl = "redis://cache"\n')
    assert problem.fix == "write redis"
    (problem,) = refusals('[outputs.rides.iceburg]\ntable = "lake.rides"\n')
    assert "did you mean iceberg? allowed: clickhouse, delta, http, iceberg, postgres, redis" in problem.fix
    (problem,) = refusals(f'{STORE}mode = "upsert"\nprimary_key = "car"\n')
    assert problem.fix == 'allowed: a list, such as ["first", "second"]'


def test_names_that_follow_from_a_topics_are_names_of_topics_too() -> None:
    """A topic may be called what Kafka allows, and its ordered and its dead-letter topic may not."""
    for length, name in ((236, None), (237, "dead_letter_topic"), (242, "ordered_topic")):
        table = f'[inputs.taxis]\ntopic = "{"r" * length}"\n'
        if name is None:
            read(table)
            continue
        (problem,) = refusals(table)
        assert (problem.code, problem.what.split(" = ")[0]) == ("TG-SETTING-VALUE", f"inputs.taxis.{name}")
        assert problem.fix.startswith("allowed: a Kafka topic name")


def test_the_topic_of_a_store_is_nobody_elses() -> None:
    """A name that is no topic's, a raw topic, an ordered topic and the plain topic are refused, though nobody has named the topic."""
    (problem,) = refusals(STORE.replace("rides", "r" * 250))
    assert problem.code == "TG-SETTING-VALUE"
    assert "a Kafka topic name" in problem.fix
    for other, words in (
        ("[inputs.rides]\n", "which input rides reads as raw events"),
        ('[inputs.taxis]\ntopic = ["taxis", "rides"]\n', "which input taxis reads as raw events"),
        ('[inputs.taxis]\nordered_topic = "rides"\n', "rides is written by inputs.taxis.ordered_topic and outputs.rides.topic"),
        ('[outputs.rides]\nplain_topic = "rides"\n', "rides is written by outputs.rides.topic and outputs.rides.plain_topic"),
    ):
        (problem,) = refusals(other + STORE)
        assert words in problem.what
        assert problem.where.startswith("tidegate.toml:")
        assert "another name" in problem.fix or "a place of its own" in problem.fix


def test_two_outputs_never_write_to_one_place() -> None:
    """The files of one would replace those of the other, which have the same names; in a plain topic both would stand."""
    tables = "[outputs.a]\n{0}\n[outputs.b]\n{1}\n"
    for one, other in (("out/x", "./out/x/"), ("s3://lake/x", "s3://lake/x/"), ("x", "out/../x")):
        (problem,) = refusals(tables.format(f'files = "{one}"', f'files = "{other}"'))
        assert problem.code == "TG-SETTING-CONFLICT"
        assert "is written by outputs.a.files and outputs.b.files" in problem.what
    (problem,) = refusals(tables.format('plain_topic = "x"', 'plain_topic = "x"'))
    assert "x is written by outputs.a.plain_topic and outputs.b.plain_topic" in problem.what
    read(tables.format('files = "x"\ntopic = "x"', 'files = "x/y"'))


@pytest.mark.parametrize("url", ["s3a://bucket/checkpoints", "hdfs://name:8020/a", "file:///a"])
def test_a_url_for_checkpoints_is_refused(url: str) -> None:
    """It would make a local folder called `s3a:`; no job can keep a checkpoint there yet."""
    (problem,) = refusals(f'[spark]\ncheckpoint_dir = "{url}"\n')
    assert problem.code == "TG-SETTING-VALUE"
    assert "URLs (s3a://, hdfs://) are not supported yet" in str(problem)


def test_result_files_go_to_folders_and_object_stores() -> None:
    """What no writer knows is refused, and so is a password, wherever it stands; it is not shown."""
    for place in (
        "out/rides",
        "s3://lake/rides?region=eu-central-1",
        "gs://lake/x",
        "abfs://box@account.dfs.core.windows.net/x",
        "webhdfs://name:9870/x",
    ):
        assert read(f'[outputs.rides]\nfiles = "{place}"\n').output("rides").files == place
    for place in (
        "hdfs://name:8020/a",
        "webhdfs://me:canary@name:9870/a",
        "ftp://host/a",
        "s3a://lake/rides",
        "s3://me:canary@lake/rides",
        "",
    ):
        (problem,) = refusals("", env={"TIDEGATE_OUTPUTS__RIDES__FILES": place})
        assert problem.code == "TG-SETTING-VALUE"
        assert "canary" not in str(problem)


def test_a_secret_on_the_command_line_is_refused() -> None:
    """What stands there, every user of the machine can read."""
    for flag in (
        {"kafka.client.sasl.password": "canary"},
        {"kafka.client": '{"sasl.password": "canary"}'},
        {"redis.url": "redis://:canary@h"},
    ):
        (problem,) = refusals("", flag)
        assert (problem.code, problem.where) == ("TG-SETTING-SECRET", "flag")
    assert read("", {"redis.password": "env:P"}, {"P": "canary"}).redis.client_options() == {"password": "canary"}
    assert read("", env={"TIDEGATE_REDIS__URL": "redis://:canary@h"}).redis.connection_url() == "redis://:canary@h"


def test_what_says_how_to_reach_redis_holds_together() -> None:
    """Certificates without TLS, half a pair, two passwords."""
    for text, env in (
        ('[redis]\nca_file = "ca.pem"\n', {}),
        ('[redis]\nurl = "rediss://h"\nkey_file = "key.pem"\n', {}),
        ('[redis]\nurl = "env:U"\npassword = "env:P"\n', {"U": "redis://:one@h", "P": "two"}),
    ):
        (problem,) = refusals(text, env=env)
        assert problem.code == "TG-SETTING-CONFLICT"
        assert problem.where.startswith("tidegate.toml:")


def test_settings_travel_to_workers() -> None:
    """A pickled copy is equal, secrets and origins included."""
    settings = read(FLIGHTS, env={"TIDEGATE_REDIS__URL": "redis://:canary-pass@cache"})
    copy = pickle.loads(pickle.dumps(settings))
    assert copy == settings
    assert copy.redis.connection_url() == "redis://:canary-pass@cache"
    assert copy.origins() == settings.origins()


def test_a_report_travels_too() -> None:
    """An error with several problems survives pickling."""
    with pytest.raises(SettingsReport) as refusal:
        read("[kafka]\na = 1\nb = 2\n")
    assert str(pickle.loads(pickle.dumps(refusal.value))) == str(refusal.value)


def test_an_unknown_input_or_output_is_met_with_the_nearest() -> None:
    """Looking one up by a misspelled name."""
    settings = read(FLIGHTS)
    with pytest.raises(SettingError) as refusal:
        settings.input("fligths")
    assert refusal.value.fix.startswith("did you mean flights?")
    with pytest.raises(SettingError) as refusal:
        settings.output("windows")
    assert "[outputs.windows]" in refusal.value.fix


def test_the_fingerprint_is_the_same_however_a_value_is_written() -> None:
    """90m and 1h30m bind a checkpoint alike; another tolerance does not."""
    one = read(FLIGHTS, {"inputs.flights.early": "90m"}).input("flights").fingerprint()
    assert one == read(FLIGHTS, {"inputs.flights.early": "1h30m"}).input("flights").fingerprint()
    assert one != read(FLIGHTS, {"inputs.flights.early": "91m"}).input("flights").fingerprint()
    assert all(isinstance(value, str) for value in one.values())


def test_the_fingerprint_holds_what_shapes_events_and_nothing_else() -> None:
    """CTI generation binds nothing; what an earlier version did not know is absent where it has no effect."""
    plain = read(FLIGHTS).input("flights").fingerprint()
    generating = read(FLIGHTS + 'cti_every_events = 5\ncti_every = "1m"\ncti_delay = "2s"\n').input("flights")
    assert generating.fingerprint() == plain
    assert not {"shape", "end", "source_ctis", "import_ctis_from", "cti_violation_action"} & plain.keys()
    for lines, bound in [
        ('shape = "interval"\nend = "e"\n', {"shape": "interval", "end": "e"}),
        ("source_ctis = true\n", {"source_ctis": "true", "cti_violation_action": "adjust"}),
        ('headers = ["tenant", "Trace"]\n', {"headers": '["Trace", "tenant"]'}),
        ("headers = []\n", {}),
        ('import_ctis_from = "b"\n[inputs.b]\n', {"import_ctis_from": "b", "cti_violation_action": "adjust"}),
    ]:
        assert read(FLIGHTS + lines).input("flights").fingerprint() == {**plain, **bound}


def test_a_printed_configuration_reads_back_the_same() -> None:
    """tidegate config --format toml is a tidegate.toml with the same meaning."""
    text = (
        FLIGHTS + '[inputs.plain]\ntopic = ["x", "y"]\n[inputs.plain.fields]\na.b = "bit"\n'
        '[inputs.spans]\ntimestamp_by = "t"\nshape = "interval"\nend = "e"\nsource_ctis = true\ncti_delay = "-1us"\ncti_every_events = 3\n'
        'headers = ["b", "a c"]\n[inputs.lines]\nformat = "csv"\ncsv_columns = ["at", "k"]\n'
        '[spark]\napp_name = "7"\n[spark.conf]\n"a.b" = 1\n[outputs.o]\nfiles = "out"\n'
    )
    settings = read(text)
    assert read(as_toml(settings.origins())).model_dump() == settings.model_dump()


def test_every_setting_is_documented() -> None:
    """Each has its key, the form of its value and one line of meaning."""
    docs = list(describe_settings(Settings))
    assert len(docs) > 40
    assert not [doc.key for doc in docs if not doc.unit or not doc.doc.endswith(".") or "\n" in doc.doc]
    assert {doc.key: doc.default for doc in docs}["inputs.NAME.prefetch_bytes"] == "16MiB"


def test_what_readme_and_docs_set_is_taken() -> None:
    """README's configuration, and the flights of this file, take every ``--set`` that is shown."""
    readme = (ROOT / "README.md").read_text("utf-8")
    configuration = readme.partition("```toml\n[inputs.taxis]")[2].partition("```")[0]
    shown = readme + "".join(page.read_text("utf-8") for page in (ROOT / "docs").rglob("*.md"))
    assignments = set(re.findall(r"--set (\w+\.[\w.]+=[^\s`]+)", shown))
    assert len(assignments) > 4
    for assignment in sorted(assignments):
        read(f"{FLIGHTS}[inputs.taxis]{configuration}", parse_assignments([assignment]))


def test_lines_are_found_past_multi_line_values() -> None:
    """Arrays, quoted keys, long texts and brackets in comments do not mislead the line numbers."""
    text = 'a = [\n  "]", # ]\n]\n"b.c" = """\n[x]\nd = 1\n"""\n[t.\'u.v\'] # [no]\ne = {f = [1,\n2]}\ng.h = "#"\n'
    assert locate_keys(text) == {("a",): 1, ("b.c",): 4, ("t", "u.v"): 8, ("t", "u.v", "e"): 9, ("t", "u.v", "g", "h"): 11}


@given(st.integers(0, 2**60))
def test_sizes_read_back(size_bytes: int) -> None:
    """A size is written so that it reads back exactly."""
    assert parse_size(format_size(size_bytes)) == size_bytes


def test_assignments_need_a_value() -> None:
    """--set without = is refused; the value may hold = itself."""
    assert parse_assignments(["a.b=c=d"]) == {"a.b": "c=d"}
    with pytest.raises(SettingError):
        parse_assignments(["a.b"])


def test_a_worker_knows_the_secrets_it_was_sent() -> None:
    """In a process that read no settings, what came out of a pickle is masked in its logs too."""
    env = {"TIDEGATE_REDIS__PASSWORD": "canary-redis", "TIDEGATE_KAFKA__CLIENT__SASL_PASSWORD": "canary-kafka"}
    settings = read("", env=env)
    pickled = pickle.dumps((settings.redis, settings.kafka.client_properties()))
    code = (
        "import pickle, sys; from tidegate.basics.secret_masking import scrub\n"
        "redis, kafka = pickle.loads(sys.stdin.buffer.read())\n"
        "print(scrub(' '.join([redis.client_options()['password'], kafka['sasl.password']])), redis, kafka)"
    )
    told = subprocess.run([sys.executable, "-c", code], input=pickled, capture_output=True, check=True).stdout.decode()
    assert told.startswith("*** *** ")
    assert "canary" not in told


@pytest.mark.parametrize(
    ("word", "fix"),
    [
        ("int", "write bigint; allowed: "),
        ("double", "write float; allowed: "),
        ("boolean", "write bit; allowed: "),
        ("bigin", "did you mean bigint?; allowed: "),
        ("stuff", "allowed: array, bigint"),
    ],
)
def test_an_unknown_type_of_a_field_is_told_by_its_meaning(word: str, fix: str) -> None:
    """An int is a bigint, though its letters are nearer to bit."""
    (refusal,) = refusals(f'{FLIGHTS}\n[inputs.flights.fields]\ndelay = "{word}"\n')
    assert (refusal.code, refusal.fix[: len(fix)]) == ("TG-SETTING-VALUE", fix)


def test_the_manual_shows_how_fields_in_records_are_declared() -> None:
    """The snippet of docs/queries/expressions.md is loaded, and a script knows the types."""
    manual = (ROOT / "docs" / "queries" / "expressions.md").read_text("utf-8")
    (snippet,) = re.findall(r"```toml\n(\[inputs\.taxis\.fields\].*?)```", manual, re.DOTALL)
    settings = read(f'[inputs.taxis]\ntopic = "taxis"\ntimestamp_by = "at"\n{snippet}')
    assert settings.inputs["taxis"].fields == {
        "fare": "float",
        "place": "record",
        "place.zone": "bigint",
        "place.borough.name": "nvarchar(max)",
    }
    schema = settings.inputs["taxis"].schema_of_events("taxis")
    script = parse_script("SELECT place.zone AS zone, place.borough.name AS name INTO out FROM taxis TIMESTAMP BY at")
    assert bind_script(script, [schema]).columns == (("zone", "bigint"), ("name", "nvarchar(max)"))


def test_an_early_action_binds_only_where_it_adjusts() -> None:
    """Checkpoints of inputs that drop early events, as all did once, stay valid; topics for dropped events bind nothing."""
    plain, adjusting = (read(FLIGHTS, given).input("flights") for given in ({}, {"inputs.flights.early_action": "adjust"}))
    assert plain.fingerprint().get("early_action") is None
    assert (adjusting.fingerprint()["early_action"], adjusting.policies().early_action) == ("adjust", Action.ADJUST)
    assert read(FLIGHTS, {"inputs.flights.dropped_topic": "away"}).input("flights").fingerprint() == plain.fingerprint()


def test_a_table_is_shown_without_secrets_and_without_what_nobody_set() -> None:
    """What a history may keep of it: durations as they are written, no tables of stores."""
    tables = {
        "inputs": {"cars": {"topic": "cars", "timestamp_by": "at", "late": "90s"}},
        "outputs": {"rides": {"topic": "rides", "postgres": {"url": "postgresql://u:hunter2@h/d"}}},
    }
    settings = Settings.model_validate(tables)
    shown = show_table(settings.input("cars"))
    assert (shown["late"], shown["timestamp_by"]) == ("1m30s", "at")
    assert "reorder" not in shown
    assert show_table(settings.output("rides")) == {"topic": "rides"}


@pytest.mark.parametrize(
    ("name", "refused", "fixed"),
    [
        ("spark.python.worker.killOnIdleTimeout", "true", "false"),
        ("spark.sql.execution.pyspark.udf.killOnIdleTimeout", "TRUE", "false"),
        ("spark.python.udf.pipelined.enabled", "true", "false"),
        ("spark.sql.streaming.stateStore.checkpointFormatVersion", "1", "2"),
    ],
)
def test_what_would_end_long_tasks_of_spark_or_mix_their_states_is_refused_and_the_fix_works(name: str, refused: str, fixed: str) -> None:
    """The error says why; played, its fix leaves the value that the design sets."""
    with pytest.raises(SettingError) as failure:
        read(f'[spark.conf]\n"{name}" = "{refused}"\n')
    assert failure.value.code == "TG-SETTING-CONFLICT"
    assert f"{name} cannot be {refused}" in failure.value.what
    assert failure.value.fix == f"remove it: it is {fixed}"
    read("")
    assert FIXED[name] == fixed
    assert read(f'[spark.conf]\n"{name}" = "{fixed}"\n').spark.properties()[name] == fixed
