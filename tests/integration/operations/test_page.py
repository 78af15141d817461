"""
``tidegate ui`` in a real Chromium beside real jobs: each page shows what the commands say, text of topics never becomes markup, and the
page lives on while a job is killed and while the broker is away. No console error, and no request to another server.

One Kafka, one Valkey, one JVM and one browser serve all tests of this file; the last ones stop what the others need.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from support.browser import Watched, open_browser
from support.stack.commands import run_command
from support.stack.jobs import Job, Workspace, workspace
from support.stack.servers import Stack
from support.stack.topics import create, fresh, header, produce, records

from ordering.protocol.wire import HEADER_NAME
from ordering.ticks import format_tick, parse_tick
from tidegate.platform.stack.embedded import free_port

pytestmark = pytest.mark.integration
# A busy machine is no fault of the page.
expect.set_options(timeout=60_000)

START_MS = 1_767_600_000_000  # 2026-01-05T08:00:00Z
MARKUP = "</script><img src=x onerror=alert(1)><b>bold</b>"
SCRIPT = (
    "SELECT System.Timestamp() AS minute_end, COUNT(*) AS fixes INTO counts FROM cars TIMESTAMP BY at GROUP BY TumblingWindow(minute, 1)"
)
# Of twenty records: every policy has something to do. 3 s behind is out of order, 50 s is late, and 90 s ahead is early.
BEHIND = {5: 3.0, 11: 50.0, 17: -90.0}
# Ten thousand events a second, in waves; and how old the newest of them may be on the page: it asks every three seconds.
WAVE, WAVE_S, FRESH_S = 2_000, 0.2, 8.0
PAGES = "pipeline", "time", "why", "event", "messages", "tune", "history"


@dataclass(frozen=True)
class Sent:
    """A record to produce, and how many seconds before its arrival it happened."""

    partition: int
    second: float
    behind: float = 0.0
    key: bytes | None = None
    note: str = ""
    headers: tuple[tuple[str, bytes], ...] = ()

    @property
    def stamp_ms(self) -> int:
        return START_MS + round(self.second * 1_000)

    @property
    def value(self) -> bytes:
        at = self.stamp_ms / 1000 - self.behind
        return json.dumps({"at": at, "car": f"car {self.partition}", MARKUP: self.note or MARKUP}).encode()


@dataclass(frozen=True)
class Broken(Sent):
    """A record that is no JSON, with a header of its producer."""

    headers: tuple[tuple[str, bytes], ...] = (("from", b"a gate"),)

    @property
    def value(self) -> bytes:
        return b"{" + MARKUP.encode()


@dataclass(frozen=True)
class Copy:
    """A record of a result topic that is written again, with its header of the protocol."""

    partition: int
    key: bytes | None
    value: bytes
    stamp_ms: int
    own: bytes

    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]:
        return ((HEADER_NAME, self.own),)


@dataclass(frozen=True)
class Pipeline:
    """What runs: a raw topic of three partitions, the last of which has not spoken, an ingest job, a query, and the page's server."""

    stack: Stack
    space: Workspace
    topic: str
    origin: str
    jobs: dict[str, Job]

    def ask(self, *command: str, many: bool = False, is_silent: bool = False) -> Any:
        """Return what a command says with ``--format json``: an object, with *many* a list of them, nothing if it *is_silent*."""
        own = {"TIDEGATE_KAFKA__BOOTSTRAP": self.stack.bootstrap, "TIDEGATE_REDIS__URL": self.stack.redis_url}
        done = run_command(self.space.folder, *command, "--format", "json", environment=os.environ | own)
        assert done.stdout or is_silent, done.stderr
        found = [json.loads(each) for each in done.stdout.splitlines()]
        return found if many or is_silent else found[0]


@pytest.fixture(scope="module")
def pipeline(own_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """The pipeline of all tests of this file."""
    topic = fresh("cars")
    tables = f"""
[inputs.cars]
topic = "{topic}"
timestamp_by = "at"
early = "1m"
late = "30s"
reorder = "2s"
dead_letter_topic = "{topic}.dead"
dropped_topic = "{topic}.dropped"

[outputs.counts]
topic = "{topic}.counts"
query = "counts.sql"
"""
    create(own_stack.bootstrap, topic, 3)
    produce(
        own_stack.bootstrap,
        topic,
        [Sent(at % 2, at / 4, behind_of(at), key=f"{MARKUP} {at % 2}".encode()) for at in range(400)],
    )
    # Three records that ingest cannot use.
    produce(own_stack.bootstrap, topic, [Broken(number % 2, 101) for number in range(3)])
    with workspace(tmp_path_factory.mktemp("page"), own_stack, tables) as space, contextlib.ExitStack() as opened:
        space.script("counts.sql", SCRIPT)
        ingest = space.start("ingest", "cars").once_started()
        query = space.start("query", "counts.sql")
        server, origin = serve(space)
        opened.callback(server.wait)
        opened.callback(server.terminate)
        ingest.until(lambda: ingest.batches > 0, "its first batch")
        query.until(lambda: query.batches > 0, "its first batch")
        yield Pipeline(own_stack, space, topic, origin, {"ingest": ingest, "query": query})


def serve(space: Workspace, *flags: str, log: Any = None) -> tuple[subprocess.Popen[bytes], str]:
    """Start ``tidegate ui``, with standard error in *log*; return it and its address once it listens."""
    port = free_port()
    own = {"TIDEGATE_KAFKA__BOOTSTRAP": space.stack.bootstrap, "TIDEGATE_REDIS__URL": space.stack.redis_url, "JAVA_HOME": "/nowhere"}
    command = [sys.executable, "-P", "-m", "tidegate", "ui", "--port", str(port), *flags]
    server = subprocess.Popen(command, cwd=space.folder, env=os.environ | own, stderr=log)
    deadline_s = time.monotonic() + 60
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return server, f"http://127.0.0.1:{port}"
        assert server.poll() is None
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium."""
    with open_browser() as running:
        yield running


@pytest.fixture
def tab(browser: Browser, pipeline: Pipeline) -> Iterator[Watched]:
    """A tab; at the end it has complained about nothing."""
    watched = Watched.open(browser, pipeline.origin)
    yield watched
    picture = os.environ.get("TIDEGATE_TEST_SHOTS")
    if picture:
        watched.page.screenshot(path=Path(picture) / f"{os.environ['PYTEST_CURRENT_TEST'].split('::')[1].split(' ')[0]}.png")
    watched.close()
    assert watched.complaints == []


def until(holds: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    """Wait for *holds*."""
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.1)


def test_the_pipeline_shows_its_jobs_and_leads_to_their_topics(pipeline: Pipeline, tab: Watched) -> None:
    """Both jobs run; a click on a topic opens its messages, and the address says which."""
    page = tab.go("/")
    for job in ("ingest cars", "query counts"):
        expect(page.get_by_role("row", name=job)).to_contain_text("live")
    graph = page.get_by_role("group", name="The pipeline").locator("text")
    for node in (pipeline.topic, "ingest cars", f"{pipeline.topic}.ordered", "query counts"):
        expect(graph.filter(has_text=re.compile(f"^{re.escape(node)}$"))).to_be_visible()
    expect(graph.filter(has_text=f"never spoke: {pipeline.topic}-2")).to_be_visible()
    graph.filter(has_text=f"{pipeline.topic}.counts").click()
    expect(page.get_by_role("heading", name="Messages")).to_be_visible()
    assert f"topic={pipeline.topic}.counts" in page.url


def behind_of(at: int) -> float:
    """Return how many seconds before its arrival a record happened."""
    return BEHIND.get(at % 20, at % 7 / 10)


def judge_sent() -> dict[int, str]:
    """Return what early 1 min (drop), late 30 s and reorder 2 s do with the 400 records, without those that are held at the end."""
    tops, found = [-1e9, -1e9], {}
    for at in range(400):
        arrival, event = at / 4, at / 4 - behind_of(at)
        watermark = max(tops[at % 2] - 2, arrival - 30)
        found[at] = "dropped as early" if event > arrival + 60 else "late" if event < arrival - 30 else "in order"
        if found[at] == "in order" and event < watermark - 1e-6:
            found[at] = "out of order"
        if found[at] != "dropped as early":
            tops[at % 2] = max(tops[at % 2], event, watermark)
    return {at: what for at, what in found.items() if what != "in order" or at / 4 - behind_of(at) < tops[at % 2] - 2}


def test_time_shows_what_each_policy_did(pipeline: Pipeline, tab: Watched) -> None:
    """The legend counts what the command writes as figures, also after a reload; the events are those of the topics, with their places."""
    file = pipeline.space.folder / "time.json"
    pipeline.ask("watermarks", "cars", "--plot", str(file), is_silent=True)
    figures = json.loads(file.read_text())
    counts = Counter(event[3] for event in figures["events"])
    assert set(counts) == {"in order", "late", "out of order", "dropped as early"}
    # Computed from what was sent, record by record: each event where it was sent, at its times, with what its policy does.
    told = {}
    for arrival, event, _, what, number, place in figures["events"]:
        told[int(place) * 2 + number] = arrival, round((arrival - event) / 1e6, 3), what
    sent = {at: (Sent(at % 2, at / 4).stamp_ms * 1_000, behind_of(at), what) for at, what in judge_sent().items()}
    assert {at: (told.get(at), sent.get(at)) for at in told | sent if told.get(at) != sent.get(at)} == {}
    page = tab.go("/time?name=cars")
    for _ in range(2):
        for what, count in counts.items():
            sign = "✕" if what.startswith("dropped") else "■"
            expect(page.get_by_text(f"{sign} {what}: {count}", exact=True)).to_be_visible()
        page.reload()
    answer = page.request.get(f"{pipeline.origin}/api/time?name=cars").json()
    assert {name: answer[name] for name in figures} == figures
    assert figures["partitions"] == [f"{pipeline.topic}-{number}" for number in range(3)]


def test_time_is_zoomed_and_a_point_opens_its_event(pipeline: Pipeline, tab: Watched) -> None:
    """A drag shows less; the address keeps it; a click on the point under the pointer shows what the policies did with it."""
    page = tab.go("/time?name=cars&number=0")
    expect(page.get_by_text("■ in order: ")).to_be_visible()
    figures = page.request.get(f"{pipeline.origin}/api/time?name=cars&number=0").json()
    assert {event[4] for event in figures["events"]} == {0}
    box = page.locator("canvas").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 300, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 600, box["y"] + 120)
    page.mouse.up()
    page.wait_for_url("**from=*")
    expect(page.get_by_text("■ in order: ")).to_be_visible()
    zoomed = page.request.get(page.url.replace("/time?", "/api/time?")).json()
    assert 0 < len(zoomed["events"]) < len(figures["events"])
    page.get_by_role("button", name="Live").click()
    page.wait_for_url(lambda url: "from=" not in url)
    expect(page.get_by_text("■ in order: ")).to_be_visible()
    # The first event stands at the left edge: the pointer finds it wherever it is high.
    found = False
    for y in range(int(box["height"]) - 30, 20, -6):
        page.mouse.move(box["x"] + 68, box["y"] + y)
        found = page.get_by_text(f"{pipeline.topic}-0@0: ").count() > 0
        if found:
            page.mouse.click(box["x"] + 68, box["y"] + y)
            break
    assert found
    expect(page.get_by_role("heading", name="Event")).to_be_visible()
    expect(page.get_by_text("system timestamp").first).to_be_visible()
    [explained] = pipeline.ask("explain", "cars", f"{pipeline.topic}-0@0", many=True)
    expect(page.get_by_text(explained["system_timestamp"]).first).to_be_visible()


def test_an_event_of_time_is_chosen_and_opened_by_the_keyboard(pipeline: Pipeline, tab: Watched) -> None:
    """The arrow keys go from event to event, a screen reader is told which, and Enter opens it."""
    page = tab.go("/time?name=cars&number=0")
    expect(page.get_by_text("■ in order: ")).to_be_visible()
    picture, told = page.get_by_role("img", name="Arrival across, event time up"), page.get_by_role("status")
    picture.focus()
    page.keyboard.press("Home")
    expect(told).to_contain_text(f"{pipeline.topic}-0@0: in order")
    page.keyboard.press("ArrowRight")
    expect(told).to_contain_text(f"{pipeline.topic}-0@1: ")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(told).to_contain_text(f"{pipeline.topic}-0@0: ")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Event")).to_be_visible()
    expect(page.get_by_label("topic-partition@offset")).to_have_value(f"{pipeline.topic}-0@0")


def test_an_event_is_found_by_its_content_within_a_range_of_arrivals(pipeline: Pipeline, tab: Watched) -> None:
    """The page finds what the command finds; the times of results are asked for outputs alone."""
    span = "--from", format_tick((START_MS + 10_000) * 1_000), "--until", format_tick((START_MS + 12_000) * 1_000)
    told = pipeline.ask("explain", "cars", "--where", "car = 'car 1'", *span, many=True)
    assert len(told) == 4
    page = tab.go("/event?name=cars")
    page.get_by_label("arrived from").fill(span[1])
    page.get_by_label("arrived from").press("Enter")
    page.get_by_label("until", exact=True).fill(span[3])
    page.get_by_label("until", exact=True).press("Enter")
    page.get_by_label("or condition, as speed > 50").fill("car = 'car 1'")
    page.get_by_label("or condition, as speed > 50").press("Enter")
    expect(page.get_by_role("heading", level=2)).to_have_text([f"{each['topic']}-{each['partition']}@{each['offset']}" for each in told])
    assert page.get_by_label("of an output: time").count() == 0
    page = tab.go("/event?name=counts")
    expect(page.get_by_label("of an output: time")).to_be_visible()
    assert page.get_by_label("arrived from").count() == 0


def test_tune_answers_while_a_slider_is_moved(pipeline: Pipeline, tab: Watched) -> None:
    """With the keyboard alone: what the policies do, said in words and figures, is that of the command that the page names."""
    page = tab.go("/tune?name=cars&window=1m")
    told = page.get_by_role("status").first
    expect(told).to_contain_text("windows of 1m changed")
    expect(page.get_by_text("None: these are the policies in force.")).to_be_visible()
    slider = page.get_by_role("slider", name="reorder")
    expect(slider).to_have_attribute("aria-valuetext", "2s")
    before = told.inner_text()
    slider.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(slider).to_have_attribute("aria-valuetext", "5s")
    expect(told).not_to_have_text(before)
    # The address has the position, and so has the difference.
    expect(page.locator("pre")).to_have_text('  [inputs.cars]\n- reorder = "2s"\n+ reorder = "5s"')
    assert "reorder=5s" in page.url
    page.reload()
    expect(slider).to_have_attribute("aria-valuetext", "5s")
    page.get_by_label("late, as a duration").fill("45s500ms")
    page.get_by_label("late, as a duration").press("Enter")
    page.get_by_label("late events").select_option("drop")
    expect(page.locator("pre")).to_contain_text('+ late_action = "drop"')
    expect(page.locator("pre")).to_contain_text('+ late = "45s500ms"')
    expect(page.get_by_text("In a terminal: tidegate tune cars")).to_contain_text("--late-action=drop")
    command = page.get_by_text("In a terminal: tidegate tune cars").inner_text().removeprefix("In a terminal: ")
    tuned = pipeline.ask(*shlex.split(command)[1:])
    row = page.get_by_role("row", name="these").get_by_role("cell")
    now, minute = tuned["now"], tuned["now"]["results"][0]
    wanted = f"{now['moved']:,}", f"{now['dropped']:,}"
    assert (row.nth(3).inner_text(), row.nth(4).inner_text()) == wanted
    assert row.nth(10).inner_text() == f"{minute['changed']:,} of {minute['windows']:,}"
    assert f"{minute['differ']:,} other than in tidegate.toml" in told.inner_text()
    assert now["dropped"] > tuned["in_force"]["dropped"]


def test_tune_proposes_and_a_point_of_the_curve_is_taken(pipeline: Pipeline, tab: Watched) -> None:
    """The proposal in words sets the sliders; so does a point of the curve, by the keyboard; the difference is copied."""
    page = tab.go("/tune?name=cars&touch=10")
    tuned = pipeline.ask("tune", "cars", "--touch", "10")
    best = tuned["proposal"]
    sentence = f"For at most 10 % moved: late = {best['late']}, reorder = {best['reorder']}"
    expect(page.get_by_text(sentence)).to_be_visible()
    page.get_by_role("button", name="Take these").click()
    expect(page.get_by_label("late, as a duration")).to_have_value(best["late"])
    expect(page.get_by_label("reorder, as a duration")).to_have_value(best["reorder"])
    points = page.get_by_role("group", name="Watermark delay of 99 of 100 events").get_by_role("button")
    expect(points).to_have_count(len(tuned["curve"]))
    # The one with the fewest events touched.
    points.first.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("late, as a duration")).to_have_value(tuned["curve"][0]["late"])
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_text("Copied.")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.locator("pre").inner_text() + "\n"
    assert f'+ late = "{tuned["curve"][0]["late"]}"' in copied
    page.get_by_label("late, as a duration").fill("soon")
    page.get_by_label("late, as a duration").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("soon")
    tab.forgive_refusals()


def test_history_says_what_the_command_says(pipeline: Pipeline, tab: Watched) -> None:
    """The starts of both jobs are listed, and each entry is a point of the axis."""
    page = tab.go("/history")
    for job in ("ingest cars", "query counts"):
        expect(page.get_by_role("row", name=job).filter(has_text="started")).to_be_visible()
    told = pipeline.ask("status", "--history", many=True)
    assert [each["what"] for each in told if each["job"] == "query counts"][-1] == "started"
    shown = page.request.get(f"{pipeline.origin}/api/history").json()
    assert shown["history"] == told
    expect(page.get_by_role("img", name="What happened, by time").locator("circle")).to_have_count(len(told) + len(shown["facts"]))
    # A span of it has an address.
    second = max(each["at"] for each in told)
    tab.go(f"/history?from={second}")
    expect(page.get_by_role("img", name="What happened, by time").locator("circle")).to_have_count(1)
    tab.go(f"/history?until={min(each['at'] for each in told)}")
    expect(page.get_by_text("Nothing has happened.")).to_be_visible()


def test_keys_values_and_field_names_never_become_markup(pipeline: Pipeline, tab: Watched) -> None:
    """They stand there letter by letter, and no element of theirs exists."""
    page = tab.go(f"/messages?topic={pipeline.topic}")
    expect(page.get_by_text(MARKUP).first).to_be_visible()
    assert page.locator("img").count() == 0
    assert page.locator("b").count() == 0


def test_messages_are_filtered_and_the_address_keeps_it(pipeline: Pipeline, tab: Watched) -> None:
    """By key, and by a condition on a field; what was chosen survives a reload."""
    page = tab.go(f"/messages?topic={pipeline.topic}")
    page.get_by_label("condition").fill("car = 'car 1'")
    page.get_by_label("condition").press("Enter")
    expect(page.get_by_text('"car 1"').first).to_be_visible()
    expect(page.get_by_text('"car 0"')).to_have_count(0)
    page.reload()
    expect(page.get_by_label("condition")).to_have_value("car = 'car 1'")
    page.get_by_label("partition").fill("0")
    page.get_by_label("partition").press("Enter")
    expect(page.get_by_text("No such record.")).to_be_visible()
    page.get_by_label("partition").fill("1")
    page.get_by_label("partition").press("Enter")
    expect(page.get_by_text('"car 1"').first).to_be_visible()
    # From a time on: the first records, as peek has them.
    time = format_tick((START_MS + 50_250) * 1_000)
    page.get_by_label("from a time").fill(time)
    page.get_by_label("from a time").press("Enter")
    answer = page.request.get(page.url.replace("/messages?", "/api/messages?")).json()
    told = pipeline.ask("peek", pipeline.topic, "--from", time, "-n", "50", "--where", "car = 'car 1'", many=True)
    assert [each["place"] for each in answer["records"]][::-1] == [f"{each['topic']}-{each['partition']}@{each['offset']}" for each in told]
    assert told[0]["timestamp"] == time
    page.get_by_label("condition").fill("no such (")
    page.get_by_label("condition").press("Enter")
    expect(page.get_by_role("alert")).not_to_be_empty()
    tab.forgive_refusals()


def test_dead_letters_are_a_count_that_opens_them(pipeline: Pipeline, tab: Watched) -> None:
    """The count leads to the letters of the stage; each has its reason and its bytes, and the address keeps the filter."""
    page = tab.go("/pipeline")
    page.get_by_role("row", name="ingest cars").get_by_role("link", name="3", exact=True).click()
    expect(page.get_by_role("heading", name="Messages")).to_be_visible()
    assert f"topic={pipeline.topic}.dead&stage=ingest+cars" in page.url
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.first.get_by_role("cell").first).to_have_text("malformed")
    page.get_by_role("button", name="3 malformed").click()
    page.wait_for_url("**reason=malformed*")
    expect(rows).to_have_count(3)
    assert page.locator("b, img").count() == 0
    with page.expect_download() as loaded:
        rows.first.get_by_role("link", name="bytes").click()
    assert Path(loaded.value.path()).read_bytes() == b"{" + MARKUP.encode()
    with page.expect_download() as loaded:
        page.get_by_role("link", name="Load as a file").click()
    lines = [json.loads(line) for line in Path(loaded.value.path()).read_text().splitlines()]
    assert lines == pipeline.ask("peek", f"{pipeline.topic}.dead", "--reason", "malformed", many=True)
    # Without the flag the page offers nothing that changes anything.
    assert page.get_by_role("button", name="Produce again").count() == 0
    page.goto(f"{tab.origin}/messages?topic={pipeline.topic}.dead&reason=schema")
    expect(page.get_by_text("No such record.")).to_be_visible()


def test_a_dead_letter_is_produced_again_where_that_is_allowed(pipeline: Pipeline, browser: Browser) -> None:
    """After a question; the same bytes, key and headers in the same partition; both the question and the record are logged."""
    log = pipeline.space.folder / "ui.log"
    with log.open("wb") as errors:
        server, origin = serve(pipeline.space, "--allow-actions", "--set", "logging.format=json", log=errors)
        try:
            tab = Watched.open(browser, origin)
            raw = partial(pipeline.ask, "peek", pipeline.topic, "--from", "earliest", many=True)
            before = raw()
            page = tab.go(f"/messages?topic={pipeline.topic}.dead&stage=ingest+cars")
            letter = page.locator("tbody tr").first
            place = letter.get_by_role("cell").nth(1).inner_text()
            letter.get_by_role("button", name="Produce again").click()
            page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
            assert raw() == before
            letter.get_by_role("button", name="Produce again").click()
            page.get_by_role("dialog").get_by_role("button", name="Produce again").click()
            told = page.get_by_role("status")
            expect(told).to_contain_text("Produced again as ")
            after = raw()
            [added] = after[len(before) :] if after[: len(before)] == before else [each for each in after if each not in before]
            names = "key", "value", "headers", "partition", "timestamp"
            [same] = [each for each in before if f"{each['topic']}-{each['partition']}@{each['offset']}" == place]
            assert {name: added.get(name) for name in names[:4]} == {name: same.get(name) for name in names[:4]}
            # Its stamp moves no time: it is the newest one of its partition.
            assert added["timestamp"] == max(each["timestamp"] for each in before if each["partition"] == same["partition"])
            expect(told).to_have_text(f"Produced again as {added['topic']}-{added['partition']}@{added['offset']}.")
            # What a query could not use, and what is no letter, is not produced.
            key = page.request.get(f"{origin}/actions").json()["key"]
            for wrong in (f"{pipeline.topic}-0@0", f"{pipeline.topic}.ordered-0@0"):
                answer = page.request.post(f"{origin}/actions/produce-again", data={"place": wrong}, headers={"x-tidegate-key": key})
                assert answer.json()["code"] == "TG-UI-LETTER"
            assert raw() == after
            tab.close()
            assert tab.complaints == []
        finally:
            server.terminate()
            server.wait()
    logged = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    [done] = [each for each in logged if each["event"] == "the action is done"]
    assert done["done"]["record"] == f"{added['topic']}-{added['partition']}@{added['offset']}"
    assert len([each for each in logged if each["event"] == "the action has failed"]) == 2


def test_two_tabs_show_the_same(pipeline: Pipeline, tab: Watched, browser: Browser) -> None:
    """Light and dark, wide and as a phone has it: no page is wider than its window."""
    other = Watched.open(browser, pipeline.origin, dark=True, width=390, height=800)
    for name in PAGES:
        for each in (tab, other):
            page = each.go(f"/{name}")
            told = f"{each.complaints}, {each.network_changes} changes of the network"
            expect(page.locator("nav a[aria-current]"), told).to_have_text(name.capitalize())
            page.wait_for_timeout(200)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (name, page.viewport_size)
    other.close()
    assert other.complaints == []


def test_a_table_that_is_wider_than_a_phone_stays_where_it_was_moved_to(pipeline: Pipeline, browser: Browser) -> None:
    """While its figures change; with the focus on it too, which is there so that the arrow keys move it."""
    phone = Watched.open(browser, pipeline.origin, width=390, height=800)
    page = phone.go("/pipeline")
    table = page.get_by_role("region", name="a table that is wider than the window")
    expect(table).to_be_visible()
    table.focus()
    table.evaluate("each => { each.scrollLeft = 120; each.isOld = true; }")
    page.wait_for_function("() => { const each = document.querySelector('.wide'); return each && !each.isOld; }", timeout=60_000)
    assert table.evaluate("each => [each.scrollLeft, document.activeElement === each]") == [120, True]
    phone.close()
    assert phone.complaints == []


def test_why_names_the_partition_that_never_spoke_until_it_speaks(pipeline: Pipeline, tab: Watched) -> None:
    """The words on the page are those of the command; a record in that partition releases the results."""
    page = tab.go("/why?name=counts")
    expect(page.get_by_role("listitem").filter(has_text=f"{pipeline.topic}-2")).to_be_visible()
    assert any(hold["cause"] == "never_spoke" for hold in pipeline.ask("why", "counts")["holds"])
    produce(pipeline.stack.bootstrap, pipeline.topic, [Sent(number, 200) for number in (2, 0, 1)])
    expect(page.get_by_role("listitem").filter(has_text="never")).to_have_count(0)
    # What the delay was made of is told by the keyboard and under the pointer, as the legend has it.
    picture, told = page.get_by_role("img", name="The delay of "), page.get_by_role("status")
    expect(picture).to_be_visible()
    until(lambda: page.evaluate("JSON.parse(Object.values(sessionStorage)[0] || '[]').length") > 2, "some looks")
    picture.focus()
    page.keyboard.press("End")
    expect(told).to_contain_text(re.compile(r"^\d\d:\d\d:\d\dZ: .*reorder 2 s"))
    newest = told.inner_text()
    page.keyboard.press("Home")
    expect(told).not_to_have_text(newest)
    picture.hover()
    expect(told).to_contain_text("Z: ")


def test_every_figure_of_the_page_is_in_the_answer_of_its_command(pipeline: Pipeline, tab: Watched) -> None:
    """
    Each figure names a command and the way to it in that command's JSON; both say the same at the same instant.

    Now all partitions have spoken: before, the job has no watermark.
    """
    kinds: set[str] = set()
    for address in ("/pipeline", "/time?name=cars", "/why?name=counts", "/tune?name=cars"):
        page = tab.go(address)
        expect(page.locator("[data-figure]").first).to_be_visible()
        if address.startswith("/tune"):
            # The page keeps the records that it has read: others have come since.
            page.get_by_role("button", name="Read again").click()

        def differences(page: Page = page) -> list[Any]:
            found = page.evaluate("[...document.querySelectorAll('[data-figure]')].map(each => [each.dataset.figure, each.dataset.value])")
            shown = [(json.loads(path), json.loads(value)) for path, value in found]
            kinds.update(str(path[-1]) for path, _ in shown)
            answers: dict[tuple[str, ...], Any] = {}
            wrong = []
            for (command, *path), value in shown:
                told = find_figure(answers, pipeline, command, path)
                # A delay grows while the two are asked one after the other.
                grows = path[-1] in ("watermark_delay_s", "lag_s") or "delay_by_cause_s" in path
                is_same = told == value or (grows and told is not None and 0 <= told - value < 30)
                wrong += [] if is_same else [(command, path, value, told)]
            return wrong

        deadline_s = time.monotonic() + 60
        # A figure that has changed between the two questions is asked for again.
        while wrong := differences():
            assert time.monotonic() < deadline_s, wrong
    assert {"state", "events_per_s", "lag", "watermark", "watermark_delay_s", "count", "looked_at", "complete", "due", "moved"} <= kinds


def test_the_figures_of_the_pipeline_are_those_of_what_was_sent(pipeline: Pipeline, tab: Watched) -> None:
    """
    Computed from the records alone: all partitions have spoken, and their newest events are of second 200. Two seconds of reorder are
    before that, these three are held, some records are no JSON, and nothing waits.
    """
    page = tab.go("/pipeline")
    row = page.get_by_role("row", name="ingest cars")
    broken = sum((each.value() or b"") == Broken(0, 0).value for each in records(pipeline.stack.bootstrap, pipeline.topic))
    due = {"watermark": format_tick((START_MS + 198_000) * 1_000), "held": 3, "lag": 0, "count": broken, "state": "live"}

    def shown() -> dict[str, Any]:
        found = row.locator("[data-figure]").evaluate_all("all => all.map(each => [each.dataset.figure, each.dataset.value])")
        return {json.loads(path)[-1]: json.loads(value) for path, value in found}

    until(lambda: due.items() <= shown().items(), f"{due}, and not {shown()}", 60)


def test_ten_thousand_events_a_second_are_drawn_as_they_come(pipeline: Pipeline, tab: Watched) -> None:
    """
    While they come, *Time* shows events of seconds ago, in no more than 2,000 points, and *Pipeline* their rate. Both tabs stay quiet.

    How smoothly is measured by ``benchmarks/page.py``, since a machine that runs tests has no time of its own.
    """
    end, sent = threading.Event(), [0]

    def flood() -> None:
        began_s, wave = time.monotonic(), 0
        while not end.wait(max(began_s + wave * WAVE_S - time.monotonic(), 0)):
            first, size = wave * WAVE, range(WAVE)
            produce(pipeline.stack.bootstrap, pipeline.topic, [Sent(at % 3, 300 + (first + at) * WAVE_S / WAVE) for at in size])
            wave += 1
            sent[0] = wave

    thread = threading.Thread(target=flood, daemon=True)
    thread.start()
    other = tab.page.context.new_page()
    try:
        other.goto(f"{pipeline.origin}/pipeline")
        page = tab.go("/time?name=cars")
        picture, told = page.get_by_role("img", name="Arrival across, event time up"), page.get_by_role("status")
        picture.focus()

        def behind_s() -> float:
            """Return how long before the newest event that was sent the newest one that is drawn arrived."""
            page.keyboard.press("End")
            arrived = re.search(r"arrived (\S+Z)", told.inner_text())
            newest_ms = START_MS + (300 + sent[0] * WAVE_S) * 1_000
            return newest_ms / 1e3 - parse_tick(arrived[1]) / 1e6 if arrived else 1e9

        until(lambda: sent[0] * WAVE_S > 10 and behind_s() < FRESH_S, f"events of the last {FRESH_S} s", 120)
        label = picture.get_attribute("aria-label") or ""
        counts = [int(count) for count in re.findall(r"(\d+) (?:in order|late|out of order)", label)]
        assert 1_000 < sum(counts) <= 2_000, label
        rate = other.get_by_role("row", name="ingest cars").locator("[data-figure*=events_per_s]")
        until(lambda: float(rate.get_attribute("data-value") or 0) > 1_000, "the rate of the newest minute", 120)
    finally:
        end.set()
        thread.join()
        other.close()


def test_what_was_written_again_is_marked_or_left_out(pipeline: Pipeline, tab: Watched) -> None:
    """As after a writer that failed: its last result is there again, and every reader skips it."""
    topic = f"{pipeline.topic}.counts"
    result = [each for each in records(pipeline.stack.bootstrap, topic) if (each.value() or b"").startswith(b"{")][-1]
    copy = Copy(result.partition() or 0, result.key(), result.value() or b"", result.timestamp()[1], header(result, HEADER_NAME))
    produce(pipeline.stack.bootstrap, topic, [copy])
    page = tab.go(f"/messages?topic={topic}")
    expect(page.get_by_role("cell", name="repetition", exact=True)).to_have_count(1)
    expect(page.get_by_text("1 repetitions, which every reader skips, are marked.")).to_be_visible()
    page.get_by_label("repetitions").select_option("left out")
    expect(page.get_by_text("1 repetitions, which every reader skips, are left out.")).to_be_visible()
    expect(page.get_by_role("cell", name="repetition", exact=True)).to_have_count(0)
    shown = page.request.get(f"{pipeline.origin}/api/messages?topic={topic}").json()
    told = pipeline.ask("peek", topic, "-n", "50", "--repetitions", many=True)
    marked = [f"{each['topic']}-{each['partition']}@{each['offset']}" for each in told if each.get("is_repetition")]
    assert [each["place"] for each in shown["records"] if each.get("is_repetition")] == marked


def find_figure(answers: dict[tuple[str, ...], Any], pipeline: Pipeline, command: str, path: list[Any]) -> Any:
    """Return what a command says at *path*, None if nothing; each command is asked once."""
    if command == "status":
        if (command,) not in answers:
            answers[command,] = {each["job"]: each for each in pipeline.ask("status")["jobs"]}
        found = answers[command,]
    elif command == "watermarks":
        name, *path = path
        if (command, name) not in answers:
            file = pipeline.space.folder / "figures.json"
            pipeline.ask("watermarks", name, "--plot", str(file), is_silent=True)
            answers[command, name] = json.loads(file.read_text())
        found = answers[command, name]
    else:
        name, *path = path
        if (command, name) not in answers:
            # The page counts the windows of the query that reads the input.
            answers[command, name] = pipeline.ask(command, name, *(["--window", "1m"] if command == "tune" else []))
        found = answers[command, name]
    for each in path:
        try:
            found = found[each]
        except (KeyError, IndexError):
            # A lag that shrank when the page asked may stand still now: nothing says when it is cleared.
            return None
    return found


def test_a_job_that_is_killed_is_shown_as_gone(pipeline: Pipeline, tab: Watched) -> None:
    """While one looks, without a reload."""
    page = tab.go("/pipeline")
    row = page.get_by_role("row", name="query counts")
    expect(row).to_contain_text("live")
    pipeline.jobs["query"].kill()
    expect(row).to_contain_text("gone")
    tab.go("/history")
    expect(page.get_by_role("row", name="query counts").filter(has_text="gone")).to_be_visible()
    # The next run knows what became of this one.
    again = pipeline.space.start("query", "counts.sql")
    history = partial(pipeline.ask, "status", "counts", "--history", many=True)
    until(lambda: "killed" in [each["what"] for each in history()], "the kill", 120)
    again.stop()
    until(lambda: history()[0]["what"] == "stopped", "the end", 60)
    # A start that is refused is history too.
    pipeline.space.script("counts.sql", SCRIPT.replace("COUNT(*)", "COUNT(*) + 1"))
    pipeline.ask("query", "counts.sql", is_silent=True)
    pipeline.space.script("counts.sql", SCRIPT)
    refused = history()[0]
    assert (refused["what"], refused["more"].partition(":")[0]) == ("refused", "TG-CHECKPOINT-SETTINGS")


def test_a_broker_that_is_away_is_said_and_its_return_is_seen(pipeline: Pipeline, tab: Watched) -> None:
    """The page says what is missing, and goes on by itself."""
    page = tab.go(f"/messages?topic={pipeline.topic}")
    expect(page.get_by_text(MARKUP).first).to_be_visible()
    pipeline.stack.stop_kafka()
    expect(page.get_by_role("alert")).not_to_be_empty()
    # The jobs are known without the broker.
    tab.go("/pipeline")
    expect(page.get_by_role("row", name="ingest cars")).to_be_visible()
    expect(page.get_by_role("alert")).not_to_be_empty()
    pipeline.stack.start_kafka()
    expect(page.get_by_role("alert")).to_be_empty()
    expect(page.get_by_role("group", name="The pipeline")).to_be_visible()
    tab.forgive_refusals()
