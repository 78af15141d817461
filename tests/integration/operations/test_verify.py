"""``tidegate verify`` on what real jobs wrote, killed ones too, and on copies that were tampered with."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import redis
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from support.chance import dice_of
from support.stack.drawn_logs import draw
from support.stack.jobs import Workspace, settings_of, workspace
from support.stack.topics import APPEND_TIME, create, exists, fresh, header, produce, read_ordered, records
from support.stack.verifying import run_verify, stage

from ordering.protocol.wire import EVENT_HEADER_BYTES, HEADER_NAME, decode_cti, decode_event_headers, encode_cti
from tidegate.platform.kafka.admin import Admin

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

EVENTS, PARTITIONS = 12_000, 2
EVERY = bool(os.environ.get("TIDEGATE_TEST_ALL_CASES"))
KEYS = ("a", "bb", "ccc", "Zürich", *(f"key{number}" for number in range(10)), None)
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
file_format = "parquet"
file_span = "1m"

[outputs.totals]
topic = "{topic}.totals"

[outputs.spread]
topic = "{topic}.spread"

[outputs.exchanged]
topic = "{topic}.exchanged"

[outputs.later]
topic = "{topic}.later"

[outputs.joined]
topic = "{topic}.joined"
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
TOTALS = "SELECT System.Timestamp() AS w, SUM(n) AS n, COUNT(*) AS results FROM counts GROUP BY TumblingWindow(minute, 1)"
SPREAD = "SELECT k, COUNT(*) AS n, SUM(v) AS total FROM events TIMESTAMP BY at GROUP BY k, TumblingWindow(second, 10)"
EXCHANGED = "SELECT v, COUNT(*) AS n FROM events TIMESTAMP BY at GROUP BY v, TumblingWindow(minute, 1)"
JOINED = """
SELECT e.k AS k, e.v AS v, c.n AS n
FROM events TIMESTAMP BY at OVER k e
JOIN counts TIMESTAMP BY System.Timestamp() OVER k c ON e.k = c.k AND DATEDIFF(second, e, c) BETWEEN 0 AND 10
"""
SCRIPTS = {
    "counts": COUNTS,
    "means": MEANS,
    "totals": TOTALS,
    "spread": SPREAD,
    "exchanged": EXCHANGED,
    "later": COUNTS,
    "joined": JOINED,
}
TOTALS_NEEDS = ("--query", "totals=totals.sql", "--query", "counts=counts.sql")


@dataclass
class Published:
    """What the jobs of a workspace have published."""

    space: Workspace
    topic: str
    middle: str

    def verify(self, target: str, *flags: str, exit_code: int = 0) -> dict[str, Any]:
        """Run the command in the workspace; return what it told."""
        return run_verify(self.space, target, *flags, exit_code=exit_code)

    def verify_output(self, name: str, *flags: str, exit_code: int = 0) -> dict[str, Any]:
        """Verify one output by its own query."""
        return self.verify(name, "--query", f"{name}={name}.sql", *flags, exit_code=exit_code)

    def tampered(self, name: str, partitions: int, change: Callable[[list[Any]], list[Any]]) -> str:
        """Return a changed copy of a topic: *change* is given its messages."""
        copy = create(self.space.stack.bootstrap, fresh("tampered"), partitions)
        producer = Producer({"bootstrap.servers": self.space.stack.bootstrap, "enable.idempotence": True})
        lines = [
            [message.partition(), message.value(), message.key(), message.timestamp()[1], message.headers()]
            for message in records(self.space.stack.bootstrap, f"{self.topic}.{name}")
        ]
        for partition, value, key, stamp_ms, headers in change(lines):
            producer.produce(copy, value, key, partition, timestamp=stamp_ms, headers=headers)
        assert producer.flush(30) == 0
        return copy


@pytest.fixture(scope="module")
def published(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Published]:
    """Jobs over one raw topic: ingest and a query are killed in the midst of their work; all come to their end."""
    raws = draw(3, EVENTS, PARTITIONS, bad=0.01, keys=KEYS)
    topic = create(stack.bootstrap, fresh("verified"), PARTITIONS)
    with workspace(tmp_path_factory.mktemp("verify"), stack, TABLES.format(topic=topic)) as space:
        for name, text in SCRIPTS.items():
            space.script(f"{name}.sql", text)
        produce(stack.bootstrap, topic, raws[: EVENTS // 2])
        small = settings_of(inputs__events__max_events_per_batch=1000, spark__trigger="50ms")
        ingest = space.start("ingest", "events", *small).once_started()
        ingest.until(lambda: exists(stack.bootstrap, f"{topic}.ordered"), "the ordered topic")
        counts = space.start("query", "counts.sql", "--into", "counts", *settings_of(query__max_events_per_batch=1000))
        ingest.until(lambda: ingest.batches >= 3, "some batches")
        time.sleep(dice_of("verify, a kill").uniform(0, 0.3))
        ingest.kill()
        counts.until(lambda: counts.batches >= 1, "a batch")
        counts.kill()
        produce(stack.bootstrap, topic, raws[EVENTS // 2 :])
        space.start("ingest", "events", "--until-end").finish()
        for name in ("counts", "means", "totals", "spread", "exchanged", "joined"):
            space.start("query", f"{name}.sql", "--into", name).finish()
        seen = sorted(message.timestamp()[1] for message in records(stack.bootstrap, f"{topic}.counts") if message.key())
        moment = seen[len(seen) // 2] // 60_000 * 60
        middle = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
        space.start("query", "later.sql", "--into", "later", "--start", middle).finish()
        yield Published(space, topic, middle)


def test_an_ordered_topic_follows_from_its_raw_topic(published: Published) -> None:
    """Level 1: every event of a topic whose job was killed, from raw topic, settings and journal alone."""
    told = published.verify("events")
    (ordered,) = told["stages"]
    standing = sum(
        len(header(each, HEADER_NAME)) == EVENT_HEADER_BYTES for each in records(published.space.stack.bootstrap, ordered["topic"])
    )
    assert told["equal"]
    assert ordered["events"] == standing - ordered["duplicates"]
    assert ordered["vouched_from"] == "the beginning"
    assert sum(ordered["unusable"].values()) > 0


@pytest.mark.parametrize("name", ["counts", "means", "spread", "exchanged", "later"])
def test_results_follow_from_the_raw_topic(published: Published, name: str) -> None:
    """Levels 1 and 2: results with OVER and without, by partition, of an exchange, from a start on; topics and files."""
    told = published.verify_output(name)
    assert told["equal"]
    assert [each["kind"] for each in told["stages"]] == ["ordered topic", "results"]
    topic = stage(told, name)["published"][0]
    bootstrap = published.space.stack.bootstrap
    standing = sum(len(header(each, HEADER_NAME)) == EVENT_HEADER_BYTES for each in records(bootstrap, f"{published.topic}.{name}"))
    assert topic["rows"] == standing - topic["duplicates"] > 0
    assert topic["ahead"] == 0


@pytest.mark.parametrize("name", ["totals", "joined"])
def test_a_chain_is_followed_back_to_raw_topics(published: Published, name: str) -> None:
    """Levels 1 and 2 of each stage of a chain."""
    told = published.verify_output(name, "--query", "counts=counts.sql")
    assert told["equal"]
    assert [each["name"] for each in told["stages"]] == ["events", "counts", name] or name == "joined"
    assert stage(told, "counts")["published"][0]["rows"] > 0
    assert stage(told, name)["published"][0]["rows"] > 0


def test_the_last_batch_counts_even_if_it_was_not_recorded_as_finished(published: Published) -> None:
    """A job stops as soon as its end is reported, which may be before Spark records the batch; a kill at that moment does the same."""
    (spark,) = (published.space.folder / ".tidegate/checkpoints").glob("query-*.counts/spark")
    last = max(int(file.name) for file in (spark / "offsets").iterdir() if file.name.isdigit())
    assert last > 0
    record = spark / "commits" / str(last)
    kept = record.read_bytes() if record.exists() else None
    record.unlink(missing_ok=True)
    try:
        assert published.verify_output("counts")["equal"]
    finally:
        if kept is not None:
            record.write_bytes(kept)


def test_the_end_is_found_however_much_is_released_there(stack: Stack, tmp_path: Path) -> None:
    """With everything held until the end, thousands of events of one channel follow the final CTI of another in the same partition."""
    topic = create(stack.bootstrap, fresh("held"), PARTITIONS)
    produce(stack.bootstrap, topic, draw(12, 40_000, PARTITIONS, keys=KEYS))
    tables = TABLES.format(topic=topic).replace('late = "20s"', 'late = "20d"').replace('reorder = "2s"', 'reorder = "20d"')
    with workspace(tmp_path, stack, tables) as space:
        published = Published(space, topic, "")
        space.start("ingest", "events", "--until-end").finish()
        told = published.verify("events")
        assert told["equal"]
        assert stage(told, "events")["events"] > 30_000
        assert space.start("ingest", "events", "--until-end").finish()["had_ended"]


def is_row(line: list[Any]) -> bool:
    """Return whether a message is an event or a result, no CTI."""
    return len(dict(line[4])[HEADER_NAME]) == EVENT_HEADER_BYTES


def rows_of(lines: list[list[Any]], partition: int) -> list[int]:
    """Return the places of the rows of one partition, each seq once."""
    found: dict[int, int] = {}
    for place, line in enumerate(lines):
        if line[0] == partition and is_row(line):
            found.setdefault(int(decode_event_headers([dict(line[4])[HEADER_NAME]])["seq"][0]), place)
    return [found[seq] for seq in sorted(found)]


def test_a_single_changed_byte_of_a_result_is_found(published: Published) -> None:
    """The row is named, with what was found and what was expected."""

    def change(lines: list[Any]) -> list[Any]:
        place = rows_of(lines, 1)[5]
        lines[place][1] = lines[place][1].replace(b'"n":', b'"m":')
        # A repeated write of the same row must not hide it.
        seq = dict(lines[place][4])[HEADER_NAME][8:16]
        return [
            line
            for at, line in enumerate(lines)
            if at == place or not is_row(line) or line[0] != 1 or dict(line[4])[HEADER_NAME][8:16] != seq
        ]

    copy = published.tampered("counts", PARTITIONS, change)
    told = published.verify_output("counts", "--set", f"outputs.counts.topic={copy}", exit_code=1)
    (difference,) = stage(told, "counts")["differences"]
    assert (difference["where"], difference["partition"], difference["equal_before"], difference["kind"]) == (copy, 1, 5, "changed")
    assert difference["found"]["value"] == difference["expected"]["value"].replace('"n":', '"m":')
    assert difference["found"]["place"].startswith(f"{copy}-1@")
    assert stage(told, "events")["differences"] == []


@pytest.mark.parametrize("renumbers", [False, True])
def test_a_deleted_result_is_found(published: Published, renumbers: bool) -> None:
    """Whoever deletes a row may leave a gap, or number the later rows anew, CTIs too."""

    def delete(lines: list[Any]) -> list[Any]:
        first = rows_of(lines, 0)[7]
        gone = decode_event_headers([dict(lines[first][4])[HEADER_NAME]])["seq"][0]
        kept = []
        for line in lines:
            octets = dict(line[4])[HEADER_NAME]
            if line[0] == 0 and is_row(line):
                fields = decode_event_headers([octets]).copy()
                if fields["seq"][0] == gone:
                    continue
                if renumbers and fields["seq"][0] > gone:
                    fields["seq"] -= 1
                    fields["offset"] -= 1
                line[4] = [(HEADER_NAME, fields.tobytes())]
            elif line[0] == 0 and renumbers:
                cti = decode_cti(octets, line[1], 0)
                if cti.n > gone:
                    cti = replace(cti, n=cti.n - 1)
                head, line[1] = encode_cti(cti)
                line[4] = [(HEADER_NAME, head)]
            kept.append(line)
        return kept

    copy = published.tampered("counts", PARTITIONS, delete)
    told = published.verify_output("counts", "--set", f"outputs.counts.topic={copy}", exit_code=1)
    (difference,) = stage(told, "counts")["differences"]
    assert (difference["partition"], difference["equal_before"], difference["kind"], difference["found"]) == (0, 7, "missing", None)
    whole = published.verify_output("counts")
    assert whole["equal"]
    assert difference["expected"]["seq"] == 7


def test_a_changed_event_of_the_ordered_topic_is_found_in_that_stage(published: Published) -> None:
    """The query's results follow from what stands there no more, and the ordered topic does not follow from its raw topic."""

    def change(lines: list[Any]) -> list[Any]:
        places = rows_of(lines, 0)
        lines[places[100]][1] = lines[places[100]][1].replace(b'"v":', b'"v":1')
        return lines

    copy = published.tampered("ordered", PARTITIONS, change)
    told = published.verify("events", "--set", f"inputs.events.ordered_topic={copy}", exit_code=1)
    (difference,) = stage(told, "events")["differences"]
    assert difference["kind"] == "changed"
    assert "value" in difference["fields"]
    assert difference["found"]["raw"] == difference["expected"]["raw"]


def test_changed_missing_and_extra_files_are_found(published: Published) -> None:
    """A byte changed in a file, a line deleted, a file deleted, and one that nobody wrote."""
    folder = published.space.folder / "counts"
    files = sorted(folder.iterdir())
    changed, shortened, deleted = files[0], files[2], files[4]
    kept = {path: path.read_bytes() for path in (changed, shortened, deleted)}
    strange = folder / "2031-01-01T00-00-00Z.p00000.ndjson"
    try:
        changed.write_bytes(kept[changed].replace(b'"n":1', b'"n":2', 1))
        shortened.write_bytes(b"".join(kept[shortened].splitlines(keepends=True)[1:]))
        deleted.unlink()
        strange.write_bytes(b"{}\n")
        told = published.verify_output("counts", exit_code=1)
    finally:
        strange.unlink()
        for path, content in kept.items():
            path.write_bytes(content)
    kinds = {difference["where"]: difference["kind"] for difference in stage(told, "counts")["differences"]}
    assert kinds == {str(changed): "changed", str(shortened): "missing", str(deleted): "missing", str(strange): "extra"}
    assert published.verify_output("counts")["equal"]


def test_a_changed_parquet_file_is_found(published: Published) -> None:
    """A Parquet file with other rows; one that was written with other options holds the same rows and is no difference."""
    path = sorted((published.space.folder / "means").iterdir())[2]
    kept, table = path.read_bytes(), pq.read_table(path)
    try:
        pq.write_table(table, path, compression="none")
        assert stage(published.verify_output("means"), "means")["published"][1]["other_bytes"] == 1
        pq.write_table(table.set_column(1, table.schema.field(1), pc.add(table.column(1), 1e-9)), path)
        told = published.verify_output("means", exit_code=1)
    finally:
        path.write_bytes(kept)
    (difference,) = stage(told, "means")["differences"]
    assert (difference["where"], difference["kind"]) == (str(path), "changed")


def test_another_query_is_refused(published: Published) -> None:
    """Whoever verifies with other settings than the job's would find differences that are none."""
    published.space.script("wrong.sql", COUNTS.replace("MIN(v)", "MAX(v)"))
    told = published.verify("counts", "--query", "counts=wrong.sql", exit_code=3)
    assert "TG-VERIFY-SETTINGS" in told["error"]


def test_a_target_and_a_query_must_be_known(published: Published) -> None:
    """A name that nothing has; an output without its script."""
    assert "TG-VERIFY-TARGET" in published.verify("nothing", exit_code=2)["error"]
    assert "TG-VERIFY-QUERY" in published.verify("counts", exit_code=2)["error"]


def test_a_part_is_verified_alone(published: Published) -> None:
    """From an instant on and up to one; of an exchange, of files in Parquet, and with OVER over several inputs."""
    played = (("counts", ()), ("means", ()), ("exchanged", ()), ("joined", ("--query", "counts=counts.sql")))
    for name, others in played if EVERY else played[1::2]:
        whole = stage(published.verify_output(name, *others), name)["published"][0]["rows"]
        later = stage(published.verify_output(name, "--since", published.middle, *others), name)["published"][0]["rows"]
        before = stage(published.verify_output(name, "--until", published.middle, *others), name)["published"][0]["rows"]
        assert 0 < later < whole
        assert later + before == whole


def test_a_sample_is_drawn_and_drawn_again(published: Published) -> None:
    """The seed tells which spans were drawn; a change in one of them is found."""
    told = published.verify_output("counts", "--sample", "2", "--seed", "7")
    assert told["equal"]
    assert [(span["since"], span["until"]) for span in told["spans"]] == [
        (span["since"], span["until"]) for span in published.verify_output("counts", "--sample", "2", "--seed", "7")["spans"]
    ]
    assert sum(stage(span, "counts")["published"][0]["rows"] for span in told["spans"]) > 0

    def change(lines: list[Any]) -> list[Any]:
        return [
            [partition, value.replace(b'"n":', b'"m":') if is_row(line) else value, *rest]
            for line in lines
            for partition, value, *rest in [line]
        ]

    copy = published.tampered("counts", PARTITIONS, change)
    assert not published.verify_output("counts", "--sample", "1", "--set", f"outputs.counts.topic={copy}", exit_code=1)["equal"]


def test_an_attestation_holds_until_what_it_was_given_for_is_changed(published: Published) -> None:
    """Signed, checked with the public key and without, of a topic and of files; then a file is changed, and the statement."""
    folder = published.space.folder
    key = make_key(folder)
    (folder / "pub.pem").write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    (folder / "other.pem").write_bytes(
        Ed25519PrivateKey.generate().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    told = published.verify_output("counts", "--sign", "key.pem")
    file = folder / "counts.attestation.json"
    attested = json.loads(file.read_text())
    # By hand, as an auditor would who has no Tidegate.
    signed = json.dumps(attested["statement"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    key.public_key().verify(base64.b64decode(attested["signature"]["value"]), f"tidegate-attestation/1\n{signed}".encode())
    assert attested["statement"]["published"][0]["sha256"] == stage(told, "counts")["published"][0]["sha256"]
    assert attested["statement"]["published"][0]["partitions"][1]["sha256"] == digest_by_hand(published, "counts", 1)

    assert published.verify("counts", "--check", file.name, "--public-key", "pub.pem")["holds"]
    assert "TG-VERIFY-SIGNATURE" in published.verify("counts", "--check", file.name, "--public-key", "other.pem", exit_code=3)["error"]
    result = sorted((folder / "counts").iterdir())[1]
    kept = result.read_bytes()
    try:
        result.write_bytes(kept + b"{}\n")
        assert not published.verify("counts", "--check", file.name, exit_code=1)["holds"]
    finally:
        result.write_bytes(kept)
    attested["statement"]["published"][0]["rows"] += 1
    (folder / "forged.json").write_text(json.dumps(attested))
    assert "TG-VERIFY-SIGNATURE" in published.verify("counts", "--check", "forged.json", exit_code=3)["error"]
    assert "TG-VERIFY-KEY" in published.verify_output("counts", "--sign", "pub.pem", exit_code=2)["error"]


def make_key(folder: Path) -> Ed25519PrivateKey:
    """Return a private key that is in ``key.pem`` too."""
    key = Ed25519PrivateKey.generate()
    (folder / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return key


def digest_by_hand(published: Published, name: str, partition: int) -> str:
    """Return the digest of a partition's rows as docs/operate/verify.md tells to compute it, one row at a time."""
    found = read_ordered(published.space.stack.bootstrap, f"{published.topic}.{name}", PARTITIONS).events[partition, partition]
    digest = hashlib.sha256()
    for event in found:
        digest.update(struct.pack("<qq", event.seq, event.system_us))
        for octets in (event.key, event.value):
            digest.update(struct.pack("<i", -1 if octets is None else len(octets)) + (octets or b""))
    return digest.hexdigest()


@pytest.fixture
def trimmed(stack: Stack, tmp_path: Path) -> Iterator[Published]:
    """An input without OVER and one query, both at their end."""
    topic = create(stack.bootstrap, fresh("trimmed"), PARTITIONS)
    tables = TABLES.format(topic=topic).replace('over = "k"', "")
    with workspace(tmp_path, stack, tables) as space:
        space.script("means.sql", MEANS)
        produce(stack.bootstrap, topic, draw(5, 8_000, PARTITIONS))
        cut = settings_of(inputs__events__max_events_per_batch=dice_of("verify, means").randrange(600, 1_600))
        space.start("ingest", "events", "--until-end", *cut).finish()
        space.start("query", "means.sql", "--into", "means").finish()
        yield Published(space, topic, "")


def delete_before(published: Published, topic: str, share: float) -> None:
    """Delete the first records of each partition of a topic, as retention does."""
    bootstrap = published.space.stack.bootstrap
    admin = Admin({"bootstrap.servers": bootstrap})
    ends = admin.ends([(topic, number) for number in range(admin.require(topic).partitions)])
    gone = [TopicPartition(topic, number, int(end * share)) for (_, number), end in ends.items()]
    client = AdminClient({"bootstrap.servers": bootstrap})
    for future in client.delete_records(gone).values():
        future.result(30)


def test_what_retention_has_deleted_is_not_vouched_for_but_what_was_attested_stands(trimmed: Published) -> None:
    """
    First everything is there; then a part of the raw topic is gone, of the ordered topic too, and all of both.

    The results stand as attested as long as they are there. Then some of these are gone too.
    """
    make_key(trimmed.space.folder)
    whole = trimmed.verify_output("means", "--sign", "key.pem")
    check = "means", "--check", "means.attestation.json"
    assert whole["equal"]
    rows = stage(whole, "means")["published"][0]["rows"]
    delete_before(trimmed, trimmed.topic, 0.3)
    told = trimmed.verify_output("means")
    assert told["equal"]
    events, means = stage(told, "events"), stage(told, "means")
    assert events["vouched_from"] > "2024"
    assert 0 < events["events"] < stage(whole, "events")["events"]
    assert means["published"][0]["rows"] == rows
    assert means["vouched_from"] > events["vouched_from"]
    delete_before(trimmed, f"{trimmed.topic}.ordered", 0.3)
    told = trimmed.verify_output("means")
    assert told["equal"]
    assert 0 < stage(told, "means")["published"][0]["rows"] < rows
    assert trimmed.verify(*check)["holds"]
    delete_before(trimmed, trimmed.topic, 1.0)
    told = trimmed.verify_output("means")
    assert told["equal"]
    assert stage(told, "events")["events"] == 0
    means = stage(told, "means")
    assert means["vouched_from"] > means["published"][0]["until"], "none of the results can be vouched for"
    delete_before(trimmed, f"{trimmed.topic}.ordered", 1.0)
    assert trimmed.verify(*check)["holds"]
    delete_before(trimmed, f"{trimmed.topic}.means", 0.3)
    error = trimmed.verify(*check, exit_code=3)["error"]
    assert "TG-RETENTION" in error
    assert "retention_time" in error


FACTS = """
[inputs.events]
topic = "{topic}"
timestamp_by = "at"
{over}
early = "1h"
late = "1s"
reorder = "500ms"
arrival = "{arrival}"
idle = "on"
idle_cadence = "200ms"
idle_margin = "100ms"
"""


@pytest.mark.parametrize(
    ("arrival", "over"),
    [("ingest", 'over = "k"'), *(pytest.param("broker", over, marks=pytest.mark.deep) for over in ("", 'over = "k"'))],
)
def test_the_facts_of_the_journal_count(stack: Stack, tmp_path: Path, arrival: str, over: str) -> None:
    """
    Level 1 under stamps and idle estimates, however the job cut its batches: silence has lifted events that came afterwards. Once the
    journal is emptied, the facts that CTIs carry give the same.
    """
    topic = create(stack.bootstrap, fresh("facts"), PARTITIONS, APPEND_TIME)
    with workspace(tmp_path, stack, FACTS.format(topic=topic, arrival=arrival, over=over)) as space:
        cut = settings_of(inputs__events__max_events_per_batch=dice_of("verify, facts").randrange(50, 500))
        job = space.start("ingest", "events", *cut)
        for number in range(3):
            now_ms = time.time_ns() // 1_000_000
            lines = draw(number, 400, PARTITIONS, start_ms=now_ms - 8_000)
            produce(stack.bootstrap, topic, lines)
            job.until(lambda number=number: job.last.get("events_in", 0) >= 400 * (number + 1), "the events")  # type: ignore[misc]
            # Silence: the frontier rises past the late tolerance, so the next events are late by an estimate.
            time.sleep(2.0)
        job.stop()
        published = Published(space, topic, "")
        # The topic has not ended: what is held, or was not yet due, may still come.
        standing = published.verify("events")
        assert standing["equal"]
        assert stage(standing, "events")["events"] > 0
        space.start("ingest", "events", "--until-end").finish()
        told = published.verify("events")
        assert told["equal"]
        assert stage(told, "events")["events"] == 1_200
        with redis.Redis.from_url(stack.redis_url) as client:
            for name in client.scan_iter(f"tidegate:*{topic}*"):
                client.delete(name)
        again = published.verify("events")
        assert again["equal"]
        assert stage(again, "events")["events"] == 1_200
        assert any("journal" in note for note in stage(again, "events")["notes"])


def test_jobs_that_go_on_were_ended_or_resumed_verify(stack: Stack, tmp_path: Path) -> None:
    """
    A query ended before its input (``--until-end``), one that is behind, and one that lost its checkpoint and went on; two outputs of one
    script; a bounded recount.
    """
    topic = create(stack.bootstrap, fresh("living"), PARTITIONS)
    raws = draw(11, 4_000, PARTITIONS, keys=KEYS)
    with workspace(tmp_path, stack, TABLES.format(topic=topic)) as space:
        published = Published(space, topic, "")
        for name, text in SCRIPTS.items():
            space.script(f"{name}.sql", text)
        space.script("two.sql", f"{SPREAD.replace('FROM', 'INTO spread FROM')}; {EXCHANGED.replace('FROM', 'INTO exchanged FROM')}")
        produce(stack.bootstrap, topic, raws[:2_000])
        ingest = space.start("ingest", "events").once_started()
        ingest.until(lambda: ingest.last.get("events_in") == 2_000, "the first half")
        ingest.stop()
        space.start("query", "means.sql", "--into", "means", "--until-end").finish()
        counts = space.start("query", "counts.sql", "--into", "counts")
        counts.until(lambda: counts.batches > 0, "results")
        counts.stop()
        assert published.verify_output("means")["equal"]
        assert published.verify_output("counts")["equal"]

        shutil.rmtree(space.folder / ".tidegate/checkpoints" / f"query-{topic}.counts")
        produce(stack.bootstrap, topic, raws[2_000:])
        space.start("ingest", "events", "--until-end").finish()
        told = published.verify_output("counts")
        assert told["equal"]
        assert stage(told, "counts")["published"][0]["ahead"] > 0, "the query has not read the second half"
        space.start("query", "counts.sql", "--into", "counts", "--start", "last-stopped").finish()
        resumed = stage(published.verify_output("counts"), "counts")
        assert resumed["published"][0]["ahead"] == 0
        assert any("last-stopped" in note for note in resumed["notes"])

        means = published.verify_output("means")
        assert means["equal"], "its end is known from the checkpoint"
        assert any("since then" in note for note in stage(means, "means")["notes"])
        shutil.rmtree(space.folder / ".tidegate/checkpoints" / f"query-{topic}.means")
        assert "TG-VERIFY-END" in published.verify_output("means", exit_code=3)["error"]

        space.start("query", "two.sql").finish()
        both = published.verify("exchanged", "--query", "two.sql")
        assert [each["rows"] > 0 for each in stage(both, "exchanged")["published"]] == [True, True]
        space.start("query", "later.sql", "--into", "later", "--until", "2024-03-01T00:01:00Z").finish()
        bounded = stage(published.verify_output("later"), "later")
        assert 0 < bounded["published"][0]["rows"] < resumed["published"][0]["rows"]
