"""
What is in topics, shown and read from outside (``tidegate peek``, ``tidegate.read``), on what real jobs wrote.

Level 3 where results are read: what a job wrote after copies, and in whatever batches, is read once and in one order.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from support.postgres_server import PostgresServer
from support.stack.commands import run_command
from support.stack.jobs import Workspace, workspace
from support.stack.servers import SharedStack
from support.stack.topics import create, exists, fresh, header, produce, records

import tidegate
from ordering.errors import SettingError, TidegateError
from ordering.protocol.wire import HEADER_NAME
from tidegate import Results

pytestmark = pytest.mark.integration

START_MS = 1_767_600_000_000  # 2026-01-05T08:00:00Z
SCRIPT = """
SELECT car, System.Timestamp() AS minute_end, COUNT(*) AS fixes, AVG(speed) AS speed
INTO rides FROM taxis TIMESTAMP BY at OVER car GROUP BY car, TumblingWindow(minute, 1)
"""
# Without a window.
FAST = "SELECT car, speed, place.name AS name INTO fast FROM taxis TIMESTAMP BY at OVER car WHERE speed > 32"
# Over the results of the first, with a table of which there are three versions.
BUSY = """
SELECT rides.car, owners.owner, System.Timestamp() AS span_end, SUM(rides.fixes) AS fixes
INTO busy FROM rides JOIN owners ON rides.car = owners.car GROUP BY rides.car, owners.owner, TumblingWindow(minute, 2)
"""


@dataclass(frozen=True)
class Sent:
    """A record to produce."""

    partition: int
    key: bytes | None
    value: bytes | None
    stamp_ms: int
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass
class Chain:
    """A raw topic with history, what ingest and a query made of it, and a folder with their configuration."""

    folder: Path
    stack: SharedStack
    topic: str
    space: Workspace

    def tidegate(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the folder, without Java."""
        return run_command(self.folder, *arguments, environment=self.environment())

    def environment(self) -> dict[str, str]:
        """Return the environment of a command."""
        own = {"TIDEGATE_KAFKA__BOOTSTRAP": self.stack.bootstrap, "TIDEGATE_REDIS__URL": self.stack.redis_url, "JAVA_HOME": "/nowhere"}
        return os.environ | own

    def peek(self, *arguments: str) -> list[dict[str, Any]]:
        """Return what ``tidegate peek`` prints as JSON."""
        done = self.tidegate("peek", *arguments, "--format", "json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


def position(number: int) -> Sent:
    """Return a position: one each second, by three cars; every tenth arrives 3 s late, and one 100 s."""
    car = "abc"[number % 3]
    at_ms = START_MS + number * 1_000 - (100_000 if number == 157 else 3_000 if number % 10 == 5 else 0)
    value = json.dumps({"at": at_ms / 1000, "car": car, "speed": 30 + number % 7, "place": {"lat": 48.1, "name": f"n{number}"}})
    return Sent(number % 2, car.encode(), value.encode(), START_MS + number * 1_000, (("trace", b"t%d" % number),) if number == 299 else ())


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory, shared_stack: SharedStack) -> Iterator[Chain]:
    """Five minutes of positions, a broken record and one without a payload; ordered, and counted by minute; then copies of results."""
    folder, topic = tmp_path_factory.mktemp("looking"), fresh("taxis")
    tables = f"""
[inputs.taxis]
topic = "{topic}"
timestamp_by = "at"
over = "car"
late = "1m"
reorder = "5s"

[outputs.rides]
topic = "{topic}.rides"
files = "out/rides"
query = "rides.sql"

[outputs.busy]
topic = "{topic}.busy"
query = "busy.sql"

[outputs.fast]
topic = "{topic}.fast"
query = "fast.sql"

[references.owners]
path = "owners-{{date}}T{{time}}.csv"
"""
    bootstrap = shared_stack.bootstrap
    create(bootstrap, topic, 2)
    bad = [Sent(0, b"a", b'{"at": 1,, }', START_MS + 300_000), Sent(1, b"b", None, START_MS + 300_000)]
    produce(bootstrap, topic, [*map(position, range(300)), *bad])
    with workspace(folder, shared_stack, tables) as space:
        space.script("rides.sql", SCRIPT)
        space.start("ingest", "taxis", "--until-end").finish()
        space.start("query", "rides.sql").finish()
        for time_of_day in ("07-00", "08-03", "09-00"):
            (folder / f"owners-2026-01-05T{time_of_day}.csv").write_text("car,owner\na,Ann\nb,Bob\nc,Cem\n")
        space.script("fast.sql", FAST)
        space.start("query", "fast.sql").finish()
        space.script("busy.sql", BUSY)
        space.start("query", "busy.sql").finish()
        # As after a writer that failed: its last results are there again.
        results = [m for m in records(bootstrap, f"{topic}.rides") if m.value() and m.value()[:1] == b"{"]
        copies = [
            Sent(m.partition() or 0, m.key(), m.value(), m.timestamp()[1], ((HEADER_NAME, header(m, HEADER_NAME)),)) for m in results[-6:]
        ]
        produce(bootstrap, f"{topic}.rides", copies)
        yield Chain(folder, shared_stack, topic, space)


def test_the_newest_raw_records_are_shown_with_their_headers(chain: Chain) -> None:
    """Two partitions by their timestamps; payloads as they are; a record without one, and one that is no JSON, too."""
    found = chain.peek(chain.topic, "--limit", "4")
    assert [one["offset"] for one in found] == [149, 149, 150, 150]
    assert found[1]["value"]["place"]["name"] == "n299"
    assert found[1]["headers"] == {"trace": "t299"}
    assert (found[2]["value"], found[3]["value"]) == ('{"at": 1,, }', None)
    assert {one["kind"] for one in found} == {"raw"}
    text = chain.tidegate("peek", chain.topic, "-n", "4").stdout.splitlines()
    assert text[1].startswith(f"{chain.topic}-1@149  2026-01-05T08:04:59Z  key c  ")
    assert text[1].endswith("[trace=t299]")
    assert text[3].endswith("key b  (no payload)")


def test_ordered_events_are_shown_with_seq_and_what_policies_did(chain: Chain) -> None:
    """The late one is found by a condition on its payload; its times and its origin are those that the header says."""
    ordered = f"{chain.topic}.ordered"
    found = chain.peek(ordered, "--where", "place.name = 'n157' AND speed > 3")
    assert len(found) == 1
    assert (found[0]["kind"], found[0]["key"], found[0]["origin_offset"]) == ("event", "b", 78)
    assert {"late", "out_of_order"} & set(found[0]["flags"])
    assert found[0]["event_time"] == "2026-01-05T08:00:57Z"
    assert found[0]["arrival"] == "2026-01-05T08:02:37Z"
    line = chain.tidegate("peek", ordered, "--where", "place.name = 'n157'").stdout
    assert re.search(r"  seq \d+  2026-01-05T08:0\d:\d\dZ  key b  \{.*\}  \(late.*: event time 2026-01-05T08:00:57Z, arrived", line)
    newest = chain.peek(ordered, "-n", "3")
    assert [one["kind"] for one in newest].count("event") == 3
    assert newest[-1]["kind"] == "cti"
    assert newest[-1]["c"] == "infinity"
    assert [one["kind"] for one in chain.peek(ordered, "-n", "3", "--no-ctis")] == ["event"] * 3


def test_watermarks_are_drawn_from_the_ordered_topic(chain: Chain) -> None:
    """A dot for each of the 300 events, and lines for both partitions; of the results too."""
    done = chain.tidegate("watermarks", "--plot", "taxis.svg")
    assert done.returncode == 0, done.stderr
    svg = (chain.folder / "taxis.svg").read_text()
    assert svg.count("<circle") == 300
    assert (svg.count("partition 0<"), svg.count("partition 1<")) == (1, 1)
    assert chain.tidegate("watermarks", "rides", "--plot", "rides.png").returncode == 0
    assert (chain.folder / "rides.png").read_bytes().startswith(b"\x89PNG")
    wrong = chain.tidegate("watermarks", "--plot", "taxis.gif")
    assert (wrong.returncode, "TG-SETTING-VALUE" in wrong.stderr) == (2, True)


def test_a_result_is_explained_by_its_events_and_an_event_by_its_results(chain: Chain) -> None:
    """The minute of a car leads to its twenty positions, the late one with its policy; each of them leads to that minute again. Level 3."""
    found = [one for one in chain.peek(f"{chain.topic}.rides", "--limit", "100", "--no-ctis") if one["key"] == "b"]
    minutes = [one for one in found if one["value"]["minute_end"] == "2026-01-05T08:03:00Z"]
    minute = minutes[0]
    place = f"{chain.topic}.rides-{minute['partition']}@{minute['offset']}"
    done = chain.tidegate("explain", place, "--format", "json")
    assert done.returncode == 0, done.stderr
    trace = json.loads(done.stdout)
    [made] = trace["inputs"]
    # The car's positions come from two input partitions, and each has a result: events of both are named.
    assert (trace["value"], made["count"]) == (minute["value"], sum(one["value"]["fixes"] for one in minutes))
    late = [event for event in made["events"] if event["policies"]]
    assert {event["value"]["place"]["name"] for event in late} == {"n157"}
    assert late[0]["origin"] == f"{chain.topic}-1@78"
    by_key = chain.tidegate("explain", "rides", "--key", "b", "--at", "2026-01-05T08:03:00Z")
    assert f"made from among {made['count']} of taxis" in by_key.stdout
    assert f"which event had set the watermark: tidegate explain taxis {chain.topic}-1@78" in by_key.stdout
    # Forward again: the place and seq of the event, and its window.
    forward = chain.tidegate("explain", "taxis", late[0]["origin"], "--forward", "--format", "json")
    assert forward.returncode == 0, forward.stderr
    judged, went = map(json.loads, forward.stdout.splitlines())
    assert judged["verdict"] == "adjusted"
    assert (went["forward"]["place"], went["forward"]["seq"]) == (late[0]["place"], late[0]["seq"])
    rides, _ = went["forward"]["outputs"]
    assert (rides["output"], rides["window_ends"]) == ("rides", ["2026-01-05T08:03:00Z"])
    assert sorted((each["seq"], each["value"]["speed"]) for each in rides["results"]) == sorted(
        (each["seq"], each["value"]["speed"]) for each in minutes
    )
    none = chain.tidegate("explain", "rides", "--key", "b", "--at", "2026-01-05T09:00:00Z")
    assert (none.returncode, none.stdout) == (1, "no result of rides is like that\n")
    gone = chain.tidegate("explain", f"{chain.topic}.rides-0@99999")
    assert "TG-EXPLAIN-RESULT" in gone.stderr


def test_an_event_is_followed_through_chained_queries_and_back(chain: Chain) -> None:
    """
    From an event to its minute, and on to the two minutes of that; from there back to the event, with the versions of the table that were
    valid meanwhile. What one way names, the other way names too. Level 3.
    """
    place = f"{chain.topic}-0@66"
    done = chain.tidegate("explain", "taxis", place, "--forward", "--format", "json")
    assert done.returncode == 0, done.stderr
    rides, fast = json.loads(done.stdout.splitlines()[1])["forward"]["outputs"]
    # Without a window it has one result, with its own values.
    assert (fast["output"], fast["window_ends"]) == ("fast", [])
    assert [each["value"] for each in fast["results"]] == [{"car": "a", "speed": 36, "name": "n132"}]
    own = [each for each in rides["results"] if each["value"]["car"] == "a"]
    assert own == rides["results"] != []
    busy = [result for each in own for output in each["outputs"] for result in output["results"]]
    assert {(each["value"]["car"], each["value"]["owner"], each["system_timestamp"]) for each in busy} == {
        ("a", "Ann", "2026-01-05T08:04:00Z")
    }
    shown = {f"{each['topic']}-{each['partition']}@{each['offset']}": each for each in chain.peek(f"{chain.topic}.busy", "--limit", "100")}
    for each in busy:
        assert (each["seq"], each["value"]) == (shown[each["place"]]["seq"], shown[each["place"]]["value"])
        back = chain.tidegate("explain", each["place"], "--format", "json")
        assert back.returncode == 0, back.stderr
        trace = json.loads(back.stdout)
        minutes = trace["inputs"][0]["events"]
        assert {one["place"] for one in own} <= {one["place"] for one in minutes}
        assert place in {event["origin"] for one in minutes if "made_from" in one for event in one["made_from"]["inputs"][0]["events"]}
        files = [(version["file"][-20:], version["since"]) for version in trace["references"][0]["versions"]]
        assert files == [("2026-01-05T07-00.csv", "2026-01-05T07:00:00Z"), ("2026-01-05T08-03.csv", "2026-01-05T08:03:00Z")]
    said = chain.tidegate("explain", busy[0]["place"]).stdout
    assert re.search(r"looked up in owners: .*08-03.csv, valid since 2026-01-05T08:03:00Z", said)
    # An output that has no results yet.
    early = chain.tidegate("explain", "taxis", f"{chain.topic}-0@149", "--forward")
    assert "rides: the window ending at 2026-01-05T08:05:00Z" in early.stdout


def test_dead_letters_are_shown_with_reason_and_origin(chain: Chain) -> None:
    """That of a record without a payload too, though it has no payload either."""
    found = {one["value"]: one for one in chain.peek(f"{chain.topic}.ordered.dead")}
    assert found['{"at": 1,, }']["headers"] == {"reason": "malformed", "origin": f"{chain.topic}-0@150"}
    assert found[None]["headers"]["reason"] == "no_payload"
    assert {one["kind"] for one in found.values()} == {"dead_letter"}
    text = chain.tidegate("peek", f"{chain.topic}.ordered.dead").stdout
    assert f"malformed, from {chain.topic}-0@150  key a  " in text
    assert f"no_payload, from {chain.topic}-1@150  key b  (no payload)" in text


def test_repetitions_of_results_are_left_out_and_counted_or_marked(chain: Chain) -> None:
    """Each seq of a partition once; the remark says how many were left out."""
    done = chain.tidegate("peek", f"{chain.topic}.rides", "--from", "earliest", "--no-ctis", "--format", "json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len({(one["partition"], one["seq"]) for one in found}) == len(found)
    assert "left out: 6 repetitions" in done.stderr
    assert sum(one["value"]["fixes"] for one in found) == 300
    marked = chain.peek(f"{chain.topic}.rides", "--from", "earliest", "--no-ctis", "--repetitions")
    # The copies have the seq, the time and the value of what is there already; without them the rest is the same.
    copies = [one for one in marked if one.get("is_repetition")]
    assert [one for one in marked if one not in copies] == found
    assert len(copies) == 6
    assert all((one["seq"], one["value"]) in [(each["seq"], each["value"]) for each in found] for one in copies)
    said = chain.tidegate("peek", f"{chain.topic}.rides", "--from", "earliest", "--no-ctis", "--repetitions")
    assert (said.stdout.count("  repetition  "), "marked: 6 repetitions" in said.stderr) == (6, True)


def test_key_time_partition_and_limit_choose(chain: Chain) -> None:
    """Each alone and together."""
    assert {one["key"] for one in chain.peek(chain.topic, "--key", "b", "-n", "20")} == {"b"}
    since = chain.peek(chain.topic, "--from", "2026-01-05T08:04:50Z")
    assert [one["timestamp"] for one in since] == [f"2026-01-05T08:04:{second}Z" for second in range(50, 60)] + ["2026-01-05T08:05:00Z"] * 2
    assert len(chain.peek(chain.topic, "--from", "2026-01-05T08:00:00Z", "--partition", "1", "--limit", "7")) == 7
    assert {one["partition"] for one in chain.peek(chain.topic, "--partition", "1")} == {1}
    assert chain.peek(chain.topic, "--where", "car = 'nobody'") == []
    assert "no record of" in chain.tidegate("peek", chain.topic, "--where", "car = 'nobody'").stderr


def test_wrong_arguments_are_told_before_a_server_is_asked(chain: Chain) -> None:
    """A condition that is none, a time that is none; then a topic and a partition that are not there."""
    for arguments, code in (
        (["x", "--where", "car ="], "TG-QUERY-SYNTAX"),
        (["x", "--where", "1 = 1"], "TG-QUERY-CONDITION"),
        (["x", "--from", "noon"], "TG-TICK-RANGE"),
        (["no-such-topic"], "TG-TOPIC-MISSING"),
        ([chain.topic, "--partition", "2"], "TG-SETTING-FLAG"),
    ):
        done = chain.tidegate("peek", *arguments)
        assert done.returncode in (2, 3), done
        assert done.stderr.startswith(code), done.stderr


def test_following_shows_what_comes_until_it_is_stopped(chain: Chain) -> None:
    """What comes is shown within seconds, and Ctrl-C ends it without complaint."""
    topic = create(chain.stack.bootstrap, fresh("followed"), 2)
    command = [sys.executable, "-P", "-m", "tidegate", "peek", topic, "--follow", "--key", "k", "--format", "json"]
    process = subprocess.Popen(
        command, cwd=chain.folder, env=chain.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        lines = []
        for number in range(3):
            time.sleep(1.0 if number else 3.0)
            produce(chain.stack.bootstrap, topic, [Sent(number % 2, key, b'{"n": %d}' % number, START_MS) for key in (b"k", b"other")])
            lines.append(json.loads(process.stdout.readline()))
        assert [line["value"] for line in lines] == [{"n": 0}, {"n": 1}, {"n": 2}]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert (process.returncode, "Traceback" in errors) == (0, False), errors
    finally:
        if process.poll() is None:
            process.kill()


def open_results(chain: Chain, **arguments: Any) -> Results:
    """Return the results of the chain's query, by its configuration."""
    addresses = {"kafka.bootstrap": chain.stack.bootstrap, "redis.url": chain.stack.redis_url}
    return tidegate.read("rides", config=chain.folder / "tidegate.toml", settings=addresses, **arguments)


def test_results_of_a_topic_are_read_once_and_in_order(chain: Chain) -> None:
    """Level 3: copies do not count; the rows are those of the files, by time and partition, with the query's types."""
    table = open_results(chain).to_arrow()
    assert table.schema.names == ["car", "minute_end", "fixes", "speed"]
    assert [str(kind) for kind in table.schema.types] == ["string", "timestamp[us, tz=UTC]", "int64", "double"]
    assert sum(table["fixes"].to_pylist()) == 300
    keys = list(zip(table["minute_end"].to_pylist(), table["car"].to_pylist(), strict=True))
    # Each car reports in both partitions, which are timelines of their own; the window that ends with the first record has one.
    assert len(keys) == 1 + 5 * 6
    assert [minute for minute, _ in keys] == sorted(minute for minute, _ in keys)
    from_files = open_results(chain, source="files").to_arrow()
    assert sorted(from_files.to_pylist(), key=str) == sorted(table.to_pylist(), key=str)
    assert open_results(chain).to_arrow().equals(table)
    pieces = list(open_results(chain))
    assert pa.concat_tables(pieces).equals(table)
    frame = open_results(chain).to_pandas()
    assert (list(frame.columns), int(frame["fixes"].sum())) == (table.schema.names, 300)


def test_a_span_of_results_is_read(chain: Chain) -> None:
    """From an instant on, it included, to another, excluded; of the topic and of the files the same."""
    span = {"since": "2026-01-05T08:02:00Z", "until": datetime(2026, 1, 5, 8, 4, tzinfo=UTC)}
    table = open_results(chain, **span, with_time="at").to_arrow()
    assert {each.minute for each in table["at"].to_pylist()} == {2, 3}
    assert table["at"].equals(table["minute_end"])
    files = open_results(chain, source="files", **span).to_arrow()
    assert sorted(files.to_pylist(), key=str) == sorted(table.drop(["at"]).to_pylist(), key=str)
    cut = open_results(chain, source="files", since="2026-01-05T08:02:00.5Z").to_arrow()
    assert {each.minute for each in cut["minute_end"].to_pylist()} == {3, 4, 5}


def test_columns_are_found_without_settings(chain: Chain) -> None:
    """By a topic's name alone they follow from all results; declared by the caller they are what he says; a wrong one is told."""
    addresses = {"kafka.bootstrap": chain.stack.bootstrap, "redis.url": chain.stack.redis_url}
    (empty := chain.folder / "other").mkdir(exist_ok=True)
    (empty / "tidegate.toml").write_text("")
    inferred = tidegate.read(f"{chain.topic}.rides", config=empty / "tidegate.toml", settings=addresses).to_arrow()
    assert [str(kind) for kind in inferred.schema.types] == ["string", "string", "int64", "double"]
    assert inferred.num_rows == open_results(chain).to_arrow().num_rows
    with pytest.raises(SettingError) as refused:
        open_results(chain, columns={"car": "bigint"}).to_arrow()
    assert refused.value.code == "TG-READ-TYPES"
    # The configuration without its query: which query wrote the topic stands in Redis.
    text = (chain.folder / "tidegate.toml").read_text().replace('query = "rides.sql"', "")
    (empty / "tidegate.toml").write_text(text)
    known = tidegate.read("rides", config=empty / "tidegate.toml", settings=addresses)
    assert known.to_arrow().schema == open_results(chain).to_arrow().schema


def test_results_are_followed_to_the_end_of_the_topic(chain: Chain) -> None:
    """Level 3: whoever follows a job that is killed and goes on has the rows that a later reader has, in the same order."""
    topic = chain.topic
    again = ("--set", f"outputs.rides.topic={topic}.again", "--set", "outputs.rides.files=out/again")
    place = {"TIDEGATE_SPARK__CHECKPOINT_DIR": str(chain.folder / "again")}
    job = chain.space.start("query", "rides.sql", *again, **place)
    job.until(lambda: exists(chain.stack.bootstrap, f"{topic}.again"), "its topic")
    job.kill()
    job = chain.space.start("query", "rides.sql", *again, **place)
    text = (chain.folder / "tidegate.toml").read_text().replace(f'"{topic}.rides"', f'"{topic}.again"')
    (chain.folder / "again.toml").write_text(text)
    addresses = {"kafka.bootstrap": chain.stack.bootstrap, "redis.url": chain.stack.redis_url}
    results = tidegate.read("rides", config=chain.folder / "again.toml", settings=addresses, follow=True)
    followed = list(results)
    job.finish()
    assert pa.concat_tables(followed).equals(open_results(chain).to_arrow())


def test_following_ends_at_an_instant_or_when_stopped(chain: Chain) -> None:
    """Until an instant that is passed it ends by itself; stopped it ends within seconds, of files too."""
    assert open_results(chain, follow=True, until="2026-01-05T08:03:00Z").to_arrow().num_rows == 1 + 2 * 6
    results = open_results(chain, follow=True, source="files")
    timer = threading.Timer(1.5, results.stop)
    timer.start()
    assert sum(table.num_rows for table in results) == open_results(chain).to_arrow().num_rows
    with pytest.raises(SettingError) as refused:
        open_results(chain, follow=True).to_arrow()
    assert refused.value.code == "TG-READ-SOURCE"


def test_a_notebook_shows_results_and_other_programs_take_them(chain: Chain) -> None:
    """The first rows as a table; DuckDB takes the results as they are; neither Java nor Spark's session is started."""
    results = open_results(chain)
    assert results._repr_html_().startswith("<table")
    assert repr(results) == "<results of rides, from its topic>"
    assert results.head(2).num_rows == 2
    assert duckdb.sql("SELECT sum(fixes) FROM results").fetchall() == [(300,)]
    program = f"""
import tidegate
results = tidegate.read("rides", settings={{"kafka.bootstrap": "{chain.stack.bootstrap}", "redis.url": "{chain.stack.redis_url}"}})
print(results.to_pandas()["fixes"].sum())
"""
    shown = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=chain.folder, env=chain.environment(), capture_output=True, text=True, check=True
    )
    assert shown.stdout == "300\n"


def test_what_cannot_be_read_is_told(chain: Chain) -> None:
    """A source that the output does not have, an output and a topic that are not there, a time that is none."""
    for arguments, code in (
        ({"source": "postgres"}, "TG-READ-SOURCE"),
        ({"source": "files", "with_time": "at"}, "TG-READ-TIME"),
        ({"since": "noon"}, "TG-TICK-RANGE"),
    ):
        with pytest.raises(TidegateError) as refused:
            open_results(chain, **arguments)
        assert refused.value.code == code
    with pytest.raises(TidegateError) as missing:
        tidegate.read("no-such", settings={"kafka.bootstrap": chain.stack.bootstrap}).to_arrow()
    assert missing.value.code == "TG-TOPIC-MISSING"


def test_a_table_is_read_with_the_types_of_the_query(chain: Chain, postgres: PostgresServer) -> None:
    """Each row once, in the order of their time; a span by the column that has it."""
    text = (chain.folder / "tidegate.toml").read_text()
    text += f'\n[outputs.rides.postgres]\nurl = "{postgres.url()}"\ntable = \'"{chain.topic}".rides\'\n'
    (chain.folder / "stored.toml").write_text(text)
    copied = chain.tidegate("sink", "rides", "--until-end", "--config", "stored.toml")
    assert copied.returncode == 0, copied.stderr
    addresses = {"kafka.bootstrap": chain.stack.bootstrap, "redis.url": chain.stack.redis_url}
    stored = tidegate.read("rides", source="postgres", config=chain.folder / "stored.toml", settings=addresses).to_arrow()
    whole = open_results(chain).to_arrow()
    assert stored.schema == whole.schema
    assert sorted(stored.to_pylist(), key=str) == sorted(whole.to_pylist(), key=str)
    times = stored["minute_end"].to_pylist()
    assert times == sorted(times)
    part = tidegate.read(
        "rides", source="postgres", since="2026-01-05T08:04:00Z", config=chain.folder / "stored.toml", settings=addresses
    ).to_arrow()
    assert {each.minute for each in part["minute_end"].to_pylist()} == {4, 5}
