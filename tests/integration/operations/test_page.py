"""
``tidegate ui`` in a real Chromium beside real jobs: each page shows what the commands say, text of topics never becomes markup, and the
page lives on while a job is killed and while the broker is away. No console error, and no request to another server.

One Kafka, one Valkey, one JVM and one browser serve all tests of this file; the last ones stop what the others need.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect
from support.browser import Watched, open_browser
from support.stack.jobs import Job, Workspace, workspace
from support.stack.servers import Stack
from support.stack.topics import create, fresh, produce

from tidegate.platform.stack.embedded import free_port

pytestmark = pytest.mark.integration

START_MS = 1_767_600_000_000  # 2026-01-05T08:00:00Z
MARKUP = "</script><img src=x onerror=alert(1)><b>bold</b>"
SCRIPT = (
    "SELECT System.Timestamp() AS minute_end, COUNT(*) AS fixes INTO counts FROM cars TIMESTAMP BY at GROUP BY TumblingWindow(minute, 1)"
)
PAGES = "pipeline", "time", "why", "messages"


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
class Pipeline:
    """What runs: a raw topic of three partitions, the last of which has not spoken, an ingest job, a query, and the page's server."""

    stack: Stack
    space: Workspace
    topic: str
    origin: str
    jobs: dict[str, Job]

    def ask(self, *command: str) -> Any:
        """Return what a command says with ``--format json``."""
        own = {"TIDEGATE_KAFKA__BOOTSTRAP": self.stack.bootstrap, "TIDEGATE_REDIS__URL": self.stack.redis_url}
        line = [sys.executable, "-P", "-m", "tidegate", *command, "--format", "json"]
        done = subprocess.run(line, cwd=self.space.folder, env=os.environ | own, capture_output=True, text=True, check=False, timeout=60)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)


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

[outputs.counts]
topic = "{topic}.counts"
query = "counts.sql"
"""
    create(own_stack.bootstrap, topic, 3)
    # Every policy has something to do: 3 s behind is out of order, 50 s is late, and 90 s ahead is early.
    behind = {5: 3.0, 11: 50.0, 17: -90.0}
    produce(
        own_stack.bootstrap,
        topic,
        [Sent(at % 2, at / 4, behind.get(at % 20, at % 7 / 10), key=f"{MARKUP} {at % 2}".encode()) for at in range(400)],
    )
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


def serve(space: Workspace) -> tuple[subprocess.Popen[bytes], str]:
    """Start ``tidegate ui``; return it and its address once it listens."""
    port = free_port()
    own = {"TIDEGATE_KAFKA__BOOTSTRAP": space.stack.bootstrap, "TIDEGATE_REDIS__URL": space.stack.redis_url, "JAVA_HOME": "/nowhere"}
    command = [sys.executable, "-P", "-m", "tidegate", "ui", "--port", str(port)]
    server = subprocess.Popen(command, cwd=space.folder, env=os.environ | own)
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
    page.get_by_role("link", name=f"{pipeline.topic}.counts").first.click()
    expect(page.get_by_role("heading", name="Messages")).to_be_visible()
    assert f"topic={pipeline.topic}.counts" in page.url


def test_time_shows_what_each_policy_did(pipeline: Pipeline, tab: Watched) -> None:
    """The legend counts what the ordered topic holds, also after a reload."""
    page = tab.go("/time?name=cars")
    counts = pipeline.ask("status", "cars")["jobs"][0]["fates"]
    assert counts
    for _ in range(2):
        expect(page.get_by_text("in order: ")).to_be_visible()
        for what in ("late", "out of order"):
            expect(page.get_by_text(f"■ {what}: ")).to_be_visible()
        page.reload()


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
    page.get_by_label("condition").fill("no such (")
    page.get_by_label("condition").press("Enter")
    expect(page.get_by_role("alert")).not_to_be_empty()
    tab.forgive_refusals()


def test_two_tabs_show_the_same(pipeline: Pipeline, tab: Watched, browser: Browser) -> None:
    """Light and dark, wide and as a phone has it: no page is wider than its window."""
    other = Watched.open(browser, pipeline.origin, dark=True, width=390, height=800)
    for name in PAGES:
        for each in (tab, other):
            page = each.go(f"/{name}")
            expect(page.locator("nav a[aria-current]")).to_have_text(name.capitalize())
            page.wait_for_timeout(200)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (name, page.viewport_size)
    other.close()
    assert other.complaints == []


def test_why_names_the_partition_that_never_spoke_until_it_speaks(pipeline: Pipeline, tab: Watched) -> None:
    """The words on the page are those of the command; a record in that partition releases the results."""
    page = tab.go("/why?name=counts")
    expect(page.get_by_role("listitem").filter(has_text=f"{pipeline.topic}-2")).to_be_visible()
    assert any(hold["cause"] == "never_spoke" for hold in pipeline.ask("why", "counts")["holds"])
    produce(pipeline.stack.bootstrap, pipeline.topic, [Sent(number, 200) for number in (2, 0, 1)])
    expect(page.get_by_role("listitem").filter(has_text="never")).to_have_count(0)


def test_a_job_that_is_killed_is_shown_as_gone(pipeline: Pipeline, tab: Watched) -> None:
    """While one looks, without a reload."""
    page = tab.go("/pipeline")
    row = page.get_by_role("row", name="query counts")
    expect(row).to_contain_text("live")
    pipeline.jobs["query"].kill()
    expect(row).to_contain_text("gone")


def test_a_broker_that_is_away_is_said_and_its_return_is_seen(pipeline: Pipeline, tab: Watched) -> None:
    """The page says what is missing, and goes on by itself."""
    page = tab.go(f"/messages?topic={pipeline.topic}")
    expect(page.get_by_text(MARKUP).first).to_be_visible()
    pipeline.stack.stop_kafka()
    expect(page.get_by_role("alert")).not_to_be_empty()
    pipeline.stack.start_kafka()
    expect(page.get_by_role("alert")).to_be_empty(timeout=60_000)
    tab.forgive_refusals()
