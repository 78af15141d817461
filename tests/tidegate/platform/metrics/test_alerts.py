"""
The alerts of deploy/alerts.yml over synthetic series: each story feeds the real metrics half a minute apart, as Prometheus fetches them.

Each rule is evaluated by support/promql.py; where Prometheus' own promtool is on the PATH (.ci/run has it), it must say the same.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from support.promql import Labels, Scrape, firing, read_rules
from support.repository import ROOT

from ordering.ticks import NEVER, SECOND_US
from tidegate.platform.metrics.job_metrics import Metrics, StoreState
from tidegate.platform.metrics.null_shares import NullShare
from tidegate.platform.observe.reports import BucketReport, IngestReport

RULES_FILE = ROOT / "deploy" / "alerts.yml"
RULES = read_rules(RULES_FILE.read_text("utf-8"))
STEP_S = 30
# Ten healthy minutes, then the trouble.
TROUBLE, END = 20, 64
START_US = 1_700_000_000 * SECOND_US
# The labels that Prometheus gives to whatever it fetches from one target.
TARGET = frozenset({("job", "tidegate"), ("instance", "127.0.0.1:9464")})


@dataclass(slots=True)
class World:
    """What a healthy process says at a step; a story changes it. A partition that is None says nothing new."""

    step: int
    watermark_behind_s: float = 5
    query_behind_s: float = 10
    query_unread: int = 0
    results: int = -1
    waits: bool = False
    has_failed: bool = False
    held_executors: int = 2
    is_gone: bool = False
    totals: dict[str, int] = field(default_factory=dict)
    bad_rows: int = 0
    null_columns: tuple[NullShare, ...] = ()
    held: int = 10
    unread: int = 0
    is_silent: bool = False
    has_estimates: bool = False
    is_stuck: bool = False
    stored: int = -1
    unstored: int = 0
    oldest_s: float = 1
    refused: int = 0


def scrapes_of(story: Callable[[World], None], first_trouble: int = TROUBLE) -> list[Scrape]:
    """Play a story to the real metrics: partition 0 is healthy, partition 1 has the trouble."""
    clock = [START_US]
    metrics = Metrics(0, now_us=lambda: clock[0])
    metrics.add_input("flights", 3 * SECOND_US, 5 * SECOND_US)
    metrics.add_input("weather", 0, 0)
    registry = CollectorRegistry()
    registry.register(metrics)
    found = []
    read = next_offset = 0
    watermark_us = NEVER
    for partition in (0, 1):
        metrics.accept_reports("flights", [report(partition, NEVER, 0, World(0), 0)])
    for step in range(END):
        clock[0] = now_us = START_US + step * STEP_S * SECOND_US
        world = World(step)
        if step >= first_trouble:
            story(world)
        metrics.set_jobs({"ingest flights": ("waiting", "no broker") if world.waits else ("live", ""), "ingest weather": ("live", "")})
        metrics.set_executors(2, world.held_executors)
        metrics.accept_reports("flights", [report(0, now_us - 5 * SECOND_US, 100 * step, World(step), now_us)])
        if not world.is_silent and not world.is_stuck:
            read = next_offset = 100 * step
            watermark_us = now_us - round(world.watermark_behind_s * SECOND_US)
        if world.has_estimates:
            watermark_us = now_us - 5 * SECOND_US
        if world.step and not world.is_stuck:
            metrics.accept_reports("flights", [report(1, watermark_us, read, world, now_us)])
        ends = next_offset if world.is_silent else 100 * step
        metrics.set_ends("flights", {("flights", 0): 100 * step, ("flights", 1): ends + world.unread})
        if world.has_failed:
            metrics.fail_input("weather")
        results = world.results if world.results >= 0 else step
        totals = {"events": 100 * step, "results": results, "bad_rows": world.bad_rows}
        metrics.set_query_lags("counts", {("flights.ordered", 0): world.query_unread})
        complete_us = now_us - round(world.query_behind_s * SECOND_US)
        metrics.accept_query_reports("counts", [BucketReport(0, complete_us=complete_us, totals=totals)])
        counts = Counter(rows=world.stored if world.stored >= 0 else 10 * step, refused=world.refused)
        healthy = StoreState(Counter(rows=10 * step), {("counts", 0): 0}, 1)
        metrics.set_sink("counts", {"redis": healthy, "postgres": StoreState(counts, {("counts", 0): world.unstored}, world.oldest_s)})
        metrics.set_null_columns("counts", world.null_columns)
        found.append(scrape(registry, world.is_gone))
    return found


def report(partition: int, watermark_us: int, read: int, world: World, now_us: int) -> IngestReport:
    """What the stage of a partition says after a batch."""
    place = {"topic": "flights", "partition": partition, "next_offset": read, "held": world.held, "substreams": 3}
    times = {"arrival_us": now_us - 2 * SECOND_US, "c": watermark_us, "cause": "event"}
    return IngestReport.of_dict({**place, **times, "totals": {"events_in": read, **world.totals}})


def scrape(registry: CollectorRegistry, is_gone: bool) -> Scrape:
    """What Prometheus keeps of one fetch; whether it succeeded is a series too."""
    kept: dict[str, dict[Labels, float]] = {"up": {TARGET: 0.0 if is_gone else 1.0}}
    for family in [] if is_gone else text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            assert not {"job", "instance"} & sample.labels.keys(), f"Prometheus would rename a label of {sample.name}"
            kept.setdefault(sample.name, {})[frozenset(sample.labels.items()) | TARGET] = sample.value
    return kept


def rising(name: str) -> Callable[[World], None]:
    """A story in which a count of partition 1 rises with each batch."""
    return lambda world: world.totals.update({name: world.step - TROUBLE + 1})


def setting(**changed: Any) -> Callable[[World], None]:
    """A story in which something is so from its beginning on."""

    def change(world: World) -> None:
        for name, value in changed.items():
            setattr(world, name, value)

    return change


def falls_behind(world: World) -> None:
    """The lag grows, while what is read moves time."""
    world.unread = 90_000 + 1_000 * (world.step - TROUBLE)


def query_falls_behind(world: World) -> None:
    """The lag of the query grows."""
    world.query_unread = 90_000 + 1_000 * (world.step - TROUBLE)


def restarts(world: World) -> None:
    """The process does not answer for a minute and a half."""
    world.is_gone = world.step < TROUBLE + 3


# What happens; at which step; the alerts that fire in the end, and how many minutes after the beginning they do so for the first time.
STORIES: dict[str, tuple[Callable[[World], None], int, dict[str, float]]] = {
    "all is well": (setting(), TROUBLE, {}),
    "a restart": (restarts, TROUBLE, {}),
    "a partition is silent": (setting(is_silent=True), TROUBLE, {"SilenceHoldsTime": 9.5, "WatermarkBehind": 5.5}),
    "a partition was never written": (setting(is_silent=True), 0, {"SilenceHoldsTime": 5.5, "NeverSpoke": 10.5}),
    "a silent partition has estimates": (setting(is_silent=True, has_estimates=True), TROUBLE, {}),
    "a stage is stuck": (setting(is_stuck=True), TROUBLE, {"TimeStandsStill": 9.5, "WatermarkBehind": 5.5}),
    "a stage is stuck from the beginning": (setting(is_stuck=True), 0, {"TimeStandsStill": 5.5}),
    "the process is gone": (setting(is_gone=True), TROUBLE, {"JobGone": 2}),
    "no broker answers": (setting(waits=True), TROUBLE, {"JobWaits": 1}),
    "an executor is lost": (setting(held_executors=1), TROUBLE, {"ExecutorsMissing": 5}),
    "an input has failed": (setting(has_failed=True), TROUBLE, {"InputFailed": 0}),
    "events are old": (setting(watermark_behind_s=90), TROUBLE, {"WatermarkBehind": 5}),
    "a query is behind": (setting(query_behind_s=150), TROUBLE, {"QueryBehind": 5}),
    "more comes than is read": (falls_behind, TROUBLE, {"ReaderFallsBehind": 20.5}),
    "more comes than a query reads": (query_falls_behind, TROUBLE, {"QueryFallsBehind": 20.5}),
    "a query has no results": (setting(results=TROUBLE), TROUBLE, {"NoOutput": 15}),
    "the journal had lost facts": (rising("journal_losses"), TROUBLE, {"JournalLost": 0}),
    "a second job journals": (rising("journal_conflicts"), TROUBLE, {"JournalConflicts": 0}),
    "events are too late": (rising("late_dropped"), TROUBLE, {"EventsDropped": 0}),
    "events are too early": (rising("early"), TROUBLE, {"EventsDropped": 0}),
    "events that are late are adjusted": (rising("late_adjusted"), TROUBLE, {}),
    "records are unreadable": (rising("dead_letter_malformed"), TROUBLE, {"EventsUnreadable": 0}),
    "a query fails on events": (lambda world: setting(bad_rows=world.step)(world), TROUBLE, {"QueryFailsOnEvents": 0}),
    "a store takes nothing": (setting(stored=10 * TROUBLE, unstored=7), TROUBLE, {"SinkStandsStill": 10}),
    "a store has all": (setting(stored=10 * TROUBLE), TROUBLE, {}),
    "a store is slow": (setting(unstored=7, oldest_s=301), TROUBLE, {"SinkBehind": 1}),
    "a store refuses results": (lambda world: setting(refused=world.step)(world), TROUBLE, {"SinkRefuses": 0}),
    "events out of order are dropped": (rising("out_of_order_dropped"), TROUBLE, {"EventsDropped": 0}),
    "a field is renamed": (setting(null_columns=(NullShare("flights", "delay", 200, 199, 199),)), TROUBLE, {"ColumnsAreNull": 5}),
    "a record moves time far": (rising("time_jumps_event_time"), TROUBLE, {"TimeJumped": 0}),
    "very much is held": (setting(held=10_000_001), TROUBLE, {"MuchIsHeld": 0}),
}


@pytest.mark.parametrize("name", STORIES)
def test_each_alert_fires_for_its_trouble_and_for_nothing_else(name: str, tmp_path: Path) -> None:
    """Exactly those, each after the time worked out by hand; what its text names are labels that it has."""
    story, begins, expected = STORIES[name]
    scrapes = scrapes_of(story, begins)
    fired = {rule.name: firing(rule, scrapes, STEP_S) for rule in RULES}
    assert {alert for alert, at in fired.items() if at[-1]} == expected.keys()
    first = {alert: next(step for step, labels in enumerate(at) if labels) for alert, at in fired.items() if any(at)}
    assert first == {alert: begins + minutes * 60 / STEP_S for alert, minutes in expected.items()}
    for rule in RULES:
        named = set(re.findall(r"\$labels\.(\w+)", rule.summary))
        for labels in fired[rule.name][-1]:
            assert named <= dict(labels).keys(), f"{rule.name} names {named}, not among {labels}"
    if promtool := shutil.which("promtool"):
        check_with_promtool(promtool, tmp_path, scrapes, {alert: at[-1] for alert, at in fired.items() if at[-1]})


def check_with_promtool(promtool: str, folder: Path, scrapes: list[Scrape], fired: Mapping[str, set[Labels]]) -> None:
    """Let Prometheus evaluate the same series."""
    series = {
        f"{name}{{{','.join(f'{label}={json.dumps(value)}' for label, value in sorted(labels))}}}": " ".join(
            repr(found[name][labels]) if labels in found.get(name, {}) else "stale" for found in scrapes
        )
        for name, labels in {(name, labels) for found in scrapes for name, series in found.items() for labels in series}
    }
    alerts = [
        {"labels": "ALERTS" + json.dumps({**dict(labels), "alertname": name, "alertstate": "firing"}), "value": 1}
        for name, at in fired.items()
        for labels in at
    ]
    for alert in alerts:
        alert["labels"] = re.sub(r'"(\w+)": "', r'\1="', str(alert["labels"]))
    test = {
        "interval": f"{STEP_S}s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": 'ALERTS{alertstate="firing"}', "eval_time": f"{(END - 1) * STEP_S}s", "exp_samples": alerts},
        ],
    }
    # JSON is YAML.
    described = {"rule_files": [str(RULES_FILE)], "evaluation_interval": f"{STEP_S}s", "tests": [test]}
    (folder / "test.yml").write_text(json.dumps(described), "utf-8")
    told = subprocess.run([promtool, "test", "rules", "test.yml"], cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert told.returncode == 0, told.stdout + told.stderr


def test_a_partition_that_never_had_a_record_is_published() -> None:
    """No stage reports it, since it has no batch: its end says that it is there, and the alert for it sees a count of 0."""
    metrics = Metrics(0, now_us=lambda: START_US)
    metrics.add_input("flights", 0, 0)
    metrics.accept_reports("flights", [report(0, START_US, 7, World(0), START_US)])
    metrics.set_ends("flights", {("flights", 0): 7, ("flights", 1): 0, ("flights", 2): 3})
    registry = CollectorRegistry()
    registry.register(metrics)
    counts = scrape(registry, is_gone=False)["tidegate_events_in_total"]
    assert {dict(labels)["partition"]: count for labels, count in counts.items()} == {"0": 7, "1": 0}


def test_each_rule_has_a_story_and_a_line_of_documentation() -> None:
    """So a new one is tested and explained."""
    assert {rule.name for rule in RULES} == set().union(*(expected for _, _, expected in STORIES.values()))
    table = (ROOT / "docs" / "operate" / "metrics.md").read_text("utf-8").partition("## Alerts")[2].partition("\n## ")[0]
    assert {rule.name for rule in RULES} == set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
