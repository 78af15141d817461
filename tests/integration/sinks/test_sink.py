"""``tidegate sink`` from a real topic into the real server of each store."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import datetime

import pytest
from support.stack.jobs import Workspace, error_code
from support.stack.servers import SharedStack
from support.stack.topics import delete, records
from support.stores import kit
from support.stores.benches import COPY_BENCHES
from support.stores.kit import Bench
from support.stores.result_topic import ResultTopic

pytestmark = [pytest.mark.integration, pytest.mark.parametrize("bench", COPY_BENCHES, indirect=True)]


def test_a_topic_is_copied_once_whatever_its_log_holds(bench: Bench, topic: ResultTopic, target: str, space: Workspace) -> None:
    """Results written twice, a torn write beyond a gap, a run that goes on later: the store has each result once."""
    topic.write(0, 0, 500)
    topic.write(0, 300, 700)
    topic.write(1, 0, 40)
    first = space.start("sink", "results", "--until-end").finish()
    kit.check_stands(bench, target, {0: 700, 1: 40})
    topic.write(0, 650, 900)
    topic.write(2, 0, 3)
    second = space.start("sink", "results", "--until-end").finish()
    kit.check_stands(bench, target, {0: 900, 1: 40, 2: 3})
    kind = next(iter(first["stores"]))
    assert (first["stores"][kind]["rows"], second["stores"][kind]["rows"]) == (740, 203), "a second run goes on where the store stands"


def test_it_follows_the_topic_until_it_is_stopped(bench: Bench, topic: ResultTopic, target: str, space: Workspace) -> None:
    """New results reach the store within seconds; SIGTERM ends it, and the end of the topic does too."""
    topic.write(0, 0, 10)
    job = space.start("sink", "results")
    job.until(lambda: len(bench.read(target)) == 10, "the first results are there")
    topic.write(1, 0, 5)
    job.until(lambda: len(bench.read(target)) == 15, "the later ones are there")
    assert job.stop()["recovery"]["behind"] == 0
    for partition, numbers in enumerate([10, 5, 0]):
        topic.write(partition, numbers, numbers + 1, is_final=True)
    assert space.start("sink", "results").finish()["event"] == "end"
    kit.check_stands(bench, target, {0: 11, 1: 6, 2: 1})


def test_a_stop_writes_what_waits_for_more(bench: Bench, topic: ResultTopic, target: str, make_space: Callable[..., Workspace]) -> None:
    """A batch that is not full yet need not wait for the next start."""
    topic.write(0, 0, 15)
    job = make_space('batch_rows = 10\nflush_interval = "1h"').start("sink", "results")
    job.until(lambda: len(bench.read(target)) == 10, "the full batch is there")
    job.stop()
    kit.check_stands(bench, target, {0: 15})


def test_a_topic_made_again_is_refused(stack: SharedStack, bench: Bench, topic: ResultTopic, target: str, space: Workspace) -> None:
    """Its numbers begin anew, so the store's progress would pass over its results: the job says so and writes nothing."""
    topic.write(0, 0, 30)
    space.start("sink", "results", "--until-end").wait()
    delete(stack.bootstrap, topic.name)
    again = ResultTopic({"bootstrap.servers": stack.bootstrap}, topic.name)
    again.write(0, 0, 60)
    assert error_code(space.start("sink", "results", "--until-end")) == "TG-TOPIC-RECREATED"
    kit.check_stands(bench, target, {0: 30})


def test_what_a_store_refuses_is_a_dead_letter_or_the_end(
    stack: SharedStack, bench: Bench, topic: ResultTopic, target: str, make_space: Callable[..., Workspace]
) -> None:
    """Values that are not of their columns' types: the job ends at the first, or each becomes a dead letter and the rest stands."""
    topic.write(0, 0, 100)
    topic.write_values(0, 100, [b'{"partition":0,"number":"x"}', b'{"partition":0,"number":101,"name":7}'])
    topic.write(0, 102, 150)
    stopped = make_space().start("sink", "results", "--until-end")
    assert error_code(stopped) == "TG-STORE-ROW"
    assert f"{topic.name}-0@" in stopped.errors
    before = len(bench.read(target))
    last = make_space('on_error = "dead_letter"').start("sink", "results", "--until-end").finish()
    (counts,) = last["stores"].values()
    assert (counts["refused"], counts["rows"]) == (2, len(bench.read(target)) - before)
    assert sorted(int(row["number"]) for row in bench.read(target)) == [*range(100), *range(102, 150)]
    letters = list(records(stack.bootstrap, f"{topic.name}.dead"))
    assert [letter.value() for letter in letters] == [b'{"partition":0,"number":"x"}', b'{"partition":0,"number":101,"name":7}']
    headers = [dict(letter.headers() or ()) for letter in letters]
    assert all(each["reason"].startswith(b"the store refuses it: ") for each in headers)
    assert [each["origin"].rpartition(b"@")[0] for each in headers] == [f"{topic.name}-0".encode()] * 2


POISON = {
    "an integer beyond the column": b'{"number":10000000000000000000}',
    "an integer of hundreds of digits": b'{"number":' + b"9" * 400 + b"}",
    "a time beyond the column": b'{"at":"10000-01-01T00:00:00Z"}',
    "no time": b'{"at":"yesterday"}',
    "half a character": b'{"name":"\\ud800"}',
    "a depth that no parser takes": b'{"more":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    "a member that is no column": b'{"stranger":1}',
}
SOME_REFUSE = {
    "the character zero": b'{"name":"a\\u0000b"}',
    "the character zero within a record": b'{"more":{"a":"\\u0000"}}',
    "a year that is none": b'{"at":"0000-01-01T00:00:00Z"}',
}
TAKEN = {
    "the end of COPY": "a\n\\.\nb",
    "nothing but the end of COPY": "\\.",
    "quotes and commas": "\"a\",'b',\\N,\t",
    "an empty text": "",
    "line ends": "a\r\nb\r",
    "a text of 900 kB": "x" * 900_000,
    "controls and the last character": "\x01\x1b[31m\u2028\U0010ffff",
}


def test_poison_costs_only_itself(
    stack: SharedStack, bench: Bench, topic: ResultTopic, target: str, make_space: Callable[..., Workspace]
) -> None:
    """Values that a store, its driver or a parser refuses, among others near all limits: dead letters, and the rest stands."""
    if not bench.refuses:
        return
    poison = {**POISON, **(SOME_REFUSE if bench.refuses == "more" else {})}
    values = [json.dumps({"partition": 0, "number": number, "name": name}).encode() for number, name in enumerate(TAKEN.values())]
    values += poison.values()
    dice = random.Random(19)
    dice.shuffle(values)
    topic.write_values(0, 0, [value.replace(b"{", b'{"partition":0,', 1) if b"partition" not in value else value for value in values])
    topic.write(1, 0, 40)
    space = make_space('on_error = "dead_letter"')
    for start in (40, 80):
        (counts,) = space.start("sink", "results", "--until-end").finish()["stores"].values()
        assert (counts["refused"], counts["rows"]) == ((len(poison), len(TAKEN) + 40) if start == 40 else (0, 40)), "a restart goes on"
        topic.write(1, start, start + 40)
    found = bench.read(target)
    assert {int(row["number"]): row["name"] for row in found if int(row["partition"]) == 0} == dict(enumerate(TAKEN.values()))
    assert sorted(int(row["number"]) for row in found if int(row["partition"]) == 1) == [*range(80)]
    letters = [(letter.value() or b"").replace(b'"partition":0,', b"", 1) for letter in records(stack.bootstrap, f"{topic.name}.dead")]
    assert sorted(letters) == sorted(poison.values())


def test_a_store_that_is_away_is_waited_for(bench: Bench, topic: ResultTopic, target: str, make_space: Callable[..., Workspace]) -> None:
    """Before the start and in the middle: the job says since when and for whom it waits, and goes on; with max_retries it ends."""
    if bench.port is None:
        return
    topic.write(0, 0, 50)
    bench.kill()
    try:
        assert error_code(make_space("max_retries = 2").start("sink", "results")) == "TG-STORE-UNREACHABLE"
        job = make_space().start("sink", "results")
        job.until(lambda: "waiting since" in job.last.get("waits_for", ""), "it says for whom it waits")
        (begun,) = job.logged("sink starts")
        warned = next(line for line in map(json.loads, job.errors.splitlines()) if line["level"] == "warning")
        assert warned["event"].startswith("waiting since ")
        assert (datetime.fromisoformat(warned["time"]) - datetime.fromisoformat(begun["time"])).total_seconds() < 15
    finally:
        bench.start()
    job.until(lambda: len(bench.read(target)) == 50, "it has gone on")
    bench.kill()
    topic.write(1, 0, 20)
    bench.start()
    job.until(lambda: len(bench.read(target)) == 70, "it has gone on again")
    # The store has the rows before the job has its answer.
    job.until(lambda: "waits_for" not in job.last, "it waits no more")
    assert "waits_for" not in job.stop()
    kit.check_stands(bench, target, {0: 50, 1: 20})
