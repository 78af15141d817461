"""
A query job that was stopped, changed and is started again: what the manual (docs/operate/starting.md, changing a query) says of each kind
of change, with brokers that only say which topics there are. Those that need events are in tests/integration/query/test_plan_start.py.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from ordering.errors import QueryError, RefusedError, UnreachableError
from ordering.protocol.punctuation import Cause, Cti
from ordering.ticks import INFINITY, MINUTE_US, SECOND_US, TICK_MIN
from query import job
from query.config import Promise, QueryPlan, Substream
from query.reference.watch import TakenVersions
from query.script_plans import read_plans
from query.stage.offsets import QueryOffset
from query.start import apply, output_start, survey
from query.start.resumed_results import count_ahead_by_substream
from tidegate.language.expressions.functions.catalog import FUNCTIONS, VERSIONS
from tidegate.platform.checkpoint.binding import read_binding
from tidegate.platform.checkpoint.output_start import LAST_STOPPED, Start
from tidegate.platform.kafka.admin import Admin, Topic
from tidegate.platform.settings.load import load

TABLES = """
[inputs.a]
topic = "a"
timestamp_by = "t"
over = "k"

[inputs.b]
topic = "b"
timestamp_by = "t"
over = "k"

[outputs.x]
topic = "x"

[outputs.y]
topic = "y"

[outputs.anew]
topic = "anew"

[spark]
shuffle_partitions = 1
checkpoint_dir = "{folder}"
"""
C_US = 60 * MINUTE_US
LAST = Start(LAST_STOPPED)
ONE = "SELECT COUNT(*) AS n INTO {} FROM a TIMESTAMP BY t GROUP BY TumblingWindow(minute, 1)"
BY_KEY = "SELECT k, COUNT(*) AS n INTO {} FROM a TIMESTAMP BY t GROUP BY k, TumblingWindow(minute, 1)"
BY_CITY = "SELECT city, COUNT(*) AS n INTO {} FROM a TIMESTAMP BY t GROUP BY city, TumblingWindow(minute, 1)"
OVER = "SELECT k, COUNT(*) AS n INTO {} FROM a TIMESTAMP BY t OVER k GROUP BY k, TumblingWindow(minute, 1)"
UNION = "WITH u AS (SELECT k FROM a TIMESTAMP BY t{0} UNION SELECT k FROM b TIMESTAMP BY t{0}) "
BOTH = UNION.format("") + "SELECT COUNT(*) AS n INTO {} FROM u GROUP BY TumblingWindow(minute, 1)"
BOTH_OVER = UNION.format(" OVER k") + "SELECT k, COUNT(*) AS n INTO {} FROM u GROUP BY k, TumblingWindow(minute, 1)"


class Brokers(Admin):
    """Brokers that know topics, how many records each partition has, and what the channels of results have promised."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.promises: dict[str, dict[int, Cti]] = {}
        self.splits: dict[str, int] = {}
        self.held = {("x", bucket): {7: (C_US, Substream(0, b"k"))} for bucket in range(2)}
        for name in "ab":
            self.create(f"{name}.ordered", 2, {})

    def check_reachable(self) -> None:
        """They are."""

    def check_rights(self, rights: object) -> None:
        """All are given."""

    def find(self, name: str) -> Topic | None:
        """Return a topic."""
        return self.topics.get(name)

    def create(self, name: str, partitions: int, config: Mapping[str, str], replication_factor: int = 1) -> Topic:
        """Make a topic."""
        self.topics[name] = Topic(name, f"id of {name}", partitions, config)
        return self.topics[name]

    def grow(self, name: str, partitions: int) -> None:
        """Give a topic more partitions."""
        self.topics[name] = replace(self.topics[name], partitions=partitions)

    def starts(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Nothing was deleted."""
        return dict.fromkeys(partitions, 0)

    def ends(self, partitions: Iterable[tuple[str, int]], committed: bool = True) -> dict[tuple[str, int], int]:
        """Ordered topics hold something, result topics what was promised."""
        return {(name, number): 5_000 if name.endswith("ordered") else len(self.promises.get(name, {})) for name, number in partitions}

    def offsets_from(self, partitions: Iterable[tuple[str, int]], time_us: int) -> dict[tuple[str, int], int]:
        """A record for each minute."""
        return dict.fromkeys(partitions, max(time_us, 0) // MINUTE_US)


@dataclass
class Scene:
    """A configuration, and a job that can be started as far as Spark."""

    folder: Path
    brokers: Brokers
    tables: str = field(default=TABLES)

    def prepare(self, sql: str, start: Start | None = None, until_us: int = INFINITY) -> QueryPlan:
        """Start a script."""
        (self.folder / "tidegate.toml").write_text(self.tables.format(folder=self.folder))
        (self.folder / "query.sql").write_text(sql)
        settings = load(self.folder / "tidegate.toml")
        return job.prepare(settings, read_plans(settings, self.folder / "query.sql", None), start, until_us=until_us)

    def ran(self, sql: str) -> QueryPlan:
        """Begin a script and let it run for a while: a batch is done, and each channel has promised the same."""
        plan = self.prepare(sql)
        for name in ("offsets", "commits"):
            (Path(plan.checkpoint) / "spark" / name).mkdir(parents=True)
            (Path(plan.checkpoint) / "spark" / name / "0").write_text("v1\n{}\n" + json.dumps(QueryOffset({}).to_json()))
        for output in plan.outputs:
            assert output.topic is not None
            self.brokers.splits[output.topic] = plan.split
            self.brokers.promises[output.topic] = {
                bucket: Cti(bucket, bucket, C_US, 7, 0, 0, C_US, C_US - 1, plan.roster, Cause.EVENT) for bucket in range(plan.buckets)
            }
        return plan

    def refused(self, sql: str, code: str, start: Start | None = LAST) -> RefusedError:
        """Start a script that must be refused; what the folders were bound to stays."""
        before = {file: file.read_text() for file in self.folder.glob("query-*/*.json")}
        with pytest.raises(RefusedError) as refusal:
            self.prepare(sql, start)
        assert refusal.value.code == code
        assert before == {file: file.read_text() for file in self.folder.glob("query-*/*.json")}
        return refusal.value

    def lose(self, plan: QueryPlan) -> None:
        """Delete the checkpoint folder."""
        shutil.rmtree(plan.checkpoint)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Two inputs are ordered, each in two partitions."""
    brokers = Brokers()
    monkeypatch.setattr(Admin, "connect", lambda _: brokers)
    monkeypatch.setattr(survey, "has_ended", lambda *_: False)

    def promised(kafka: object, starts: object, ends: dict[tuple[str, int], int], fix: str) -> dict[int, dict[int, Cti]]:
        ((topic, _), *_) = ends
        return {bucket: {bucket: cti} for bucket, cti in brokers.promises[topic].items()}

    monkeypatch.setattr(output_start, "last_promises", promised)

    def counted(kafka: object, topic: str, partition: int, first: int, end: int, promise: Promise) -> Promise:
        assert first == max(promise.c, 0) // MINUTE_US
        counted = count_ahead_by_substream(promise, brokers.held.get((topic, partition), {}))
        if counted is None:
            raise RefusedError("results are deleted", code="TG-RETENTION", where=topic)
        return counted

    monkeypatch.setattr(output_start, "read_promise_by_substream", counted)
    monkeypatch.setattr(survey, "read_split", lambda kafka, admin, topic: brokers.splits[topic.name])
    monkeypatch.setattr(apply, "settle_logs", lambda admin, plan: {})
    return Scene(tmp_path, brokers)


def named(refusal: RefusedError) -> list[str]:
    """Return which bound settings a refusal says have changed."""
    return [line.partition(": ")[0] for line in refusal.what.partition(": ")[2].split("; ")]


LEFT = Promise(C_US, 7, 0, C_US - 1, {})
# In the topic of output x each channel has one result after its last CTI.
LEFT_IN_X = Promise(C_US, 8, 1, C_US, {Substream(0, b"k"): [C_US]})


def test_a_function_that_gave_other_values_before_is_not_continued(scene: Scene) -> None:
    """A checkpoint made before the function was changed does not name its version; one of a query without it goes on."""
    assert VERSIONS.keys() <= FUNCTIONS.keys()
    calls = BY_KEY.replace("COUNT(*)", "SUM(POWER(v, 2))")
    for sql, versions in ((BY_KEY.format("y"), None), (calls.format("x"), "power 2")):
        plan = scene.ran(sql)
        bound = read_binding(Path(plan.checkpoint)) or {}
        assert bound.pop("function_versions", None) == versions
        (Path(plan.checkpoint) / "settings.json").write_text(json.dumps(bound))
        if versions is None:
            scene.prepare(sql, LAST)
            scene.lose(plan)
    refusal = scene.refused(sql, "TG-CHECKPOINT-SETTINGS")
    assert "function_versions: (unset) -> power 2" in str(refusal)
    assert scene.prepare(calls.format("anew")).promises == ({},)
    scene.lose(plan)
    assert refusal.example == "--start last-stopped"
    assert scene.prepare(sql, LAST).promises == (dict.fromkeys(range(plan.buckets), LEFT_IN_X),)


@pytest.mark.parametrize("folders", ["none", "date"])
def test_a_file_is_never_replaced_by_a_part_of_it(scene: Scene, folders: str) -> None:
    """By a run that begins or ends within it, its checkpoint lost; a file that is not there is in nobody's way."""
    scene.tables += f'[outputs.filed]\nfiles = "{{folder}}/out"\nfile_folders = "{folders}"\n'
    sql = BY_KEY.format("filed")
    day = "date=1970-01-01/" if folders == "date" else ""
    file = scene.folder / "out" / f"{day}1970-01-01T01-00-00Z.p00001.ndjson"
    file.parent.mkdir(parents=True)
    file.write_text("{}\n")
    within, begins = Start("then", C_US + SECOND_US), Start("at", C_US)
    for start, until_us, example in ((within, INFINITY, "--start"), (None, C_US + 1, "--until"), (begins, C_US + 1, "--until")):
        with pytest.raises(RefusedError) as refusal:
            scene.prepare(sql, start, until_us)
        assert (refusal.value.code, refusal.value.where) == ("TG-START-CUT", str(file))
        assert refusal.value.example == f"{example} 1970-01-01T01:00:00Z"
        assert not list(scene.folder.glob("query-*"))
    plan = scene.prepare(sql, begins, C_US + MINUTE_US)
    scene.lose(plan)
    scene.lose(scene.prepare(sql, Start("later", C_US + MINUTE_US + 1)))
    file.unlink()
    scene.prepare(sql, within)
    file.write_text("{}\n")
    scene.prepare(sql, within)


@pytest.mark.parametrize(("output", "place"), [('topic = "y"', "y"), ('plain_topic = "y"', "y"), ('files = "{folder}/out"', "out")])
def test_what_another_query_writes_is_not_written(scene: Scene, output: str, place: str) -> None:
    """Even if it has no result yet, and whatever is asked for; a checkpoint that is damaged is in nobody's way."""
    scene.tables = scene.tables.replace('[outputs.y]\ntopic = "y"', f"[outputs.y]\n{output}")
    plan = scene.prepare(";\n".join(BY_KEY.format(name) for name in "xy"))
    for start in (None, Start("then", C_US)):
        refusal = scene.refused(BY_KEY.format("y"), "TG-OUTPUT-TAKEN", start)
        assert refusal.where.endswith(place)
    (Path(plan.checkpoint) / "settings.json").write_text("")
    scene.prepare(BY_KEY.format("y"))


def test_a_start_that_fails_binds_nothing_whatever_it_has_copied(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reference data whose store does not answer, or a kill: the next start may have another script and other data."""
    scene.tables += '[references.r]\npath = "{folder}/r.csv"\n'
    file, sql = scene.folder / "r.csv", "SELECT a.k AS k, r.name AS {0} INTO x FROM a TIMESTAMP BY t JOIN r ON a.k = r.k"
    for step in ("take_up_versions", "bind"):
        file.write_text(f"k,name\n1,{step}\n")
        with monkeypatch.context() as patched, pytest.raises(UnreachableError):
            patched.setattr(apply, step, fail)
            scene.prepare(sql.format(step))
        assert [read_binding(folder) for folder in scene.folder.glob("query-*")] in ([], [None])
    file.write_text("k,name\n1,anew\n")
    plan = scene.prepare(sql.format("name"))
    taken = TakenVersions.read(Path(plan.checkpoint))
    assert taken is not None
    assert ([version.bytes for version in taken.versions], taken.initial_count) == ([file.stat().st_size], 1)
    file.write_text("k,name\n1,changed\n")
    scene.refused(sql.format("name"), "TG-REFERENCE-CHANGED", None)


def fail(*_: object, **__: object) -> None:
    """End a start."""
    raise UnreachableError("the store does not answer")


def test_a_statement_without_into_needs_an_output_of_the_default_name(scene: Scene) -> None:
    """The error says why an output is wanted that the script does not name."""
    with pytest.raises(QueryError) as refusal:
        scene.prepare("SELECT k FROM a TIMESTAMP BY t")
    assert refusal.value.code == "TG-QUERY-OUTPUT"
    assert refusal.value.what == "a statement without INTO writes to output, and there is no [outputs.output]"


def test_a_job_knows_whose_arrivals_are_processing_times(scene: Scene) -> None:
    """Only of an input that ingest stamps."""
    sql = "SELECT a.EventProcessedUtcTime AS p INTO x FROM a TIMESTAMP BY t"
    with pytest.raises(QueryError, match='EventProcessedUtcTime of a with arrival = "broker" is not supported yet'):
        scene.prepare(sql)
    scene.tables = scene.tables.replace("[inputs.a]", '[inputs.a]\narrival = "ingest"')
    assert scene.prepare(sql).plans[0].output == "x"


def test_the_same_query_goes_on(scene: Scene) -> None:
    """Started again for nothing, or for where it stopped."""
    sql = BY_KEY.format("x")
    plan = scene.ran(sql)
    for start in (None, LAST):
        assert scene.prepare(sql, start).promises == plan.promises == ({},)


@pytest.mark.parametrize("sql", [ONE, BY_KEY, BY_CITY])
def test_an_output_that_is_removed(scene: Scene, sql: str) -> None:
    """It is refused by name; where it was the first, nobody finds its folder. The way out: the other goes on after its last CTI."""
    plan = scene.ran(";\n".join(sql.format(name) for name in "xy"))
    assert set(named(scene.refused(sql.format("x"), "TG-CHECKPOINT-SETTINGS"))) >= {"output", "plan"}
    lost = scene.refused(sql.format("y"), "TG-CHECKPOINT-LOST", None)
    assert "--start last-stopped" in lost.fix
    left = dict.fromkeys(range(plan.buckets), LEFT)
    taken = scene.refused(sql.format("y"), "TG-OUTPUT-TAKEN")
    assert plan.checkpoint in taken.what
    scene.lose(plan)
    assert scene.prepare(sql.format("y"), LAST).promises == (left,)
    goes_on = scene.prepare(sql.format("x"), LAST)
    left = dict.fromkeys(range(plan.buckets), LEFT_IN_X)
    assert goes_on.promises == (left,)
    assert goes_on.read_from_us == C_US - MINUTE_US
    assert scene.prepare(sql.format("x")).promises == (left,), "a later start goes on with it"


def test_an_input_that_is_added(scene: Scene) -> None:
    """It is refused by name. The ways out: go on after the last CTI, with what the new input has from there on; or begin anew."""
    plan = scene.ran(ONE.format("x"))
    assert set(named(scene.refused(BOTH.format("x"), "TG-CHECKPOINT-SETTINGS"))) >= {"plan", "reads"}
    scene.lose(plan)
    goes_on = scene.prepare(BOTH.format("x"), LAST)
    assert goes_on.promises == ({0: LEFT_IN_X},)
    assert goes_on.starts == dict.fromkeys([(f"{name}.ordered", number) for name in "ab" for number in range(2)], C_US // MINUTE_US - 1)
    assert scene.prepare(BOTH.format("anew")).promises == ({},)


@pytest.mark.parametrize("sql", [OVER, BOTH_OVER])
def test_with_over_what_is_written_is_told_by_its_keys_where_there_are_several_inputs(scene: Scene, sql: str) -> None:
    """Where an input was added, and where nothing was changed: what each key has from the last CTI on is found in the topic, once."""
    plan = scene.ran(sql.format("x"))
    scene.lose(plan)
    goes_on = scene.prepare(BOTH_OVER.format("x"), LAST)
    assert goes_on.promises == ({0: LEFT_IN_X, 1: LEFT_IN_X},)
    scene.brokers.held.clear()
    assert scene.prepare(BOTH_OVER.format("x")).promises == goes_on.promises, "a later start finds it in the checkpoint's folder"


def test_with_over_and_several_inputs_results_before_the_first_cti_are_told_too(scene: Scene) -> None:
    """A bucket that was lost so early begins anew, and leaves out what is written: it would give its numbers to other results."""
    scene.lose(scene.ran(BOTH_OVER.format("x")))
    del scene.brokers.promises["x"][1]
    scene.brokers.held["x", 1] = {0: (7_000, Substream(0, b"k")), 1: (9_000, Substream(0, b"l")), 3: (11_000, Substream(0, b"k"))}
    goes_on = scene.prepare(BOTH_OVER.format("x"), LAST)
    assert goes_on.promises[0][1] == Promise(TICK_MIN, 2, 2, 9_000, {Substream(0, b"k"): [7_000], Substream(0, b"l"): [9_000]})
    assert goes_on.starts == dict.fromkeys(goes_on.starts, 0), "everything is read"


@pytest.mark.parametrize("sql", [ONE, BY_KEY, BY_CITY, OVER])
def test_results_after_the_last_cti_keep_their_numbers(scene: Scene, sql: str) -> None:
    """A changed query would give the numbers to other results, which no reader accepts. If some are deleted, the last CTI counts alone."""
    plan = scene.ran(sql.format("x"))
    scene.lose(plan)
    goes_on = scene.prepare(sql.format("x").replace("COUNT(*)", "1 + COUNT(*)"), LAST)
    assert goes_on.promises == (dict.fromkeys(range(plan.buckets), LEFT_IN_X),)
    scene.lose(plan)
    ahead = {bucket: replace(cti, ahead=2) for bucket, cti in scene.brokers.promises["x"].items()}
    scene.brokers.promises["x"] = ahead
    assert scene.prepare(sql.format("x"), LAST).promises == (dict.fromkeys(range(plan.buckets), Promise(C_US, 7, 2, C_US - 1)),)


@pytest.mark.parametrize("sql", [ONE, BY_KEY, BY_CITY, OVER])
def test_an_ordered_topic_with_more_partitions_is_refused(scene: Scene, sql: str) -> None:
    """Keys would move: those it had then are named, or those of the topic of results."""
    scene.ran(sql.format("x"))
    scene.brokers.grow("a.ordered", 3)
    with pytest.raises(RefusedError) as refusal:
        scene.prepare(sql.format("x"), LAST)
    assert refusal.value.code in ("TG-CHECKPOINT-SETTINGS", "TG-TOPIC-PARTITIONS")
    if refusal.value.code == "TG-CHECKPOINT-SETTINGS":
        assert "partitions: 2 -> 3" in refusal.value.what


@pytest.mark.parametrize("with_checkpoint", [True, False])
@pytest.mark.parametrize("sql", [ONE, BY_KEY, BY_CITY, OVER])
def test_a_result_topic_with_more_partitions_is_refused(scene: Scene, sql: str, with_checkpoint: bool) -> None:
    """Keys would move, whether the checkpoint is there or the job is to go on without it."""
    plan = scene.ran(sql.format("x"))
    if not with_checkpoint:
        scene.lose(plan)
    scene.brokers.grow("x", plan.buckets + 1)
    with pytest.raises(RefusedError) as refusal:
        scene.prepare(sql.format("x"), LAST)
    assert refusal.value.code in ("TG-CHECKPOINT-SETTINGS", "TG-TOPIC-PARTITIONS")
    assert (read_binding(Path(plan.checkpoint)) is None) is not with_checkpoint
