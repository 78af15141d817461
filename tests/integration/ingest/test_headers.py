"""
Headers of raw records on the real stack: from the raw topic by way of ingest, which is killed, to a query that groups by one; and what
``tidegate verify`` and ``tidegate compare`` say of them. Some records are hostile: their headers are large, many, or no text.
"""

from __future__ import annotations

import json
import os
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
import typer
from confluent_kafka import Message, Producer
from support.stack.drawn_logs import Raw, draw, expected, logs_of
from support.stack.jobs import Workspace, error_code, settings_of, workspace
from support.stack.topics import check_promises, create, fresh, header, produce, read_ordered, records
from support.stack.verifying import run_verify
from typer.testing import CliRunner

from ordering.policies import Action, Policies
from ordering.protocol.wire import CTI_HEADER_BYTES, HEADER_NAME, decode_event_headers
from ordering.ticks import SECOND_US, format_tick
from tidegate.platform.observe.console import report_errors
from tidegate.tools.commands.compare import compare

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

EVENTS, PARTITIONS, RECORD_BYTES_MAX = 9_000, 2, 30_000
POLICIES = Policies(20 * SECOND_US, 30 * SECOND_US, Action.ADJUST, 3 * SECOND_US, Action.ADJUST)
TABLE = """
[inputs.{name}]
topic = "{topic}"
ordered_topic = "{topic}.{name}"
timestamp_by = "at"
over = "k"
early = "20s"
late = "30s"
reorder = "3s"
record_bytes_max = {record_bytes_max}
{own}
"""
OWN = {
    "events": 'headers = ["tenant", "Trace"]',
    "again": 'headers = "Trace, tenant"\nmax_events_per_batch = 2000',
    "fewer": 'headers = ["tenant"]',
    "bare": "",
}
KEPT = {"events": ("Trace", "tenant"), "again": ("Trace", "tenant"), "fewer": ("tenant",), "bare": ()}
"""By input, in the order in which records have them."""
TENANTS = """
SELECT System.Timestamp() AS w, GetMetadataPropertyValue(events, '[User].[tenant]') AS tenant, COUNT(*) AS n, SUM(v) AS total
FROM events TIMESTAMP BY at
GROUP BY GetMetadataPropertyValue(events, '[User].[tenant]'), TumblingWindow(second, 10)
"""
ROWS = """
SELECT n, GetMetadataPropertyValue(e, '[User].[TRACE]') AS trace
FROM events e TIMESTAMP BY at OVER k
WHERE GetMetadataPropertyValue(e, '[User].[tenant]') = 'Zürich'
"""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(report_errors(compare))


def with_headers(raws: Sequence[Raw]) -> list[Raw]:
    """Give records headers: none, one, several of a name, null, no text, very many; and some that are too large, which are refused."""
    dice, found = random.Random(20), []
    for number, raw in enumerate(raws):
        tenant: tuple[str, Any] = ("tenant", dice.choice([b"a", b"b", "Zürich".encode(), b"", None, b"\xff\xfe"]))
        some = [[], [tenant], [("other", b"o"), tenant], [("tenant", b"not this"), tenant, ("Trace", b"%d" % number)], [("TENANT", b"x")]]
        headers = dice.choice(some)
        if dice.random() < 0.01:
            headers = [*headers, *((f"h{each}", b"") for each in range(500))]
        if not raw.reason and dice.random() < 0.01:
            headers = [("tenant", os.urandom(RECORD_BYTES_MAX))]
            raw = replace(raw, reason="oversized", event_time_us=None)
        found.append(replace(raw, headers=tuple(headers)))
    return found


def kept(raw: Raw, input: str = "events") -> list[tuple[str, bytes]]:
    """Return the headers that the ordered record of an input must have beside Tidegate's."""
    last = dict(raw.headers)
    return [(name, value) for name in KEPT[input] if (value := last.get(name)) is not None]


@dataclass
class Run:
    """What the jobs wrote."""

    space: Workspace
    topic: str
    raws: list[Raw]
    summary: dict[str, Any]
    plain: list[Raw]
    """The same records as if they had no headers."""

    @property
    def logs(self) -> list[list[Raw]]:
        """The log of each partition."""
        return logs_of(self.raws, PARTITIONS)

    def compare(self, a: str, b: str, exit_code: int = 0) -> dict[str, Any]:
        """Run the command; return what it told."""
        stack = self.space.stack
        addresses = {"TIDEGATE_KAFKA__BOOTSTRAP": stack.bootstrap, "TIDEGATE_REDIS__URL": stack.redis_url}
        result = CliRunner().invoke(app, [a, b, "--format", "json"], env=addresses)
        assert result.exit_code == exit_code, result.output
        return dict(json.loads(result.stdout))

    def expected(self, input: str = "events") -> dict[tuple[int, int], list[Any]]:
        """What must stand in the ordered topic of an input."""
        return expected(self.logs if KEPT[input] else logs_of(self.plain, PARTITIONS), POLICIES, PARTITIONS, over=True)


@pytest.fixture(scope="module")
def run(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Four jobs over one raw topic, the first two killed in the midst of their work; then two queries, killed too."""
    plain = draw(11, EVENTS, PARTITIONS, bad=0.01, keys=[f"key{number}" for number in range(20)])
    raws = with_headers(plain)
    topic = create(stack.bootstrap, fresh("headers"), PARTITIONS)
    produce(stack.bootstrap, topic, raws)
    tables = [TABLE.format(name=name, topic=topic, record_bytes_max=RECORD_BYTES_MAX, own=own) for name, own in OWN.items()]
    tables += [f'[outputs.{name}]\ntopic = "{topic}.{name}"\n' for name in ("tenants", "rows")]
    with workspace(tmp_path_factory.mktemp("headers"), stack, "\n".join(tables)) as space:
        for name in ("events", "again"):
            job = space.start("ingest", name, *settings_of(**{f"inputs__{name}__max_events_per_batch": 1000}, spark__trigger="50ms"))
            job.until(lambda job=job: job.batches >= 2, "some batches")  # type: ignore[misc]
            job.kill()
        summary = space.start("ingest", "events", "--until-end").finish()
        space.start("ingest", "again", "fewer", "bare", "--until-end").finish()
        for name, sql in (("tenants", TENANTS), ("rows", ROWS)):
            space.script(f"{name}.sql", sql)
        query = space.start("query", "tenants.sql", "--into", "tenants", *settings_of(query__max_events_per_batch=1000))
        query.until(lambda: query.batches >= 2, "some batches")
        query.kill()
        for name in ("tenants", "rows"):
            space.start("query", f"{name}.sql", "--into", name).finish()
        yield Run(space, topic, raws, summary, plain)


def own_headers(message: Message) -> list[tuple[str, bytes]]:
    """Return the headers of a record after Tidegate's own, which is the first."""
    headers: Any = message.headers()
    assert headers[0][0] == HEADER_NAME
    return list(headers[1:])


@pytest.mark.parametrize("name", OWN)
def test_each_event_has_the_headers_of_its_record_and_nothing_else_changes(run: Run, stack: Stack, name: str) -> None:
    """Level 1: in every channel the sequence that the oracle tells, which knows of no headers; without the setting there are none."""
    topic = f"{run.topic}.{name}"
    found = read_ordered(stack.bootstrap, topic, PARTITIONS)
    assert found.events == run.expected(name)
    check_promises(found, killed=True)
    seen, logs = 0, run.logs
    for message in records(stack.bootstrap, topic):
        octets = header(message, HEADER_NAME)
        if len(octets) == CTI_HEADER_BYTES:
            assert {other for other, _ in own_headers(message)} <= {"tf"}
        else:
            event = decode_event_headers([octets])[0]
            assert own_headers(message) == kept(logs[event["number"]][event["offset"]], name)
            seen += bool(own_headers(message))
    assert seen > EVENTS / 4 or not KEPT[name]


def test_a_record_that_is_too_large_by_its_headers_is_a_dead_letter(run: Run, stack: Stack) -> None:
    """With its payload as it was; where headers are not kept it is an event."""
    origins = {f"{run.topic}-{partition}@{offset}": raw for partition, log in enumerate(run.logs) for offset, raw in enumerate(log)}
    oversized = {origin for origin, raw in origins.items() if raw.reason == "oversized"}
    letters = list(records(stack.bootstrap, f"{run.topic}.events.dead"))
    assert {header(letter, "origin").decode() for letter in letters if header(letter, "reason") == b"oversized"} == oversized != set()
    assert all(letter.value() == origins[header(letter, "origin").decode()].value for letter in letters)
    assert run.summary["dead_letter_oversized"] == len(oversized)


def test_a_query_groups_by_a_header(run: Run, stack: Stack) -> None:
    """Level 3: counted by hand from the events that the oracle tells; a value that is no UTF-8 is read with U+FFFD."""
    counts: dict[tuple[int, str | None], list[int]] = defaultdict(list)
    for (number, _), events in run.expected().items():
        for event in events:
            value = dict(kept(run.logs[number][event.offset])).get("tenant")
            end_us = -(-event.system_us // (10 * SECOND_US)) * 10 * SECOND_US
            counts[end_us, None if value is None else value.decode(errors="replace")].append(json.loads(event.value or b"")["v"])
    wanted = [
        {"w": format_tick(end_us), "tenant": tenant, "n": len(values), "total": sum(values)} for (end_us, tenant), values in counts.items()
    ]
    found = read_ordered(stack.bootstrap, f"{run.topic}.tenants", PARTITIONS).all_events()
    assert _sorted(json.loads(event.value or b"") for event in found) == _sorted(wanted)
    assert {row["tenant"] for row in wanted} == {"a", "b", "Zürich", "", None, "\ufffd\ufffd"}


def test_a_query_selects_headers_of_each_substream(run: Run, stack: Stack) -> None:
    """Level 2: in WHERE and in SELECT, names in any case; the results of a query have no headers."""
    wanted = []
    for (number, _), events in run.expected().items():
        for event in events:
            headers = dict(kept(run.logs[number][event.offset]))
            if headers.get("tenant") == "Zürich".encode():
                trace = headers.get("Trace")
                wanted.append({"n": json.loads(event.value or b"")["n"], "trace": None if trace is None else trace.decode()})
    found = read_ordered(stack.bootstrap, f"{run.topic}.rows", PARTITIONS).all_events()
    assert _sorted(json.loads(event.value or b"") for event in found) == _sorted(wanted)
    assert {name for message in records(stack.bootstrap, f"{run.topic}.rows") for name, _ in own_headers(message)} <= {"tf"}


def _sorted(rows: Any) -> list[Any]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def test_topics_with_headers_are_verified_and_compared(run: Run) -> None:
    """Level 1: jobs that were killed kept the same headers; a topic that keeps fewer differs in them alone."""
    told = run_verify(run.space, "events")
    assert told["equal"]
    for name in ("tenants", "rows"):
        assert run_verify(run.space, name, "--query", f"{name}={name}.sql")["equal"]
    assert run.compare(f"{run.topic}.events", f"{run.topic}.again")["same"]
    found = run.compare(f"{run.topic}.events", f"{run.topic}.fewer", exit_code=1)
    assert {tuple(difference["fields"]) for difference in found["differences"]} == {("headers",)}
    assert all("another `headers`" in difference["hint"] for difference in found["differences"])


@pytest.mark.parametrize("change", ["changed", "added"])
def test_a_header_that_somebody_changed_is_found(run: Run, stack: Stack, change: str) -> None:
    """By its value, or by a name that the setting does not have."""
    copy = create(stack.bootstrap, fresh("tampered"), PARTITIONS)
    producer, changed = Producer({"bootstrap.servers": stack.bootstrap, "enable.idempotence": True}), 0
    for message in records(stack.bootstrap, f"{run.topic}.events"):
        headers: Any = message.headers()
        if not changed and message.partition() == 1 and len(headers) > 1 and headers[1][0] == "tenant":
            headers = [headers[0], ("tenant", b"forged")] if change == "changed" else [*headers, ("forged", b"1")]
            changed += 1
        stamp_ms = message.timestamp()[1]
        producer.produce(copy, message.value(), message.key(), message.partition(), timestamp=stamp_ms, headers=headers)
    assert (producer.flush(30), changed) == (0, 1)
    told = run_verify(run.space, "events", "--set", f"inputs.events.ordered_topic={copy}", exit_code=1)
    (difference,) = told["stages"][0]["differences"]
    assert difference["fields"] == ["headers"]
    (difference,) = run.compare(f"{run.topic}.events", copy, exit_code=1)["differences"]
    assert difference["fields"] == ["headers"]
    assert b"forged".decode() in difference["b"]["headers"]


def test_an_ordered_topic_keeps_its_setting(run: Run) -> None:
    """Another one would give events that are already written other bytes: it is refused, and so is a header that no event has."""
    job = run.space.start("ingest", "events", *settings_of(inputs__events__headers="tenant"))
    assert job.wait() == 3
    assert error_code(job) == "TG-CHECKPOINT-SETTINGS"
    run.space.script("unkept.sql", "SELECT GetMetadataPropertyValue(events, '[User].[tennant]') AS t FROM events TIMESTAMP BY at")
    job = run.space.start("query", "unkept.sql", "--into", "rows")
    assert job.wait() == 2
    assert error_code(job) == "TG-QUERY-HEADER"
