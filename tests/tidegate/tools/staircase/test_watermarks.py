"""``tidegate watermarks``: a line for each partition and, if asked for, for substreams; jobs that are gone are told from others."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from support.valkey_server import Server
from typer.testing import CliRunner

from ordering.ticks import INFINITY, NEVER, SECOND_US, format_tick
from tidegate.platform.observe.console import report_errors
from tidegate.platform.observe.detail_requests import DetailQuestion
from tidegate.platform.observe.progress_store import ProgressPublisher, ProgressStore
from tidegate.platform.observe.reports import BucketReport, IngestReport
from tidegate.tools.staircase.command import watermarks

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(report_errors(watermarks))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that jobs publish in."""
    running = Server(tmp_path_factory.mktemp("valkey"))
    yield running
    running.kill()


@pytest.fixture(autouse=True)
def _a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tidegate.toml").write_text(
        '[inputs.flights]\ntopic = "raw"\nordered_topic = "flights.ordered"\n[outputs.counts]\ntopic = "counted"\n'
    )


def run(server: Server, *arguments: str, exit_code: int = 0) -> str:
    """Run the command into a pipe, which asks once; return what it printed."""
    environment = {"TIDEGATE_REDIS__URL": f"redis://127.0.0.1:{server.port}/0", "COLUMNS": "200"}
    result = CliRunner().invoke(app, list(arguments), env=environment)
    assert result.exit_code == exit_code, result.output
    return result.output


def wait_for(server: Server, ordered_topic: str) -> None:
    """Return once the job has published."""
    store = ProgressStore(server.settings())
    for _ in range(500):
        found = store.read(ordered_topic)
        if found is not None and found.partitions:
            return
        time.sleep(0.02)
    raise AssertionError("nothing was published")


def report(partition: int, watermark_us: int, **more: Any) -> IngestReport:
    """What an ingest stage tells."""
    made = {"topic": "raw", "partition": partition, "next_offset": 5, "arrival_us": 9, "c": watermark_us, "watermark_us": watermark_us}
    return IngestReport.of_dict({**made, "cause": "event", "held": 3, "held_from_us": None, **more})


def test_each_partition_stands_with_what_drives_it(server: Server) -> None:
    """Watermark, cause, delay, what is held and what is released next; before the first record and at the end there is no time."""
    now_us = time.time_ns() // 1000
    next_us = now_us - 8 * SECOND_US
    with ProgressPublisher(server.settings(), "flights.ordered", every_s=0.01, input="flights") as publisher:
        publisher.publish(
            [
                report(0, now_us - 10 * SECOND_US, cause="late floor", held=1_234, held_from_us=next_us),
                report(1, NEVER, cause="nothing"),
                report(2, INFINITY, cause="end"),
            ]
        )
        publisher.update_job(state="live")
        wait_for(server, "flights.ordered")
        found = json.loads(run(server, "flights", "--format", "json"))["rows"]
        text = run(server, "flights")
    assert [row["partition"] for row in found] == ["raw-0", "raw-1", "raw-2"]
    assert found[0]["driven_by"] == "late floor"
    assert 10 <= found[0]["delay_s"] < 30
    assert (found[0]["held"], found[0]["next_release"]) == (1_234, format_tick(next_us))
    assert found[0]["state"] == "live"
    assert (found[1]["watermark"], found[1]["delay_s"]) == ("-", None)
    assert (found[2]["watermark"], found[2]["delay_s"]) == ("ended", None)
    assert "late floor" in text
    assert "1,234" in text
    gone = json.loads(run(server, "flights", "--format", "json"))["rows"]
    assert {row["state"] for row in gone} == {"stopped"}


def test_events_that_silence_does_not_release_are_named(server: Server) -> None:
    """On a CreateTime topic held events wait for the next record; the table, the line below it and JSON say so."""
    reason = "silence moves no time here, since the topic's timestamps are the producers' (CreateTime)"
    Path("tidegate.toml").write_text('[inputs.still]\ntopic = "raw"\nordered_topic = "still.ordered"\n')
    with ProgressPublisher(server.settings(), "still.ordered", every_s=0.01, input="still", stands_still=reason) as publisher:
        publisher.publish([report(0, 8_000_000, held=1_331, cause="late floor"), report(1, 9_000_000, held=0)])
        wait_for(server, "still.ordered")
        found = json.loads(run(server, "still", "--format", "json"))["rows"]
        text = run(server, "still")
    assert [row.get("stands_still") for row in found] == [reason, None]
    assert "late floor (not silence)" in text
    assert f"still: {reason}" in text


def test_substreams_are_told_by_a_job_that_is_asked(server: Server, tmp_path: Path) -> None:
    """The question reaches the job's stage through its checkpoint folder, and only while somebody asks."""
    question = DetailQuestion(tmp_path)
    assert question.substreams() is None
    top = [{"key": "LH1", "watermark_us": 9_000_000, "cause": "event", "largest_us": 9, "held": 2, "held_from_us": 9_500_000}]

    def job() -> None:
        with ProgressPublisher(server.settings(), "asked.ordered", folder=tmp_path, every_s=0.01, input="asked") as publisher:
            while not done.is_set():
                wanted = question.substreams()
                more = {} if wanted is None else {"top": top[:wanted]}
                made = report(0, 8_000_000, **more)
                publisher.publish([replace(made, held_events=None) if wanted is None else made])
                time.sleep(0.02)

    done = threading.Event()
    running = threading.Thread(target=job)
    running.start()
    wait_for(server, "asked.ordered")
    Path("tidegate.toml").write_text('[inputs.asked]\ntopic = "raw"\nordered_topic = "asked.ordered"\n')
    found = json.loads(run(server, "asked", "--substreams", "--format", "json"))["rows"]
    done.set()
    running.join()
    assert found[0]["partition"] == "raw-0"
    assert found[1]["substream"] == "LH1"
    assert (found[1]["held"], found[1]["next_release"]) == (2, "1970-01-01T00:00:09.500Z")
    assert question.substreams() == 20


def test_a_query_is_shown_by_its_output(server: Server) -> None:
    """Its buckets have come as far as its input's CTIs."""
    with ProgressPublisher(server.settings(), "counted", every_s=0.01, query="counts") as publisher:
        publisher.publish([BucketReport(0, complete_us=5_000_000)])
    (row,) = json.loads(run(server, "counts", "--format", "json"))["rows"]
    assert (row["job"], row["partition"], row["driven_by"]) == ("counts", "bucket-0", "input")


def test_all_jobs_are_shown_where_none_is_named(server: Server) -> None:
    """Whatever has published in this Redis."""
    found = json.loads(run(server, "--format", "json"))["rows"]
    assert {row["job"] for row in found} >= {"flights", "counts"}


def test_where_nothing_was_published_it_is_said(tmp_path: Path) -> None:
    """With what to do about it."""
    empty = Server(tmp_path)
    assert "TG-PROGRESS-NONE" in run(empty, exit_code=3)
    empty.kill()


def test_an_unknown_name_is_met_with_the_known_ones(server: Server) -> None:
    """As everywhere."""
    assert "TG-SETTING-NAME" in run(server, "fligths", exit_code=2)
