"""Queries on the real stack, behind an ingest job that runs, stops and ends, and over kill -9 of a query itself."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pytest
from support.chance import dice_of
from support.stack.drawn_logs import Raw, draw, expected, logs_of
from support.stack.jobs import Job, Workspace, error_code, workspace
from support.stack.topics import Event, Ordered, check_promises, create, exists, fresh, produce, read_ordered

from ordering.policies import Policies
from ordering.protocol.punctuation import Cause, Cti
from ordering.ticks import INFINITY, SECOND_US

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

EVENTS, PARTITIONS, PIECES = 12_000, 2, 8
KEYS = ("a", "bb", "ccc", "dd", "Zürich", *(f"key{number}" for number in range(10)), None)
POLICIES = Policies(early_us=60 * SECOND_US, late_us=20 * SECOND_US, reorder_us=2 * SECOND_US)
WINDOW_US, SPAN_US = 10 * SECOND_US, 60 * SECOND_US
HOP_US, SIZE_US = 15 * SECOND_US, 60 * SECOND_US
TABLES = """
[inputs.events]
topic = "{topic}"
timestamp_by = "at"
over = "k"
early = "1m"
late = "20s"
reorder = "2s"

[outputs.counts]
topic = "{topic}.counts"
files = "counts"
file_span = "1m"

[outputs.means]
topic = "{topic}.means"
files = "means"
file_span = "1m"

[outputs.totals]
topic = "{topic}.totals"

[outputs.spread]
topic = "{topic}.spread"

[outputs.later]
topic = "{topic}.later"
files = "later"
file_span = "1m"
"""
COUNTS = """
SELECT k, System.Timestamp() AS w, COUNT(*) AS n, SUM(v) AS total, MIN(v) AS least
FROM events TIMESTAMP BY at OVER k
GROUP BY k, TumblingWindow(second, 10)
"""
MEANS = """
SELECT System.Timestamp() AS w, AVG(v) AS mean, COUNT(*) AS n
FROM events TIMESTAMP BY at
GROUP BY HoppingWindow(Duration(minute, 1), Hop(second, 15))
"""
TOTALS = """
SELECT System.Timestamp() AS w, SUM(n) AS n, COUNT(*) AS results
FROM counts
GROUP BY TumblingWindow(minute, 1)
"""

SPREAD = """
SELECT k, COUNT(*) AS n, SUM(v) AS total FROM events TIMESTAMP BY at GROUP BY k, TumblingWindow(second, 10)
"""

Result = tuple[int, bytes, bytes]
"""System timestamp in microseconds, key and value of a result."""


@dataclass
class Chain:
    """A finished chain of jobs: ingest, two queries (one of them killed), and a third over a result topic."""

    space: Workspace
    topic: str
    raws: list[Raw]
    while_silent: Ordered
    killed_after: int

    def read(self, name: str, partitions: int) -> Ordered:
        """Read one of its topics by the reader's rule."""
        return read_ordered(self.space.stack.bootstrap, f"{self.topic}.{name}", partitions)

    def files(self, name: str) -> dict[str, bytes]:
        """Return the result files of an output."""
        return {file.name: file.read_bytes() for file in sorted((self.space.folder / name).iterdir())}

    @cached_property
    def ordered_events(self) -> dict[tuple[int, int], list[Event]]:
        """What the ordered topic must hold, by the oracle."""
        return expected(logs_of(self.raws, PARTITIONS), POLICIES, PARTITIONS, over=True)


@pytest.fixture(scope="module")
def chain(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    """
    Run the chain while events come in.

    Ingest first runs without an end; the query over substreams is killed in the middle of what comes meanwhile. Then
    ingest is stopped and started once more to end the topic, whereupon all queries must stop by themselves.
    """
    raws = draw(3, EVENTS, PARTITIONS, keys=KEYS)
    topic = create(stack.bootstrap, fresh("chain"), PARTITIONS)
    size = EVENTS // PIECES
    pieces = (raws[at : at + size] for at in range(0, EVENTS, size))
    produce(stack.bootstrap, topic, next(pieces))
    with workspace(tmp_path_factory.mktemp("query"), stack, TABLES.format(topic=topic)) as space:
        counts, means, totals = (space.script(f"{name}.sql", text) for name, text in (("c", COUNTS), ("m", MEANS), ("t", TOTALS)))
        ingest = space.start("ingest", "events").once_started()
        ingest.until(lambda: exists(stack.bootstrap, f"{topic}.ordered"), "the ordered topic")
        killed, merged = space.start("query", counts, "--into", "counts"), space.start("query", means, "--into", "means")
        _kill_in_the_middle(stack, topic, killed, pieces)
        killed_after = killed.last["events"]
        for piece in pieces:
            produce(stack.bootstrap, topic, piece)
        restarted = space.start("query", counts, "--into", "counts")
        chained = space.start("query", totals, "--into", "totals")
        ingest.until(lambda: ingest.last.get("events_in") == EVENTS, "all events ordered")
        restarted.until(lambda: restarted.batches > 0, "the killed query goes on")
        assert error_code(space.start("query", means, "--into", "means")) == "TG-CHECKPOINT-TAKEN"
        ingest.stop()
        while_silent = read_ordered(stack.bootstrap, f"{topic}.ordered", PARTITIONS)
        assert merged.running, "no input has ended yet"
        space.start("ingest", "events", "--until-end").finish()
        for job in (restarted, merged, chained):
            assert job.finish()["finished"]
        yield Chain(space, topic, raws, while_silent, killed_after)


def _kill_in_the_middle(stack: Stack, topic: str, query: Job, pieces: Iterator[Sequence[Raw]]) -> None:
    """Send events piece by piece while the query works on them, and kill it at a random moment after one more."""
    query.until(lambda: query.batches > 0, "the first piece")
    for _ in range(2):
        before = query.batches
        produce(stack.bootstrap, topic, next(pieces))
        query.until(lambda before=before: query.batches > before, "one more piece")  # type: ignore[misc]
    produce(stack.bootstrap, topic, next(pieces))
    time.sleep(dice_of("a kill of a query").uniform(0, 1.5))
    assert query.running, query.errors
    query.kill()


def iso(us: int) -> str:
    """Write whole seconds as results do."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)).strftime("%Y-%m-%dT%H:%M:%SZ")


def end_of(system_us: int, size_us: int) -> int:
    """Return the end of the window (start, end] in which a time lies."""
    return -(-system_us // size_us) * size_us


def counts_of(events: Sequence[tuple[Event, Any, int]]) -> dict[tuple[int, bytes, int], bytes]:
    """Return the result of each (window end, key, input partition), computed one event at a time."""
    values: defaultdict[tuple[int, bytes, int], list[int]] = defaultdict(list)
    for event, payload, number in events:
        values[end_of(event.system_us, WINDOW_US), event.key or b"", number].append(payload["v"])
    return {
        (end, key, number): json.dumps(
            {"k": key.decode() or None, "w": iso(end), "n": len(found), "total": sum(found), "least": min(found)},
            separators=(",", ":"),
            ensure_ascii=False,
        ).encode()
        for (end, key, number), found in values.items()
    }


def payloads(channels: Mapping[tuple[int, int], Sequence[Event]], output: int) -> list[tuple[Event, Any, int]]:
    """Return event, payload and input partition of all events of an output partition."""
    return [
        (event, json.loads(event.value or b""), number)
        for (number, partition), events in sorted(channels.items())
        if partition == output
        for event in events
    ]


def walk(arrived: Sequence[tuple[int, Event | Cti]], results: Mapping[tuple[int, bytes, int], bytes]) -> list[Result]:
    """
    Tell in which order results leave one bucket: upon each accepted record those it made final, by (s, key bytes).

    Walks the log as it stands, one record at a time. A window is final once its substream has moved past its end, by an
    event of it or by a CTI of its channel; the final CTI closes the rest.
    """
    ends: defaultdict[int, defaultdict[bytes, list[int]]] = defaultdict(lambda: defaultdict(list))
    for end, key, number in sorted(results):
        ends[number][key].append(end)
    last: defaultdict[int, int] = defaultdict(lambda: -1)
    emitted: list[Result] = []
    for number, record in arrived:
        if isinstance(record, Cti):
            assert record.n <= last[number] + 1, "the writer numbered what it had not written"
            moved, reached_us = sorted(ends[number]), record.c
        elif record.seq == last[number] + 1:
            last[number] += 1
            moved, reached_us = [record.key or b""], record.system_us
        else:
            continue
        due = []
        for key in moved:
            waiting = ends[number][key]
            while waiting and waiting[0] < reached_us:
                due.append((waiting.pop(0), key))
        emitted += [(end, key, results[end, key, number]) for end, key in sorted(due)]
    return emitted


def test_without_an_end_the_topic_has_no_final_cti_and_no_estimate(chain: Chain) -> None:
    """A CreateTime topic's arrival is its producers' clock: silence moves nothing unless asked for; a plain stop ends nothing."""
    assert not chain.while_silent.ended
    assert {cti.cause for ctis in chain.while_silent.ctis.values() for cti, _ in ctis} == {Cause.EVENT}
    events = chain.while_silent.all_events()
    newest_us = max(event.arrival_us for event in events)
    assert max(chain.while_silent.c(channel) for channel in chain.while_silent.ctis) <= newest_us


def test_the_chain_starts_from_the_sequence_the_oracle_tells(chain: Chain) -> None:
    """Law, level 1, of a topic that was begun, stopped and ended by two runs."""
    found = chain.read("ordered", PARTITIONS)
    assert found.events == chain.ordered_events
    check_promises(found)
    assert 0 < chain.killed_after < len(found.all_events()), "the query was killed in the middle"


def test_a_killed_query_over_substreams_leaves_results_as_the_log_orders_them(chain: Chain) -> None:
    """Law, level 2: each bucket's result sequence follows from the ordered partition's log as it stands, kill or not."""
    log, found = chain.read("ordered", PARTITIONS), chain.read("counts", PARTITIONS)
    check_promises(found, killed=True)
    for bucket in range(PARTITIONS):
        results = counts_of(payloads(chain.ordered_events, bucket))
        sequence = [(event.system_us, event.key or b"", event.value) for event in found.events[bucket, bucket]]
        assert sequence == walk(log.arrived[bucket], results)


def test_results_of_a_killed_query_are_those_of_plain_python(chain: Chain) -> None:
    """Law, level 3: the result topic read by the rule, and the files byte for byte, hold what one event at a time gives."""
    files: dict[str, bytes] = {}
    for bucket in range(PARTITIONS):
        for (end, _, _), value in sorted(counts_of(payloads(chain.ordered_events, bucket)).items()):
            name = f"{iso(end // SPAN_US * SPAN_US).replace(':', '-')}.p{bucket:05d}.ndjson"
            files[name] = files.get(name, b"") + value + b"\n"
    assert chain.files("counts") == files
    lines = sorted(line for content in files.values() for line in content.splitlines())
    assert sorted(event.value or b"" for event in chain.read("counts", PARTITIONS).all_events()) == lines


def test_a_merged_query_gives_one_line_of_results(chain: Chain) -> None:
    """Law, level 3: hopping windows over all partitions, in (s), the same bytes as plain Python's."""
    events = [entry for output in range(PARTITIONS) for entry in payloads(chain.ordered_events, output)]
    windows: defaultdict[int, list[int]] = defaultdict(list)
    for event, payload, _ in events:
        first = end_of(event.system_us, HOP_US)
        for end in range(first, event.system_us + SIZE_US, HOP_US):
            windows[end].append(payload["v"])
    lines = [
        json.dumps({"w": iso(end), "mean": sum(found) / len(found), "n": len(found)}, separators=(",", ":")).encode()
        for end, found in sorted(windows.items())
    ]
    found = chain.read("means", 1)
    assert [event.value for event in found.events[0, 0]] == lines
    assert [event.system_us for event in found.events[0, 0]] == sorted(windows)
    assert b"".join(chain.files("means").values()).splitlines() == lines
    check_promises(found)


def test_a_query_over_the_results_of_another_gives_what_both_together_give(chain: Chain) -> None:
    """Law, level 3, over a chain whose middle was killed."""
    minutes: defaultdict[int, list[int]] = defaultdict(list)
    for bucket in range(PARTITIONS):
        for (end, _, _), value in counts_of(payloads(chain.ordered_events, bucket)).items():
            minutes[end_of(end, 60 * SECOND_US)].append(json.loads(value)["n"])
    lines = [
        json.dumps({"w": iso(end), "n": sum(found), "results": len(found)}, separators=(",", ":")).encode()
        for end, found in sorted(minutes.items())
    ]
    found = chain.read("totals", 1)
    assert [event.value for event in found.events[0, 0]] == lines
    assert {found.c(channel) for channel in found.ctis} == {INFINITY}
    # Two queries deep, CTIs still say how far the arrivals of the raw records had come.
    known = {cti.arrival_us for ctis in chain.read("ordered", PARTITIONS).ctis.values() for cti, _ in ctis}
    assert {cti.arrival_us for ctis in found.ctis.values() for cti, _ in ctis} <= known


def test_a_query_whose_keys_stay_apart_is_spread_over_partitions(chain: Chain) -> None:
    """Law, level 3: without OVER, each ordered partition a bucket; its results in (s, key), the same bytes as plain Python's."""
    chain.space.start("query", chain.space.script("spread.sql", SPREAD), "--into", "spread").finish()
    found = chain.read("spread", PARTITIONS)
    for bucket in range(PARTITIONS):
        values: defaultdict[tuple[int, bytes], list[int]] = defaultdict(list)
        for event, payload, _ in payloads(chain.ordered_events, bucket):
            values[end_of(event.system_us, WINDOW_US), event.key or b""].append(payload["v"])
        lines = [
            json.dumps({"k": key.decode() or None, "n": len(each), "total": sum(each)}, separators=(",", ":"), ensure_ascii=False).encode()
            for (_, key), each in sorted(values.items())
        ]
        assert [event.value for event in found.events[bucket, bucket]] == lines
    check_promises(found)


def test_a_start_in_the_middle_gives_the_suffix(chain: Chain) -> None:
    """Law, level 3: results from S on are those of a run from the beginning; the numbers alone are new."""
    whole = chain.read("counts", PARTITIONS)
    middle = sorted(event.system_us for event in whole.all_events())[len(whole.all_events()) // 2]
    chain.space.start("query", "c.sql", "--into", "later", "--start", iso(middle)).finish()
    found = chain.read("later", PARTITIONS)
    for bucket in range(PARTITIONS):
        suffix = sorted((event.system_us, event.key, event.value) for event in whole.events[bucket, bucket] if event.system_us >= middle)
        later = found.events[bucket, bucket]
        assert sorted((event.system_us, event.key, event.value) for event in later) == suffix
        assert [event.seq for event in later] == list(range(len(suffix)))
    check_promises(found)
