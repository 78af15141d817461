"""deploy/grafana.json: as its generator writes it, with a panel for each metric, and queries that find something at the real endpoint."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.promql import Evaluation, Vector
from support.repository import ROOT

from ordering.ticks import SECOND_US
from tidegate.platform.metrics.job_metrics import Metrics, StoreState
from tidegate.platform.metrics.null_shares import NullShare
from tidegate.platform.observe.reports import BucketReport, ColumnNulls, IngestReport, InputNulls, Watermark
from tidegate.platform.stack.embedded import free_port

NOW_US = 1_767_600_000 * SECOND_US


@pytest.fixture(scope="module")
def expressions() -> list[str]:
    """Return the queries of all panels."""
    panels = json.loads((ROOT / "deploy" / "grafana.json").read_text("utf-8"))["panels"]
    return [target["expr"].replace("$__rate_interval", "5m") for panel in panels for target in panel.get("targets", ())]


def endpoint_text(port: int) -> str:
    """Fetch what a process with an input, a query and a sink publishes on a real port."""
    metrics = Metrics(port, now_us=lambda: NOW_US)
    metrics.add_input("cars", SECOND_US, 5 * SECOND_US)
    watermark = Watermark(NOW_US - 9 * SECOND_US, NOW_US - 8 * SECOND_US, "event")
    metrics.accept_reports("cars", [IngestReport("cars", 0, complete_us=NOW_US, watermark=watermark, seconds={"read": 0.1})])
    metrics.set_jobs({"ingest cars": ("live", "")})
    metrics.set_executors(2, 2)
    nulls = {"cars": InputNulls(9, {"at": ColumnNulls(9, 9)})}
    report = BucketReport(
        0, complete_us=NOW_US - SECOND_US, seconds={"read": 0.1}, nulls=nulls, absent={"cars": ("at",)}, delays={"counts": {1_200: 3}}
    )
    metrics.accept_query_reports("counts", [report])
    metrics.set_query_lags("counts", {("cars.ordered", 0): 3})
    metrics.set_null_columns("counts", [NullShare("cars", "at", 9, 9, 9)])
    metrics.set_sink("counts", {"redis": StoreState({"rows": 1, "batches": 1, "refused": 0, "retries": 0}, {("counts", 0): 1})})
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    return text


@contextlib.contextmanager
def real_prometheus(program: str, endpoint: int, folder: Path) -> Iterator[str]:
    """Start a Prometheus that scrapes *endpoint* every second; give its address once it has scraped it three times."""
    port, seen = free_port(), time.monotonic()
    jobs = [{"job_name": "tidegate", "static_configs": [{"targets": [f"127.0.0.1:{endpoint}"]}]}]
    (folder / "prometheus.yml").write_text(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}), "utf-8")
    command = [program, "--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "prometheus.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        while True:
            with contextlib.suppress(OSError):
                samples = ask_prometheus(f"http://127.0.0.1:{port}", "count_over_time(up[1m])")
                if samples and float(samples[0]["value"][1]) >= 3:
                    break
            assert server.poll() is None, (folder / "prometheus.log").read_text()
            assert time.monotonic() - seen < 120
            time.sleep(0.3)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def ask_prometheus(address: str, expression: str) -> list[dict[str, Any]]:
    """Return the series that an expression gives now."""
    with urllib.request.urlopen(f"{address}/api/v1/query?query={urllib.parse.quote(expression)}", timeout=10) as answer:
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return found


def test_the_board_is_as_its_generator_writes_it() -> None:
    """Whoever changes the tables of metrics.md runs ``python deploy/grafana.py``."""
    assert subprocess.run([sys.executable, "deploy/grafana.py", "--check"], cwd=ROOT, check=False, timeout=60).returncode == 0


def test_each_metric_has_a_panel_and_each_query_finds_something(expressions: list[str], tmp_path: Path) -> None:
    """Every metric of the real endpoint is in a query, and every query gives a series over what the endpoint says."""
    families = list(text_string_to_metric_families(endpoint_text(free_port())))
    found: dict[str, Vector] = {}
    for family in families:
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    used = {name for expression in expressions for name in re.findall(r"tidegate_\w+", expression)}
    # The buckets of a histogram have its count too.
    counted = {name.replace("_bucket", ending) for name in found if name.endswith("_bucket") for ending in ("_count", "_sum", "_created")}
    assert used == {name for name in found if name.startswith("tidegate_")} - counted
    empty = [expression for expression in expressions if not Evaluation([found, found], 30).value(expression)]
    assert not empty
    if promtool := shutil.which("promtool"):
        rules = [{"record": f"board:{place}", "expr": expression} for place, expression in enumerate(expressions)]
        (tmp_path / "board.yml").write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}), "utf-8")
        told = subprocess.run(
            [promtool, "check", "rules", "board.yml"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
        )
        assert told.returncode == 0, told.stdout + told.stderr


def test_a_real_prometheus_evaluates_each_query(expressions: list[str], tmp_path: Path) -> None:
    """Where there is one, as on CI: it scrapes a real endpoint, and no panel is empty. Without one the test above evaluates them."""
    port = free_port()
    assert "tidegate_events_in_total" in endpoint_text(port)
    if program := shutil.which("prometheus"):
        with real_prometheus(program, port, tmp_path) as address:
            assert [each for each in expressions if not ask_prometheus(address, each)] == []
