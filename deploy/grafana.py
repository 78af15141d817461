"""
Write deploy/grafana.json, a Grafana board with a panel for each metric of docs/operate/metrics.md, and a row above that sums them up.

    python deploy/grafana.py            # write it anew
    python deploy/grafana.py --check    # exit code 1 if it is not as it would be written

Law: the board is a function of the tables of that page. A counter is shown as its rate, a gauge as it is, a histogram as its median and its
99th percentile.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE, BOARD = ROOT / "docs" / "operate" / "metrics.md", ROOT / "deploy" / "grafana.json"
_SECTION = re.compile(r"^## (Of an? \w+)$(.*?)(?=^## )", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| `(tidegate_\w+)` \| (counter|gauge|histogram) \|(?:.*\|)? ([^|]+) \|$", re.MULTILINE)
_LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")
# What the lines of a panel are told apart by.
_BY = {"Of a process": ("job_name",), "Of an input": ("input",), "Of a query": ("query",), "Of a sink": ("output", "store")}
_ALSO_BY = {
    **dict.fromkeys(("tidegate_early_input_events_total", "tidegate_late_input_events_total"), ("action",)),
    **dict.fromkeys(("tidegate_out_of_order_events_total", "tidegate_cti_violation_events_total"), ("action",)),
    **dict.fromkeys(("tidegate_unreadable_events_total", "tidegate_sink_waiting_seconds"), ("reason",)),
    **dict.fromkeys(("tidegate_stage_seconds_total", "tidegate_query_stage_seconds_total"), ("step",)),
    **dict.fromkeys(
        ("tidegate_watermark_delay_seconds", "tidegate_query_watermark_delay_seconds", "tidegate_time_jumps_total"), ("cause",)
    ),
    **dict.fromkeys(("tidegate_consumer_lag", "tidegate_watermark_timestamp_seconds", "tidegate_held_events"), ("topic", "partition")),
    "tidegate_query_null_share": ("input", "column", "kind"),
    "tidegate_query_absent_columns": ("input",),
    "tidegate_query_result_delay_seconds": ("output",),
    "tidegate_job_state": ("state",),
    "tidegate_build_info": ("version", "spark", "python"),
    "tidegate_sink_consumer_lag": ("topic", "partition"),
}
# Panels of the first row: title, expression, unit, what a line is called.
_SUMMARY = (
    ("State of each job", "tidegate_job_state == 1", "short", "{{job_name}}: {{state}}"),
    ("Watermark delay", "sum without (cause) (tidegate_watermark_delay_seconds)", "s", "{{input}} {{topic}}-{{partition}}"),
    ("Delay of results", "sum without (cause) (tidegate_query_watermark_delay_seconds)", "s", "{{query}} {{bucket}}"),
    ("Events in", "sum by (input) (rate(tidegate_events_in_total[$__rate_interval]))", "ops", "{{input}}"),
    ("Results", "sum by (query) (rate(tidegate_query_results_total[$__rate_interval]))", "ops", "{{query}}"),
    ("Records to read", "sum by (input) (tidegate_consumer_lag)", "short", "{{input}}"),
    ("Records for queries to read", "sum by (query) (tidegate_query_consumer_lag)", "short", "{{query}}"),
    ("Events held", "sum by (input) (tidegate_held_events)", "short", "{{input}}"),
)
_WIDTH, _HEIGHT, _ACROSS = 6, 7, 4


@dataclass(frozen=True, slots=True)
class Documented:
    """A metric as the page has it."""

    section: str
    name: str
    kind: str
    meaning: str


def documented_metrics(page: str) -> Iterator[Documented]:
    """Yield the metrics of the page's tables, in its order."""
    for section, text in _SECTION.findall(page):
        for name, kind, meaning in _ROW.findall(text):
            yield Documented(section, name, kind, _LINK.sub(r"\1", meaning).replace("`", ""))


def expressions_of(metric: Documented) -> dict[str, str]:
    """Return the queries of a metric's panel, by what their lines are called beside their labels."""
    if metric.kind == "gauge":
        return {"": metric.name}
    labels = ", ".join((*_BY[metric.section], *_ALSO_BY.get(metric.name, ())))
    if metric.kind == "counter":
        return {"": f"sum by ({labels}) (rate({metric.name}[$__rate_interval]))"}
    rates = f"sum by ({labels}, le) (rate({metric.name}_bucket[$__rate_interval]))"
    return {name: f"histogram_quantile({share}, {rates})" for name, share in (("median", 0.5), ("99 %", 0.99))}


def make_board(page: str) -> dict[str, Any]:
    """Return the board."""
    panels: list[dict[str, Any]] = []
    below = _add_row(panels, "At a glance", 0)
    below = _add_panels(panels, [_panel(*each, "") for each in _SUMMARY], below)
    by_section: dict[str, list[Documented]] = {}
    for metric in documented_metrics(page):
        by_section.setdefault(metric.section, []).append(metric)
    for section, metrics in by_section.items():
        below = _add_row(panels, section, below)
        below = _add_panels(panels, [_metric_panel(metric) for metric in metrics], below)
    return {
        "title": "Tidegate",
        "uid": "tidegate",
        "tags": ["tidegate"],
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [{"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}]},
        "panels": [panel | {"id": number} for number, panel in enumerate(panels, start=1)],
    }


def _metric_panel(metric: Documented) -> dict[str, Any]:
    labels = (*_BY[metric.section], *_ALSO_BY.get(metric.name, ()))
    if metric.name.startswith("tidegate_executors") or metric.name == "tidegate_build_info":
        labels = ("instance", *_ALSO_BY.get(metric.name, ()))
    title = metric.name.removeprefix("tidegate_").removesuffix("_total").replace("_", " ")
    unit = "s" if metric.name.endswith("_seconds") and "timestamp" not in metric.name else "short" if metric.kind == "gauge" else "ops"
    legend = " ".join(f"{{{{{label}}}}}" for label in labels)
    panel = _panel(title, "", unit, "", metric.meaning)
    (target,) = panel["targets"]
    panel["targets"] = [
        target | {"refId": chr(ord("A") + place), "expr": expression, "legendFormat": f"{legend} {name}".rstrip()}
        for place, (name, expression) in enumerate(expressions_of(metric).items())
    ]
    return panel


def _panel(title: str, expression: str, unit: str, legend: str, description: str) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "type": "timeseries",
        "title": title,
        "description": description,
        "datasource": source,
        "targets": [{"refId": "A", "datasource": source, "expr": expression, "legendFormat": legend}],
        "fieldConfig": {"defaults": {"unit": unit, "custom": {"fillOpacity": 8, "showPoints": "never"}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}},
    }


def _add_row(panels: list[dict[str, Any]], title: str, below: int) -> int:
    panels.append({"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": {"x": 0, "y": below, "w": 24, "h": 1}})
    return below + 1


def _add_panels(panels: list[dict[str, Any]], added: list[dict[str, Any]], below: int) -> int:
    """Add panels in lines of four; return the height below them."""
    for place, panel in enumerate(added):
        line, column = divmod(place, _ACROSS)
        panels.append(panel | {"gridPos": {"x": column * _WIDTH, "y": below + line * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}})
    return below + -(-len(added) // _ACROSS) * _HEIGHT


def written() -> str:
    """Return the text of the board's file."""
    return json.dumps(make_board(PAGE.read_text("utf-8")), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(BOARD.read_text("utf-8") != written())
    BOARD.write_text(written(), "utf-8")
