"""
The cases of tests/cases once more, through Kafka and Spark: ingest orders their events, a query job computes them, in batches of
a few events; the results must be the bytes that people worked out.

``make test`` draws some of them and runs those of ALWAYS, ``make test-deep`` runs them all. In a case without arrival times no
policy but reorder applies, as on files.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.chance import dice_of
from support.repository import ROOT
from support.stack.jobs import workspace
from support.stack.topics import create, fresh, produce, read_ordered

from query.local.case_files import Case, find_case_folders, read_case
from query.local.run_setup import RunSetup
from query.local.script import BoundScript, bind_script

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration
CASES = ROOT / "tests" / "cases"
DRAWN, EVERY = 4, "TIDEGATE_TEST_ALL_CASES"
"""How many cases run, unless this variable of the environment asks for all."""
ALWAYS = ("time/over_two_keys", "time/user_headers")
"""Cases that run each time: of their kind there is no other, so a draw seldom has one."""
ARRIVAL = "EventEnqueuedUtcTime"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")


@dataclass(frozen=True)
class Sent:
    """One record as it is produced."""

    partition: int
    value: bytes
    stamp_ms: int
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass
class Staged:
    """A case with its events in Kafka."""

    case: Case
    reads: BoundScript
    name: str
    inputs: dict[str, str]
    """What the settings say of each input, by the name of the case's file."""


def usable() -> list[tuple[Case, BoundScript]]:
    """The cases that have results and events as JSON with a time of their own."""
    found = []
    for folder in find_case_folders(CASES):
        case = read_case(folder, CASES)
        if case.error is not None or any(file.path.rpartition(".")[2] != "ndjson" for file in (*case.files, *case.references)):
            continue
        reads = bind_script(case.folder / "query.sql", _given(case).settings)
        sql = (case.folder / "query.sql").read_text()
        if "EventProcessedUtcTime" in sql and "CREATE TABLE" not in sql:
            # When ingest reads a record is not the file's to say.
            continue
        if all(scan.timestamp_by is not None or ARRIVAL in Path(_file(case, scan.input)).read_text() for scan in reads.scans):
            found.append((case, reads))
    return found


def _given(case: Case) -> RunSetup:
    return RunSetup.of(case.files, case.flags, case.config, case.references)


def _file(case: Case, name: str) -> str:
    return next(file.path for file in case.files if file.name == name)


def records(path: str) -> tuple[list[Sent], bool]:
    """The records of a file, and whether they have arrival times."""
    lines = [line for line in Path(path).read_bytes().splitlines() if line.strip()]
    rows: list[dict[str, Any]] = [_row(line) for line in lines]
    arrives = any(ARRIVAL in row for row in rows)
    stamps = [_ms(row[ARRIVAL]) if ARRIVAL in row else 0 for row in rows]
    # As late as the newest time in the file: nothing is early, and what is late is so for no tolerance.
    newest_ms = max(map(_ms, _TIME.findall(Path(path).read_text())), default=_ms("3000-01-01T00:00:00Z"))
    return [
        Sent(int(row.get("PartitionId") or 0), line, stamp or newest_ms, headers=tuple(_headers(row)))
        for line, row, stamp in zip(lines, rows, stamps, strict=True)
    ], arrives


def _headers(row: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """The members of a record ``User``, which are headers of its record in Kafka."""
    user = row.get("User")
    for name, value in user.items() if isinstance(user, dict) else ():
        yield name, str(value).encode()


def _row(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def staged(stack: Stack, case: Case, reads: BoundScript) -> Staged:
    """Produce a case's events; return it with the settings of its inputs."""
    name, inputs = fresh("case"), {}
    for scan in reads.scans:
        sent, arrives = records(_file(case, scan.input))
        topic = f"{name}.{scan.input}"
        create(stack.bootstrap, topic, 1 + max((record.partition for record in sent), default=0))
        produce(stack.bootstrap, topic, sent)
        flags, rules = case.flags, _given(case).rules[scan.input]
        policies: dict[str, Any] = {
            "early": flags.early or "5m" if arrives else "off",
            **({"early_action": str(flags.early_action)} if flags.early_action and arrives else {}),
            "late": flags.late or "5s" if arrives else "20d" if scan.over else "off",
            "late_action": rules.policies.late_action,
            "reorder": f"{rules.policies.reorder_us}us",
            "out_of_order_action": rules.policies.out_of_order_action,
            "arrival_max_ahead": "365000d",
        }
        if rules.end is not None:
            policies |= {"shape": rules.shape, "end": rules.end}
        if scan.timestamp_by is not None:
            policies["timestamp_by"] = str(scan.timestamp_by)
        else:
            policies = {"arrival_max_ahead": "365000d"}
        if scan.over is not None:
            policies["over"] = str(scan.over)
        if headers := sorted({name for record in sent for name, _ in record.headers}):
            policies["headers"] = headers
        lines = [f"topic = {json.dumps(topic)}", *(f"{key} = {json.dumps(value)}" for key, value in policies.items())]
        inputs[scan.input] = "\n".join(lines)
    return Staged(case, reads, name, inputs)


def config_of(one: Staged, dice: random.Random) -> str:
    """The configuration under which a case's query runs."""
    tables = [f"[inputs.{name}]\n{table}" for name, table in one.inputs.items()]
    tables += [f'[outputs.{output}]\ntopic = "{one.name}.to.{output}"' for output in one.case.expected]
    tables += [f"[references.{file.name}]\npath = {json.dumps(file.path)}" for file in one.case.references]
    return "\n\n".join([*tables, f"[query]\nmax_events_per_batch = {dice.choice((1, 2, 3, 7, 1000))}\n"])


def found_lines(stack: Stack, topic: str) -> tuple[list[bytes], int]:
    """The values of a result topic by the reader's rule, partition by partition, and how many partitions there are."""
    from tidegate.platform.kafka.admin import Admin

    partitions = Admin({"bootstrap.servers": stack.bootstrap}).require(topic).partitions
    found = read_ordered(stack.bootstrap, topic, partitions)
    return [event.value or b"" for channel in sorted(found.events) for event in found.events[channel]], partitions


def draw_cases(dice: random.Random) -> list[tuple[Case, BoundScript]]:
    """The cases that run here."""
    every = usable()
    if os.environ.get(EVERY):
        return every
    always = [found for found in every if found[0].name in ALWAYS]
    assert len(always) == len(ALWAYS)
    return [*always, *dice.sample([found for found in every if found not in always], DRAWN - len(always))]


def test_cases_give_the_same_bytes_through_kafka_and_spark(stack: Stack, tmp_path: Path) -> None:
    """Levels 2 and 3 of the law: whatever the batches of ingest and query are, and through however many topics it goes."""
    dice = dice_of("cases on Kafka")
    cases = [staged(stack, case, reads) for case, reads in draw_cases(dice)]
    every = "\n\n".join(f"[inputs.{_unique(one, name)}]\n{table}" for one in cases for name, table in one.inputs.items())
    with workspace(tmp_path, stack, every) as space:
        names = [_unique(one, name) for one in cases for name in one.inputs]
        for start in range(0, len(names), 12):
            space.start("ingest", *names[start : start + 12], "--until-end").finish()
        for one in cases:
            with workspace(tmp_path / one.name, stack, config_of(one, dice)) as place:
                place.start("query", place.script("query.sql", (one.case.folder / "query.sql").read_text())).finish()
    wrong = []
    for one in cases:
        for output, expected in one.case.expected.items():
            lines, partitions = found_lines(stack, f"{one.name}.to.{output}")
            in_order = partitions == 1 and not one.reads.has_over
            if (lines if in_order else sorted(lines)) != (list(expected) if in_order else sorted(expected)):
                wrong.append((one.case.name, output, lines, list(expected)))
    assert not wrong, wrong


def _unique(one: Staged, name: str) -> str:
    return f"{one.name.replace('-', '_')}_{name}"
