"""The embedded stack: a real Kafka and a real Valkey that outlive their starter and are found again."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis
import typer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from support.stack.commands import run_command
from typer.testing import CliRunner

from ingest.commands.raw_topic import produce, topic
from ordering.errors import RefusedError
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.observe.console import report_errors
from tidegate.platform.redis_client import connect
from tidegate.platform.settings.tables.redis import RedisSettings
from tidegate.platform.stack import embedded
from tidegate.platform.stack.embedded import EmbeddedStack, free_port
from tidegate.platform.stack.jars import StackError

pytestmark = pytest.mark.integration

LONG_AGO_MS = 978_307_200_000  # 2001-01-01


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedStack]:
    """One stack for the tests that do not stop it for good."""
    with EmbeddedStack(tmp_path_factory.mktemp("stack"), heap="256m") as running:
        yield running


def tidegate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user does, in a process of its own."""
    return subprocess.run([sys.executable, "-m", "tidegate", *arguments], capture_output=True, text=True, check=False, timeout=120)


def is_running(pid: int) -> bool:
    """Whether a process runs. One that has ended stays listed until the system's first process has asked for its exit code."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def only_record(bootstrap: str, topic: str) -> tuple[bytes, int]:
    """Read the topic's first record: value and timestamp."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None
    assert message.error() is None
    return message.value(), message.timestamp()[1]


def write_one(bootstrap: str, topic: str) -> None:
    """Make the topic and write one record with a timestamp of long ago."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"kept", timestamp=LONG_AGO_MS)
    assert producer.flush(20) == 0


def test_kafka_keeps_records_of_long_ago_over_a_restart_on_the_same_port(stack: EmbeddedStack) -> None:
    """Replays write old timestamps: neither retention nor a restart may lose them, and clients must find the port again."""
    write_one(stack.bootstrap, "old")
    bootstrap = stack.bootstrap
    stack.stop_kafka()
    assert stack.kafka_pid is None
    assert not stack.status().healthy
    stack.start_kafka()
    assert stack.bootstrap == bootstrap
    assert only_record(bootstrap, "old") == (b"kept", LONG_AGO_MS)


def test_the_broker_is_configured_for_ordered_topics(stack: EmbeddedStack) -> None:
    """No topic is made by accident and none is deleted for the age of its records."""
    broker = ConfigResource(ResourceType.BROKER, "1")
    admin = AdminClient({"bootstrap.servers": stack.bootstrap})
    settings = admin.describe_configs([broker])[broker].result(20)
    wanted = {"auto.create.topics.enable": "false", "log.retention.ms": "-1", "group.initial.rebalance.delay.ms": "0"}
    assert {name: settings[name].value for name in wanted} == wanted


def test_valkey_has_a_write_on_disk_before_it_answers_and_keeps_it_through_a_kill(stack: EmbeddedStack) -> None:
    """The journal's facts survive a power cut: WAITAOF answers 1, and a killed server comes back with them."""
    client = redis.Redis.from_url(stack.redis_url)
    client.set("fact", "kept")
    assert client.execute_command("WAITAOF", 1, 0, 2000)[0] == 1
    stack.stop_redis(grace_s=0)
    assert stack.redis_pid is None
    stack.start_redis()
    assert redis.Redis.from_url(stack.redis_url).get("fact") == b"kept"


def test_a_second_start_finds_the_first(stack: EmbeddedStack) -> None:
    """Whoever starts the same folder again gets the same servers, and leaving does not stop them."""
    with EmbeddedStack(stack.directory) as second:
        assert (second.kafka_pid, second.redis_pid) == (stack.kafka_pid, stack.redis_pid)
        assert (second.bootstrap, second.redis_url) == (stack.bootstrap, stack.redis_url)
    assert stack.status().healthy
    found = EmbeddedStack.find(stack.directory)
    assert found is not None
    assert found.bootstrap == stack.bootstrap


def test_a_running_server_is_not_moved_to_another_port(stack: EmbeddedStack) -> None:
    """Asking for other ports than the running ones is refused; nothing is stopped for it."""
    with pytest.raises(RefusedError) as refused:
        EmbeddedStack(stack.directory, kafka_port=1).start()
    assert refused.value.code == "TG-STACK-MOVE"
    assert stack.status().healthy


def test_the_command_line_shows_the_running_stack(stack: EmbeddedStack) -> None:
    """``tidegate up`` and ``tidegate status`` from other processes tell the same addresses and pids."""
    shown = [json.loads(tidegate(command, "--dir", str(stack.directory), "--format", "json").stdout) for command in ("up", "status")]
    for answer in shown:
        assert answer["healthy"]
        kafka, valkey = answer["services"]
        assert (kafka["address"], kafka["pid"]) == (stack.bootstrap, stack.kafka_pid)
        assert (valkey["address"], valkey["pid"]) == (stack.redis_url, stack.redis_pid)


def test_addresses_are_printed_alone_for_other_programs(stack: EmbeddedStack) -> None:
    """As in ``kafkacat -b $(tidegate up --print bootstrap)``."""
    printed = [tidegate("up", "--dir", str(stack.directory), "--print", name).stdout for name in ("bootstrap", "redis")]
    assert printed == [f"{stack.bootstrap}\n", f"{stack.redis_url}\n"]


def test_a_topic_is_created_once_and_lines_are_produced_to_it(
    stack: EmbeddedStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new user needs no other program: the topic, then records with keys and with timestamps of the past."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDEGATE_KAFKA__BOOTSTRAP", stack.bootstrap)
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command("topic")(report_errors(topic))
    app.command("produce")(report_errors(produce))

    def run(*arguments: str, exit_code: int = 0) -> str:
        result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == exit_code, result.output
        return result.output

    Path("rides.ndjson").write_text('{"at": 978307200.5, "car": "a"}\n\n{"at": 978307201, "car": "b"}\nnot JSON\n')
    assert "TG-TOPIC-MISSING" in run("produce", "rides.ndjson", "rides", exit_code=3)
    made = run("topic", "create", "rides", "--partitions", "3", "--timestamp-type", "create")
    assert made.startswith("created rides (partitions: 3; CreateTime: producers stamp records, as history needs it; silence moves no time")
    assert run("topic", "create", "rides", "--partitions", "3").startswith("there already: rides (partitions: 3; CreateTime")
    assert "TG-TOPIC-PARTITIONS" in run("topic", "create", "rides", "--partitions", "3", "--timestamp-type", "append", exit_code=3)
    for name in ("a b", "", "..", "x" * 250, "a\0"):
        assert "allowed: a Kafka topic name: letters, digits" in run("topic", "create", name, exit_code=2)
        assert "TG-TOPIC-NAME" in run("produce", "rides.ndjson", name, exit_code=2)
    assert "TG-TOPIC-PARTITIONS" in run("topic", "create", "rides", "--partitions", "2", exit_code=3)
    printed = run("produce", "rides.ndjson", "rides", "--key", "car", "--timestamp-by", "at")
    assert printed.splitlines() == [
        "produced 3 records to rides",
        "without a valid at: 1, which bear the timestamp of the record before",
        "without car: 1, which have no key",
    ]
    assert run("produce", "--sample", "rides").startswith(("produced 1,7", "produced 1,800"))
    again = run("produce", "--sample", "rides", "--format", "json")
    assert json.loads(again)["records"] < 100, "it goes on where the first one ended"
    made = run("topic", "create", "stamped", "--partitions", "2")
    assert made.startswith(
        "created stamped (partitions: 2; LogAppendTime: the broker stamps records, so that silence moves time; for history"
    )
    refused = run("produce", "rides.ndjson", "stamped", "--timestamp-by", "at", exit_code=3)
    assert "TG-PRODUCE-STAMPS" in refused
    fix = refused.partition("example: ")[2].strip()
    assert fix == "tidegate topic create stamped-history --partitions 2 --timestamp-type create"
    run(*fix.split()[1:])
    assert run("produce", "rides.ndjson", "stamped-history", "--timestamp-by", "at").startswith("produced 3 records")
    assert run("produce", "rides.ndjson", "stamped") == "produced 3 records to stamped\n"
    assert run("produce", "--sample", "stamped", "--for", "3s") == "produced 2 records to stamped\n"
    consumer = Consumer({"bootstrap.servers": stack.bootstrap, "group.id": "test", "auto.offset.reset": "earliest"})
    consumer.subscribe(["rides"])
    found = {}
    while len(found) < 3:
        message = consumer.poll(20)
        assert message is not None
        if message.timestamp()[1] < LONG_AGO_MS + 10_000:
            found[message.value()] = (message.key(), message.timestamp()[1])
    consumer.close()
    assert found == {
        b'{"at": 978307200.5, "car": "a"}': (b"a", LONG_AGO_MS + 500),
        b'{"at": 978307201, "car": "b"}': (b"b", LONG_AGO_MS + 1_000),
        b"not JSON": (None, LONG_AGO_MS + 1_000),
    }
    admin = Admin({"bootstrap.servers": stack.bootstrap})
    stamped = [admin.find(name) for name in ("rides", "stamped")]
    assert [found is not None and found.uses_log_append_time for found in stamped] == [False, True]


def test_up_outlives_its_process_and_down_with_wipe_leaves_nothing(tmp_path: Path) -> None:
    """The servers run on after ``tidegate up`` ended, on the ports given; ``down --wipe`` stops them and deletes their files."""
    folder = str(tmp_path / "stack")
    kafka_port = free_port()
    redis_port = free_port({kafka_port})
    started = tidegate("up", "--dir", folder, "--kafka-port", str(kafka_port), "--redis-port", str(redis_port), "--heap", "256m")
    assert started.returncode == 0, started.stderr
    stack = EmbeddedStack.find(tmp_path / "stack")
    assert stack is not None
    assert stack.bootstrap == f"127.0.0.1:{kafka_port}"
    assert stack.redis_address == f"redis://127.0.0.1:{redis_port}/0"
    # On request alone the password is printed.
    assert tidegate("up", "--dir", folder, "--print", "redis").stdout == f"{stack.redis_url}\n"
    assert stack.redis_password
    assert stack.redis_password not in tidegate("up", "--dir", folder).stdout + started.stdout + started.stderr
    assert redis.Redis.from_url(stack.redis_url).ping()
    assert AdminClient({"bootstrap.servers": stack.bootstrap}).describe_cluster().result(20).cluster_id == stack.id
    pids = [stack.kafka_pid, stack.redis_pid]
    stopped = tidegate("down", "--dir", folder, "--wipe", "--format", "json")
    assert json.loads(stopped.stdout)["stopped"] == ["kafka", "redis"]
    assert not any(is_running(pid) for pid in pids if pid)
    assert not Path(folder).exists()
    assert tidegate("status", "--dir", folder).returncode == 1


def test_up_takes_the_usual_ports_if_they_are_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples that say localhost:9092 then work; where somebody listens there, another port is taken. Other stacks never take them."""
    taken = free_port()
    monkeypatch.setattr(embedded, "_USUAL_PORTS", {"kafka": taken})
    chosen, other = EmbeddedStack(tmp_path / "usual", usual_ports=True), EmbeddedStack(tmp_path / "other")
    for stack_folder in (chosen.directory, other.directory):
        stack_folder.mkdir()
    assert chosen._choose_port("kafka", keep_port=False) == taken
    assert other._choose_port("kafka", keep_port=False) != taken
    with socket.create_server(("127.0.0.1", taken)):
        assert chosen._choose_port("kafka", keep_port=False) != taken


def test_a_pid_that_belongs_to_somebody_else_is_left_alone(tmp_path: Path) -> None:
    """A stale stack.json may name a pid that another program has by now: it is neither believed nor signalled."""
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started_s = psutil.Process(bystander.pid).create_time()
    server = {"pid": bystander.pid, "started_s": started_s, "marker": str(tmp_path / "kafka" / "server.properties")}
    (tmp_path / "stack.json").write_text(json.dumps({"kafka": server, "redis": server, "kafka_port": 20_001, "redis_port": 20_002}))
    assert EmbeddedStack.find(tmp_path) is None
    EmbeddedStack(tmp_path).stop()
    assert bystander.poll() is None
    bystander.communicate(b"\n", timeout=20)
    assert bystander.returncode == 0


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    """A given port that another program holds is an error with the port in it, before anything starts."""
    with socket.create_server(("127.0.0.1", 0)) as holder, pytest.raises(StackError) as refused:
        EmbeddedStack(tmp_path, kafka_port=holder.getsockname()[1]).start()
    assert refused.value.code == "TG-STACK-PORT"
    assert str(refused.value.where).startswith("127.0.0.1:")
    assert EmbeddedStack.find(tmp_path) is None


def test_a_server_that_cannot_start_is_told_with_its_last_words(tmp_path: Path) -> None:
    """A heap that Java does not understand ends the start at once, says so, and leaves nothing running."""
    with pytest.raises(StackError) as failed:
        EmbeddedStack(tmp_path, heap="1x").start()
    assert failed.value.code == "TG-STACK-START"
    assert "Invalid maximum heap size" in failed.value.what
    assert not any(service.pid for service in EmbeddedStack(tmp_path).status().services)


def test_a_java_that_is_too_old_or_missing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what was found and what is needed."""
    java = tmp_path / "home" / "bin" / "java"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    with pytest.raises(StackError, match="no Java was found"):
        EmbeddedStack(tmp_path / "stack").start()
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    with pytest.raises(StackError, match="is Java 11, which is too old") as refused:
        EmbeddedStack(tmp_path / "stack").start()
    assert refused.value.code == "TG-STACK-JAVA"


def test_the_stack_folder_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``TIDEGATE_STACK_DIR`` names the folder for all three commands."""
    monkeypatch.setenv("TIDEGATE_STACK_DIR", str(tmp_path / "elsewhere"))
    answer = json.loads(tidegate("status", "--format", "json").stdout)
    assert answer["directory"] == os.fspath(tmp_path / "elsewhere")
    assert not answer["healthy"]


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedStack]:
    """A Valkey as ``tidegate up`` starts it."""
    stack = EmbeddedStack(tmp_path_factory.mktemp("folder") / ".tidegate" / "stack", with_password=True)
    stack.directory.mkdir(mode=0o700, parents=True)
    # Without its Kafka, which takes seconds and has no part in this.
    stack._update({"kafka_port": free_port()})
    stack.start_redis()
    yield stack
    stack.stop()


def test_only_who_reads_the_folder_gets_into_its_valkey(locked: EmbeddedStack) -> None:
    """The password is made for the folder, stands in a file of its user alone, and survives a restart; no configuration shows it."""
    assert len(locked.redis_password) >= 32
    assert redis.Redis.from_url(locked.redis_url).ping()
    with pytest.raises(redis.AuthenticationError):
        redis.Redis.from_url(locked.redis_address).ping()
    file = locked.directory / "stack.json"
    assert file.stat().st_mode & 0o077 == 0
    assert locked.redis_password not in (locked.directory / "redis" / "redis.conf").read_text()
    assert locked.redis_password not in json.dumps(locked.status().as_dict())
    before = locked.redis_password
    locked.stop_redis()
    locked.start_redis()
    assert locked.redis_password == before


def test_commands_of_the_folder_use_its_password_and_others_are_refused(locked: EmbeddedStack, tmp_path: Path) -> None:
    """Also where tidegate.toml names the server without a password; ``config`` does not show it."""
    home = locked.directory.parents[1]
    tables = "[inputs.a]\n"
    named = f'{tables}[redis]\nurl = "redis://localhost:{redis_port(locked)}/0"\n'
    for folder, text, works in ((home, tables, True), (home, named, True), (tmp_path, named, False)):
        (folder / "tidegate.toml").write_text(text)
        shown = run_in(folder, "status", "a", "--format", "json")
        assert ("TG-REDIS-AUTH" not in shown.stderr) is works, shown.stderr
        assert locked.redis_password not in run_in(folder, "config").stdout + shown.stdout + shown.stderr
    output = f'[outputs.o]\ntopic = "o"\n[outputs.o.redis]\nkind = "stream"\nurl = "redis://127.0.0.1:{redis_port(locked)}/1"\n'
    (home / "output.toml").write_text(output)
    told = json.loads(run_in(home, "config", "--config", "output.toml", "--format", "json").stdout)
    assert told["outputs.o.redis.password"] == {"value": "***", "origin": "embedded stack"}
    printed = run_in(tmp_path, "status", "a", TIDEGATE_REDIS__URL=locked.redis_url)
    assert "TG-REDIS-AUTH" not in printed.stderr


def test_a_server_that_nobody_has_named_is_told(locked: EmbeddedStack, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever listens at the usual port may be another folder's: one warning in a process; none for a server with a name."""
    address = f"redis://:{locked.redis_password}@localhost:{redis_port(locked)}/0"
    named = RedisSettings.model_validate({"url": address})
    unnamed = RedisSettings.model_construct(_fields_set=set(), **{name: getattr(named, name) for name in RedisSettings.model_fields})
    said: list[str] = []
    for settings, warnings in ((named, 0), (unnamed, 1), (unnamed, 1)):
        connect(settings).close()
        said = [record.getMessage() for record in caplog.records if "no stack of this folder is up" in record.getMessage()]
        assert len(said) == warnings
    assert "redis.url is not set" in said[0]
    assert locked.redis_password not in said[0]


def redis_port(stack: EmbeddedStack) -> int:
    """The port of its Valkey."""
    return int(stack.redis_address.rpartition(":")[2].partition("/")[0])


def run_in(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, without what this process's environment names."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")} | environment
    return run_command(folder, *arguments, environment=own)
