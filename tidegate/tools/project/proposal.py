"""
A project out of a survey (:mod:`tidegate.tools.project.survey`): configuration, query, sample records, and a case of them.

Law: the project runs as it is written. The expected results of its case are what the query gave when it was made, which the case says: they
show that nothing has changed, not that the query is right.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ordering.ticks import format_duration, format_tick
from query.local.case_files import read_case
from query.local.case_run import compute_results
from tidegate.basics.visible_text import quote_toml
from tidegate.platform.settings.load import DEFAULT_FILE
from tidegate.tools.project.files import TEMPLATE, with_shared_files, write_project
from tidegate.tools.project.survey import Survey, Tolerance, as_setting

OUTPUT = "counts"
_SAMPLE_RECORDS, _CASE_RECORDS = 200, 20
_ARRIVAL, _PARTITION = "EventEnqueuedUtcTime", "PartitionId"


def input_name(topic: str) -> str:
    """Return a name for the input of a topic that queries can use."""
    name = re.sub(r"\W", "_", topic, flags=re.ASCII)
    return name if re.match(r"[A-Za-z_]", name) else f"t_{name}"


def propose_project(survey: Survey, bootstrap: str) -> dict[str, str]:
    """Return the files of a project that reads the topic of a survey; *bootstrap* is written down if it is no usual address."""
    topic = survey.sample.topic.name
    name = input_name(topic)
    compose = (TEMPLATE / "compose.yaml").read_text("utf-8").replace("taxis", name).replace("RIDES", OUTPUT.upper())
    files = {
        DEFAULT_FILE: _configuration(survey, name, bootstrap),
        f"{OUTPUT}.sql": _script(survey, name),
        "sample.ndjson": _sample(survey, _SAMPLE_RECORDS),
        f"cases/{OUTPUT}/case.toml": _CASE.format(topic=topic, output=OUTPUT),
        f"cases/{OUTPUT}/input.{name}.ndjson": _sample(survey, _CASE_RECORDS),
        "compose.yaml": compose.replace("rides", OUTPUT),
    }
    project = with_shared_files(files)
    return project | {f"cases/{OUTPUT}/expected.{OUTPUT}.ndjson": _expected(project)}


_CASE = """\
description = "The newest records of {topic}. The expected results are those of the query when this was written: check them."
script = "../../{output}.sql"
config = "../../tidegate.toml"
"""


def _configuration(survey: Survey, name: str, bootstrap: str) -> str:
    sample = survey.sample
    looked_at = f"the newest {len(sample.payloads):,} records of {sample.topic.name}"
    lines = [f"# Proposed from {looked_at}. All settings: tidegate config --schema"]
    if sample.others:
        lines.append(f"# {sample.others:,} records beside them are no JSON objects: they become dead letters.")
    if bootstrap != "localhost:9092":
        lines += ["", "[kafka]", f"bootstrap = {quote_toml(bootstrap)}"]
    lines += ["", f"[inputs.{name}]", f"topic = {quote_toml(sample.topic.name)}"]
    if survey.timestamp_by is None:
        lines.append("# No field has a time in every record: events are taken in the order of their arrival.")
    else:
        lines += _policies(survey)
    lines += _types(survey)
    lines += ["", f"[outputs.{OUTPUT}]", f'topic = "{name}.{OUTPUT}"', f'files = "out/{OUTPUT}"', f'query = "{OUTPUT}.sql"']
    lines += ["", f"[queries.{OUTPUT}]", f'script = "{OUTPUT}.sql"']
    return "\n".join(lines) + "\n"


def _policies(survey: Survey) -> list[str]:
    lines = [f"timestamp_by = {quote_toml(as_setting(survey.timestamp_by or ''))}  # the time nearest to arrival that every record has"]
    if survey.over is not None:
        lines.append(f"over = {quote_toml(survey.over)}  # the records' key: a watermark for each; without it one for each partition")
    if not survey.sample.topic.uses_log_append_time:
        lines.append("# Producers stamp the records of this topic (CreateTime): arrival is by their clocks, and silence moves no time.")
    ahead = _measured(survey.early, "lie more than {} ahead of their arrival")
    late = _measured(survey.late, "arrive more than {} late")
    behind = _measured(survey.reorder, "lie more than {} behind the newest")
    return [
        *lines,
        f'early = "{format_duration(survey.early.us)}"  # {ahead}',
        f'late = "{format_duration(survey.late.us)}"  # {late}',
        f'reorder = "{format_duration(survey.reorder.us)}"  # {behind}',
    ]


def _measured(tolerance: Tolerance, words: str) -> str:
    text = f"{_percent(tolerance.beyond)} {words.format(format_duration(tolerance.us))}"
    if tolerance.smaller_us is None or not tolerance.beyond_smaller:
        return text
    return f"{text}, {_percent(tolerance.beyond_smaller)} more than {format_duration(tolerance.smaller_us)}"


def _percent(share: float) -> str:
    return "none" if not share else "less than 0.1 %" if share < 0.001 else f"{share * 100:.1f} %"


def _types(survey: Survey) -> list[str]:
    lines = [f"# Not declared, since their values are of several types: {', '.join(survey.mixed)}"] if survey.mixed else []
    typed = ", ".join(f"{quote_toml(path)} = {quote_toml(kind)}" for path, kind in survey.fields.items())
    return [*lines, f"fields = {{ {typed} }}"] if typed else lines


def _script(survey: Survey, name: str) -> str:
    over = "" if survey.over is None else f" OVER {_path(survey.over)}"
    time = "" if survey.timestamp_by is None else f" TIMESTAMP BY {_path(survey.timestamp_by)}{over}"
    key = "" if survey.over is None else _path(survey.over)
    selected = f"{key} AS [{(survey.over or '').rpartition('.')[2]}], " if key else ""
    return (
        "-- How many events there are in every minute. A row comes when it is final, and is never taken back.\n"
        f"SELECT {selected}System.Timestamp() AS minute_end, COUNT(*) AS events\n"
        f"INTO {OUTPUT}\n"
        f"FROM {name}{time}\n"
        f"GROUP BY {key + ', ' if key else ''}TumblingWindow(minute, 1)\n"
    )


def _path(path: str) -> str:
    return ".".join(f"[{name}]" for name in path.split("."))


def _sample(survey: Survey, count: int) -> str:
    """Return the newest records with their arrival and partition, which files have no other place for; by their arrival."""
    sample = survey.sample
    rows = sorted(range(len(sample.payloads)), key=lambda row: (sample.arrival_us[row], sample.partition[row], row))[-count:]
    lines = []
    for row in rows:
        own = {_ARRIVAL: format_tick(max(int(sample.arrival_us[row]), 0)), _PARTITION: int(sample.partition[row])}
        known = {name.lower() for name in sample.objects[row]}
        added = {name: value for name, value in own.items() if name.lower() not in known}
        lines.append(json.dumps(sample.objects[row] | added, separators=(",", ":"), ensure_ascii=False))
    return "\n".join(lines) + "\n"


def _expected(project: Mapping[str, str]) -> str:
    """Return what the project's query gives for the records of its case."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "project"
        # A case without any expectation is none.
        write_project(root, {**project, f"cases/{OUTPUT}/expected.{OUTPUT}.ndjson": ""})
        lines = compute_results(read_case(root / "cases" / OUTPUT, root))[OUTPUT]
    return "".join(f"{line}\n" for line in lines)
