"""A stranger's records in ordered and result topics: no stage notices them but by a warning, and ``verify`` names each."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from support.stack.drawn_logs import draw
from support.stack.jobs import Job, Workspace, settings_of, workspace
from support.stack.topics import create, fresh, header, produce, records
from support.stack.verifying import run_verify, stage

from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.protocol.wire import EVENT_HEADER_BYTES, HEADER_NAME, PARTITION_SHIFT, decode_event_headers, encode_cti
from sinks.copying.feed import PartitionFeed
from sinks.stores.base import Stream
from tidegate.ordered_topic.compare.sides import make_side
from tidegate.ordered_topic.walk import PartitionWalk
from tidegate.platform.kafka.admin import Admin

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

EVENTS, PARTITIONS = 4_000, 2
TABLES = """
[inputs.events]
topic = "{topic}"
timestamp_by = "at"
over = "k"
early = "1m"
late = "20s"
reorder = "2s"

[inputs.clean]
topic = "{topic}"
ordered_topic = "{topic}.clean"
timestamp_by = "at"
over = "k"
early = "1m"
late = "20s"
reorder = "2s"

[outputs.counts]
topic = "{topic}.counts"

[outputs.totals]
topic = "{topic}.totals"

[outputs.clean_counts]
topic = "{topic}.clean.counts"

[outputs.clean_totals]
topic = "{topic}.clean.totals"
"""
COUNTS = """
SELECT k, System.Timestamp() AS w, COUNT(*) AS n, SUM(v) AS total
FROM {events} TIMESTAMP BY at OVER k
GROUP BY k, TumblingWindow(second, 10)
"""
TOTALS = "SELECT System.Timestamp() AS w, SUM(n) AS n, COUNT(*) AS results FROM {counts} GROUP BY TumblingWindow(minute, 1)"

CTI_HEADER, CTI_BODY = encode_cti(Cti(0, 0, 2**60, 1, 0, 1, 5, 2_000, Roster(1, 1, Spread.ALL, True), Cause.EVENT))
STRANGE: list[tuple[str, bytes] | None] = [
    None,
    ("other", b"header"),
    (HEADER_NAME, b""),
    (HEADER_NAME, b"telegram"),
    (HEADER_NAME, b"\x00" * EVENT_HEADER_BYTES),
    (HEADER_NAME, b"\x01\x01\xff\xff" + b"\x00" * (EVENT_HEADER_BYTES - 4)),
    (HEADER_NAME, CTI_HEADER),
]


@dataclass
class Chain:
    """Two chains over one raw topic, one of them with strangers' records in each topic."""

    space: Workspace
    topic: str
    bootstrap: str
    jobs: dict[str, Job]

    def disturb(self, name: str) -> None:
        """Write one of each strange record into each partition of a topic; the last of them has the body of half a CTI."""
        topic = f"{self.topic}.{name}"
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for partition in range(Admin({"bootstrap.servers": self.bootstrap}).require(topic).partitions):
            for headers in STRANGE:
                producer.produce(topic, CTI_BODY[:9], b"key", partition, timestamp=2_000, headers=[headers] if headers else None)
        assert producer.flush(30) == 0

    def events(self, name: str) -> list[list[tuple[Any, ...]]]:
        """Return what a reader accepts of each partition: header, key and value; of results without OVER in their order."""
        properties = {"bootstrap.servers": self.bootstrap}
        admin = Admin(properties)
        side = make_side("A", admin, properties, admin.require(f"{self.topic}.{name}"), None)
        found = []
        for partition in range(side.partitions):
            pieces = [piece.events for piece in PartitionWalk(side, partition).run()]
            rows = [
                row
                for piece in pieces
                for row in zip(piece.number.tolist(), piece.header.to_pylist(), piece.key.to_pylist(), piece.value.to_pylist(), strict=True)
            ]
            found.append(rows)
        return found


@pytest.fixture(scope="module")
def chain(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    """Each stage is disturbed while it runs, killed, disturbed again, and started again; ingest without its checkpoint."""
    raws = draw(11, EVENTS, PARTITIONS, bad=0.01, keys=("a", "bb", "ccc", None))
    topic = create(stack.bootstrap, fresh("strange"), PARTITIONS)
    with workspace(tmp_path_factory.mktemp("strange"), stack, TABLES.format(topic=topic)) as space:
        made = Chain(space, topic, stack.bootstrap, {})
        small = settings_of(inputs__events__max_events_per_batch=500, query__max_events_per_batch=500, spark__trigger="50ms")
        for name, text in (("counts", COUNTS), ("totals", TOTALS)):
            space.script(f"{name}.sql", text.format(events="events", counts="counts"))
            space.script(f"clean_{name}.sql", text.format(events="clean", counts="clean_counts"))
        produce(stack.bootstrap, topic, raws[: EVENTS // 2])
        ingest = space.start("ingest", "events", *small).once_started()
        ingest.until(lambda: ingest.batches >= 2, "some batches")
        made.disturb("ordered")
        counts = space.start("query", "counts.sql", "--into", "counts", *small)
        counts.until(lambda: counts.batches >= 1, "a batch")
        made.disturb("counts")
        totals = space.start("query", "totals.sql", "--into", "totals", *small)
        totals.until(lambda: totals.batches >= 1, "a batch")
        ingest.kill()
        counts.kill()
        totals.kill()
        made.disturb("ordered")
        made.disturb("counts")
        produce(stack.bootstrap, topic, raws[EVENTS // 2 :])
        shutil.rmtree(next((space.folder / ".tidegate/checkpoints").glob("ingest-*.ordered")))
        jobs = made.jobs
        jobs["ingest"] = space.start("ingest", "events", "--until-end")
        jobs["ingest"].finish()
        for name in ("counts", "totals"):
            jobs[name] = space.start("query", f"{name}.sql", "--into", name)
            jobs[name].finish()
        space.start("ingest", "clean", "--until-end").finish()
        for name in ("clean_counts", "clean_totals"):
            space.start("query", f"{name}.sql", "--into", name).finish()
        yield made


def by_substream(rows: list[tuple[Any, ...]]) -> dict[tuple[bytes, int], list[bytes]]:
    """Return the values of results with OVER in their order, by key and input partition."""
    found: dict[tuple[bytes, int], list[bytes]] = {}
    for _, octets, key, value in rows:
        origin = int(decode_event_headers([octets])[0]["offset"]) >> PARTITION_SHIFT
        found.setdefault((key, origin), []).append(value)
    return found


def test_events_and_results_are_those_of_a_chain_that_nobody_disturbed(chain: Chain) -> None:
    """Level 1 of the ordered topic, though ingest resumed from its CTIs; level 3 of results, with OVER by substream, without in order."""
    for ordered, clean in zip(chain.events("ordered"), chain.events("clean"), strict=True):
        assert ordered
        for number in range(PARTITIONS):
            assert [row for row in ordered if row[0] == number] == [row for row in clean if row[0] == number]
    for counts, clean in zip(chain.events("counts"), chain.events("clean.counts"), strict=True):
        assert counts
        assert by_substream(counts) == by_substream(clean)
    assert chain.events("totals") == chain.events("clean.totals") != [[]]


def test_they_are_counted_and_told_once_with_their_place(chain: Chain) -> None:
    """A job's end says how many it passed over; a warning names the first of a partition."""
    for name, reads in (("counts", "ordered"), ("totals", "counts")):
        job = chain.jobs[name]
        assert 0 < job.last["foreign_records"] <= 2 * PARTITIONS * len(STRANGE)
        told = job.logged("a record is none of this topic's writer: it is passed over, like others after it")
        # At its start a job looks at the ends of the topic that it writes, too.
        topics = {line["where"].rpartition("-")[0] for line in told}
        assert {f"{chain.topic}.{reads}"} <= topics <= {f"{chain.topic}.{reads}", f"{chain.topic}.{name}"}
        assert all(line["reason"] and line["fix"] for line in told)


def test_verify_computes_the_results_and_names_each_strangers_record_as_extra(chain: Chain) -> None:
    """Levels 1 and 2: all that was computed stands there, and what stands there beside is named."""
    told = run_verify(chain.space, "totals", "--query", "totals=totals.sql", "--query", "counts=counts.sql", exit_code=1)
    assert not told["equal"]
    assert not any(each["differences"] or each["broken"] for each in told["stages"])
    ordered, counts = stage(told, "events"), stage(told, "counts")["published"][0]
    for found, name in ((ordered, "ordered"), (counts, "counts")):
        strange = [each for each in records(chain.bootstrap, f"{chain.topic}.{name}") if (each.value() or b"") == CTI_BODY[:9]]
        assert found["foreign"] == len(strange) == 2 * PARTITIONS * len(STRANGE)
        places = {(each.partition(), each.offset()) for each in strange}
        assert {(each["partition"], each["log_offset"]) for each in found["extra_records"]} <= places
        assert all(each["reason"] for each in found["extra_records"])
        assert found["contradicting"] == 0
    totals = stage(told, "totals")["published"][0]
    assert totals["foreign"] == 0
    assert totals["rows"] > 0


def test_a_sink_copies_what_the_query_wrote(chain: Chain) -> None:
    """Each result once, whatever stands between them."""
    kafka = {"bootstrap.servers": chain.bootstrap}
    topic = Admin(kafka).require(f"{chain.topic}.counts")
    ends = Admin(kafka).ends(topic.all_partitions)
    for partition, wanted in enumerate(chain.events("counts")):
        feed = PartitionFeed(kafka, Stream(topic.name, topic.topic_id, topic.partitions), partition)
        pieces = list(feed.read(ends[topic.name, partition], 100))
        assert [value for rows in pieces for value in rows.value.to_pylist()] == [row[3] for row in wanted]
        assert [number for rows in pieces for number in rows.position.tolist()] == list(range(len(wanted)))
        assert feed.offset == ends[topic.name, partition]
        assert feed.is_finished
        feed.close()


def test_a_copy_with_other_bytes_is_a_finding_of_its_own(chain: Chain) -> None:
    """Once retention has taken the first one it would be accepted. A copy with the same bytes is none."""
    name = f"{chain.topic}.totals"
    whole = [message for message in records(chain.bootstrap, name) if len(header(message, HEADER_NAME)) == EVENT_HEADER_BYTES]
    accepted = whole[len(whole) // 2]
    producer = Producer({"bootstrap.servers": chain.bootstrap})
    for value in (accepted.value(), b'{"w":"forged"}'):
        place = {"partition": accepted.partition() or 0, "timestamp": accepted.timestamp()[1]}
        producer.produce(name, value, accepted.key(), headers=accepted.headers(), **place)
    assert producer.flush(30) == 0
    forged = [each for each in records(chain.bootstrap, name) if each.value() == b'{"w":"forged"}']
    told = run_verify(chain.space, "totals", "--query", "totals=totals.sql", "--query", "counts=counts.sql", exit_code=1)
    assert not stage(told, "totals")["differences"]
    totals = stage(told, "totals")["published"][0]
    assert totals["contradicting"] == 1
    (copy,) = totals["contradicting_copies"]
    assert (copy["topic"], copy["log_offset"], copy["accepted_log_offset"]) == (name, forged[0].offset(), accepted.offset())
    assert copy["fields"] == ["value"]
