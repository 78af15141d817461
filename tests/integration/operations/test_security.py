"""Behind locks: jobs run with exactly the rights listed, name the one that is missing, and leave no secret anywhere."""

from __future__ import annotations

import base64
import contextlib
import datetime
import json
import os
import shutil
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer
from support.certificates import Authority
from support.journals import close, estimate
from support.stack.commands import run_command
from support.stack.jobs import Job, Workspace, error_code, workspace
from support.stack.locked_stack import Locked, start_locked, stop_locked
from support.stack.topics import ANY_TIME, fresh
from support.tls_proxy import TlsFront

from ingest import job as ingest_job
from ingest.journal.redis_journal import RedisJournal
from ordering.errors import RefusedError, TidegateError
from ordering.protocol.journal import JournalKey
from query import job as query_job
from query.script_plans import read_plans
from tidegate.basics.access_rights import Right, ingest_rights, query_rights, topic_rights
from tidegate.platform.kafka import ranges, writer
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.kafka.ranges import RangeReader
from tidegate.platform.kafka.writer import GaplessProducer
from tidegate.platform.redis_client import connect
from tidegate.platform.settings.load import Settings, load
from tidegate.platform.settings.tables.redis import RedisSettings
from tidegate.platform.stack.embedded import free_port
from tidegate.platform.stack.security import SUPER_USER

pytestmark = pytest.mark.integration

EVENTS = 600
TABLES = """
[inputs.events]
topic = "{topic}"
timestamp_by = "at"

[outputs.counts]
topic = "{topic}.counts"

[redis]
username = "tidegate"
password = "file:{folder}/redis-password"
ca_file = "{folder}/authority.pem"
certificate_file = "{folder}/journal.certificate.pem"
key_file = "{folder}/journal.key.pem"
key_password = "env:REDIS_KEY_PASSWORD"

[spark.conf]
"spark.hadoop.fs.s3a.secret.key" = "env:OBJECT_STORE_KEY"

[logging]
level = "debug"

[kafka.client]
"ssl.ca.location" = "{folder}/authority.pem"
"sasl.oauthbearer.client.secret" = "env:OAUTH_SECRET"
"""
BY_PASSWORD = """
"security.protocol" = "SASL_SSL"
"sasl.mechanism" = "SCRAM-SHA-512"
"sasl.username" = "ingest"
"""
BY_CERTIFICATE = """
"security.protocol" = "SSL"
"ssl.certificate.location" = "{folder}/query.certificate.pem"
"ssl.key.pem" = "file:{folder}/query.key.pem"
"ssl.key.password" = "env:QUERY_KEY_PASSWORD"
"""
SCRIPT = "SELECT COUNT(*) AS n FROM events TIMESTAMP BY at GROUP BY TumblingWindow(second, 10)"


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    """One stack behind locks for all tests here."""
    running = start_locked(tmp_path_factory.mktemp("locked"))
    try:
        yield running
    finally:
        stop_locked(running)


def make_raw(locked: Locked, topic: str, partitions: int = 2) -> str:
    """Make a raw topic; return its name."""
    locked.admin().create(topic, partitions, ANY_TIME)
    return topic


def produce_events(locked: Locked, topic: str, first: int, count: int) -> None:
    """Write *count* events, ten a second of event time, to two partitions."""
    producer = Producer(dict(locked.properties(SUPER_USER)))
    start = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    for number in range(first, first + count):
        at = start + datetime.timedelta(milliseconds=100 * number)
        value = json.dumps({"at": at.isoformat(), "k": number % 7})
        producer.produce(topic, value, partition=number % 2, timestamp=int(at.timestamp() * 1000))
    assert producer.flush(30) == 0


def secrets_of(locked: Locked) -> dict[str, str]:
    """Return the environment that gives the jobs their secrets, but for those in files."""
    return {
        "TIDEGATE_KAFKA__CLIENT__SASL_PASSWORD": locked.secrets["ingest"],
        "REDIS_KEY_PASSWORD": locked.secrets["redis-key"],
        "OBJECT_STORE_KEY": locked.secrets["spark"],
        "OAUTH_SECRET": locked.secrets["oauth"],
        "QUERY_KEY_PASSWORD": locked.secrets["key"],
    }


@contextlib.contextmanager
def locked_workspace(folder: Path, locked: Locked, topic: str) -> Iterator[Workspace]:
    """Give a folder with the settings of both stages; the files with secrets stand elsewhere."""
    tables = TABLES.format(topic=topic, folder=locked.folder)
    with workspace(folder, locked, tables + BY_PASSWORD) as space:
        text = (folder / "tidegate.toml").read_text()
        space.script("query.toml", text.replace(BY_PASSWORD, BY_CERTIFICATE.format(folder=locked.folder)))
        space.script("counts.sql", SCRIPT)
        yield space


# ----- what a secret may look like, and where it might be left


def disguises(secret: str) -> Iterable[bytes]:
    """Return the forms in which a secret may be left: plain, quoted for a URL, in hexadecimal, base64 at any place, UTF-16."""
    plain = secret.encode()
    yield plain
    yield urllib.parse.quote_plus(secret).encode()
    yield plain.hex().encode()
    yield secret.encode("utf-16-le")
    for shift in range(3):
        # Four characters at either end depend on what stands beside it.
        yield base64.b64encode(b"-" * shift + plain)[4:-4]


def leaks(secrets: Iterable[str], left: Iterable[tuple[str, bytes]]) -> list[str]:
    """Return the places where one of *secrets* was left."""
    forms = [form for secret in secrets for form in disguises(secret)]
    # Most files were seen many times.
    contents = {octets: place for place, octets in left}
    return [place for octets, place in contents.items() if any(form in octets for form in forms)]


def files_below(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield every file with what it holds; one that vanishes meanwhile holds nothing."""
    # Unlike Path.rglob, os.walk passes over folders that vanish while it walks.
    for place, _, names in os.walk(folder):
        for path in (Path(place, name) for name in names):
            with contextlib.suppress(OSError):
                if path.is_file():
                    yield str(path), path.read_bytes()


def processes_of(job: Job) -> Iterator[tuple[str, bytes]]:
    """Yield the command line of driver, JVM and workers, which every user of the machine can read."""
    driver = psutil.Process(job.pid)
    for process in [driver, *driver.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            yield f"command line of {process.name()}", "\0".join(process.cmdline()).encode()


def test_jobs_run_with_exactly_the_rights_listed_and_leave_no_secret(locked: Locked, tmp_path: Path) -> None:
    """SCRAM and client certificates, ingest and query; a right that goes ends the job; then everything they left is searched."""
    topic = make_raw(locked, fresh("locked"))
    produce_events(locked, topic, 0, EVENTS)
    ordered, dead = f"{topic}.ordered", f"{topic}.ordered.dead"
    may_ingest = ingest_rights([topic], ordered, dead)
    locked.allow("ingest", may_ingest)
    locked.allow("query", query_rights([ordered], [f"{topic}.counts"], f"{topic}.counts.dead"))
    scratch = Path(tempfile.mkdtemp(prefix="tidegate-test-"))  # a short path: sockets are made below
    port = free_port()
    environment = {**secrets_of(locked), "TMPDIR": str(scratch), "SPARK_LOCAL_DIRS": str(scratch), "TIDEGATE_METRICS__PORT": str(port)}
    left: list[tuple[str, bytes]] = []
    with locked_workspace(tmp_path / "space", locked, topic) as space:
        ingest = space.start_alone("ingest", "events", **environment)
        ingest.until(lambda: ingest.last.get("released", 0) >= EVENTS - 2, "all events are ordered")
        left += processes_of(ingest)
        left.append(("metrics", urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read()))
        environment |= {
            "TIDEGATE_KAFKA__BOOTSTRAP": locked.stack.tls_bootstrap,
            "TIDEGATE_METRICS__PORT": "0",
            "TIDEGATE_KAFKA__NATIVE": "off",
        }
        del environment["TIDEGATE_KAFKA__CLIENT__SASL_PASSWORD"]
        query = space.start_alone("query", "counts.sql", "--into", "counts", "--until-end", "--config", "query.toml", **environment)
        while query.running:
            left += processes_of(query)
            left += files_below(scratch)
            time.sleep(1)
        assert query.finish()["results"] == EVENTS // 100 + 1  # the first event ends a window of its own
        locked.allow("ingest", [right for right in may_ingest if right != Right("Write", ordered)])
        produce_events(locked, topic, EVENTS, EVENTS)
        assert error_code(ingest) == "TG-KAFKA-DENIED"
        assert ingest.wait() == 3
        assert f"operation Write on topic {ordered}" in ingest.errors
        left += [(f"printed by {name}", json.dumps(job.lines).encode()) for name, job in (("ingest", ingest), ("query", query))]
        watching = {"TIDEGATE_REDIS__URL": locked.redis_url, "TIDEGATE_REDIS__USERNAME": "watcher"}
        watching["TIDEGATE_REDIS__PASSWORD"] = locked.secrets["watcher"]
        for arguments in (("config", "--format", "toml"), ("config", "--format", "json"), ("status", "--format", "json")):
            told = run_command(space.folder, *arguments, environment=os.environ | secrets_of(locked) | watching)
            left.append((f"printed by {arguments}", (told.stdout + told.stderr).encode()))
            assert topic in told.stdout, told
    left += [*files_below(scratch), *files_below(tmp_path), *files_below(locked.stack.directory)]
    shutil.rmtree(scratch)
    assert {Path(place).name for place, _ in left} >= {"spark.log", "failure.log", "settings.json", "metadata", "kafka.log"}
    key = (locked.folder / "query.key.pem").read_text().splitlines()[1]
    assert leaks([*locked.secrets.values(), key], left) == []
    assert leaks([topic], left), "the search finds what is there"
    for folder in (tmp_path / "space/.tidegate/checkpoints").iterdir():
        assert folder.stat().st_mode & 0o777 == 0o700


# ----- rights


def settings_here(folder: Path, locked: Locked, topic: str) -> Settings:
    """Return the settings of a job of the user ingest, for what is called in this process."""
    folder.mkdir(exist_ok=True)
    text = TABLES.format(topic=topic, folder=locked.folder) + BY_PASSWORD
    (folder / "tidegate.toml").write_text(text + f'[spark]\ncheckpoint_dir = "{folder}"\nshuffle_partitions = 2\n')
    addresses = {"TIDEGATE_KAFKA__BOOTSTRAP": locked.bootstrap, "TIDEGATE_REDIS__URL": locked.redis_url}
    given = {**secrets_of(locked), **addresses}
    return load(folder / "tidegate.toml", env=given)


def denied(attempt: Callable[[], Any]) -> RefusedError:
    """Return the refusal that *attempt* ends with."""
    with pytest.raises(RefusedError) as refusal:
        attempt()
    assert refusal.value.code == "TG-KAFKA-DENIED", refusal.value
    return refusal.value


def check_named(refusal: RefusedError, missing: Right) -> None:
    """The error names topic and operation, and shows the command that allows it."""
    # Without Read and Write a topic cannot even be described, which is asked for first.
    named = {
        operation for operation in (missing.operation, "Describe") if f"operation {operation} on topic {missing.topic}" in str(refusal)
    }
    assert named, f"{missing} is not named by {refusal}"
    assert f"--allow-principal User:ingest --operation {named.pop()} --topic {missing.topic}" in refusal.example
    assert refusal.where == missing.topic


def test_ingest_names_each_right_that_is_missing(locked: Locked, tmp_path: Path) -> None:
    """One right less than listed, each in turn: it refuses before anything is read or written."""
    raw = make_raw(locked, fresh("raw"))
    for number in range(len(ingest_rights([raw], "", ""))):
        settings = settings_here(tmp_path / str(number), locked, raw)
        chosen = settings.input("events").model_copy(update={"ordered_topic": fresh("ordered"), "dead_letter_topic": fresh("dead")})
        settings = settings.model_copy(update={"inputs": {"events": chosen}})
        listed = ingest_rights([raw], chosen.ordered_topic, chosen.dead_letter_topic)
        missing = listed[number]
        locked.allow("ingest", set(listed) - {missing})
        check_named(denied(lambda settings=settings: ingest_job.prepare(settings, "events", False)), missing)
        locked.allow("ingest", listed)
    ingest_job.prepare(settings, "events", False)


def test_a_query_names_each_right_that_is_missing(locked: Locked, tmp_path: Path) -> None:
    """As for ingest."""
    raw = fresh("read")
    ordered = f"{raw}.ordered"
    locked.admin().ensure_ordered_topic(ordered, 1, None, 1_000_000)
    script = tmp_path / "counts.sql"
    script.write_text(SCRIPT)
    for number in range(len(query_rights([""], ["-"], ""))):
        settings = settings_here(tmp_path / str(number), locked, raw)
        result = fresh("result")
        settings = settings.model_copy(update={"outputs": {"counts": settings.output("counts").model_copy(update={"topic": result})}})
        listed = query_rights([ordered], [result], f"{result}.dead")
        missing = listed[number]
        locked.allow("ingest", set(listed) - {missing})
        plans = read_plans(settings, script, "counts")
        check_named(denied(lambda settings=settings, plans=plans: query_job.prepare(settings, plans)), missing)


def test_redis_names_what_it_denies(locked: Locked, tmp_path: Path) -> None:
    """A command less, or other keys: refused with the list of what is needed."""
    settings = settings_here(tmp_path, locked, "any").redis

    def use() -> None:
        journal, key = RedisJournal.open(settings), JournalKey(fresh("job"), "id", 0)
        estimate(journal, key, 0, 1)
        close(journal, key, 1)

    use()
    try:
        for command in ("ping", "info", "waitaof", "eval", "hset", "zadd"):
            locked.allow_redis(command)
            with pytest.raises(RefusedError) as refusal:
                use()
            assert refusal.value.code == "TG-REDIS-DENIED", command
            assert "+waitaof" in refusal.value.example
        locked.allow_redis(keys="others:*")
        with pytest.raises(RefusedError) as refusal:
            use()
        assert refusal.value.code == "TG-REDIS-DENIED"
    finally:
        locked.allow_redis()


# ----- while running, in this process


@pytest.mark.parametrize("native", ["auto", "off"])
def test_what_waits_in_vain_says_so(locked: Locked, monkeypatch: pytest.MonkeyPatch, native: str) -> None:
    """A reader and a writer whose right or password is gone: an error by name instead of waiting for ever."""
    monkeypatch.setenv("TIDEGATE_KAFKA__NATIVE", native)
    monkeypatch.setattr(ranges, "_WARN_AFTER_S", 0.5)
    monkeypatch.setattr(writer, "_WARN_AFTER_S", 0.5)
    topic = make_raw(locked, fresh("vain"))
    produce_events(locked, topic, 0, 10)
    mine = locked.properties("ingest")
    wrong = {**mine, "sasl.password": "canary-wrong"}

    def read(properties: dict[str, str]) -> int:
        reader = RangeReader(properties, topic, 0)
        try:
            return sum(len(records) for records in reader.read(0, 5))
        finally:
            reader.close()

    def write(properties: dict[str, str]) -> None:
        producer = GaplessProducer(properties)
        try:
            producer.send_plain(topic, b"{}", None, [])
            producer.flush(topic)
        finally:
            producer.discard()

    for rights_given, attempt, operation in (
        ((), read, "Describe"),
        (("Describe",), read, "Read"),
        ((), write, "Describe"),
        (("Describe",), write, "Write"),
        (("Read",), write, "Write"),
    ):
        locked.allow("ingest", topic_rights(topic, *rights_given))
        check_named(denied(lambda attempt=attempt: attempt(mine)), Right(operation, topic))
    locked.allow("ingest", topic_rights(topic, "Read", "Write"))
    assert read(mine) == 5
    write(mine)
    for attempt in (read, write):
        with pytest.raises(TidegateError) as refusal:
            attempt(wrong)
        assert refusal.value.code == "TG-KAFKA-AUTH"


# ----- passwords and certificates that are not accepted


def test_wrong_passwords_end_a_start_at_once(locked: Locked, tmp_path: Path) -> None:
    """Of Kafka and of Redis, each as the user sees it: the code, exit code 4, in time, and no password."""
    topic = make_raw(locked, fresh("wrong"))
    with locked_workspace(tmp_path, locked, topic) as space:
        wrong = {"TIDEGATE_KAFKA__CLIENT__SASL_PASSWORD": "canary-wrong"}
        jobs = {
            "TG-KAFKA-AUTH": space.start("ingest", "events", **{**secrets_of(locked), **wrong}),
            "TG-REDIS-AUTH": space.start(
                "ingest",
                "events",
                **secrets_of(locked),
                TIDEGATE_REDIS__PASSWORD="canary-wrong",
                TIDEGATE_SPARK__CHECKPOINT_DIR="beside",  # both start at once
            ),
        }
        for code, job in jobs.items():
            assert error_code(job) == code
            assert job.wait() == 4
            assert "canary" not in job.errors


def test_certificates_that_are_not_accepted_are_told_with_the_reason(locked: Locked, tmp_path: Path) -> None:
    """An authority nobody knows, another host, a certificate too old, none at all: at once, at Kafka and at Redis."""
    stranger = Authority(tmp_path, "stranger")
    old = locked.authority.issue("old", valid=-datetime.timedelta(hours=1))
    front = TlsFront(locked.front.port, old, locked.authority.ca_file)
    known = locked.properties("ingest")
    ssl_only = {"bootstrap.servers": locked.stack.tls_bootstrap, "security.protocol": "SSL", "ssl.ca.location": known["ssl.ca.location"]}
    shown = {"ssl.certificate.location": str(old.certificate_file), "ssl.key.location": str(old.key_file)}
    cases = {
        "unable to get local issuer": {**known, "ssl.ca.location": str(stranger.ca_file)},
        "not valid for 'localhost'": {**known, "bootstrap.servers": known["bootstrap.servers"].replace("127.0.0.1", "localhost")},
        "has expired": {**known, "bootstrap.servers": f"127.0.0.1:{front.port}"},
        "alert": ssl_only,
        "alert ": {**ssl_only, **shown},
    }
    began_s = time.monotonic()
    try:
        for words, properties in cases.items():
            with pytest.raises(TidegateError) as refusal:
                Admin(properties, 8).check_reachable()
            assert refusal.value.code == "TG-KAFKA-TLS", refusal.value
            assert words in refusal.value.what
        assert time.monotonic() - began_s < 3 * len(cases)
        settings = settings_here(tmp_path / "here", locked, "any").redis
        for words, changed in {
            "self-signed|unable to get local issuer": {"ca_file": str(stranger.ca_file)},
            "mismatch": {"url": locked.redis_url.replace("127.0.0.1", "localhost")},
            "expired": {"url": f"rediss://127.0.0.1:{front.port}/0"},
        }.items():
            with pytest.raises(TidegateError) as refusal:
                connect(RedisSettings.model_validate({**_given(settings), **changed}))
            assert refusal.value.code == "TG-REDIS-TLS", refusal.value
            assert any(word in refusal.value.what for word in words.split("|")), refusal.value
        # That a server wants a certificate it may say by hanging up, and nothing else.
        without = {"certificate_file": None, "key_file": None, "key_password": None, "connect_timeout": "1s"}
        with pytest.raises(TidegateError) as refusal:
            connect(RedisSettings.model_validate({**_given(settings), **without}))
        assert "certificate_file" in refusal.value.fix
    finally:
        front.close()


def _given(settings: RedisSettings) -> dict[str, Any]:
    names = ("username", "password", "ca_file", "certificate_file", "key_file", "key_password")
    return {"url": settings.connection_url(), "connect_timeout": "4s", **{name: getattr(settings, name) for name in names}}
