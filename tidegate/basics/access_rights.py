"""
The least rights of each job at the brokers and in Redis, and the commands that grant them.

Law: with these rights and no others a job runs to its end; tests/integration/operations/test_security.py runs each job with exactly these,
and docs/operate/security.md shows them. A denial is reported with the command that grants the right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

REDIS_KEYS = "tidegate:*"
_CONNECTING = ("select", "ping", "client|setname", "client|setinfo")
_JOURNAL = (
    # For the check that the server does not lose facts; CONFIG is used only if WAITAOF is unknown.
    "info", "waitaof", "config|get",
    "eval", "exists", "del",
    "hget", "hset", "hsetnx", "hmget", "hincrby", "hdel",
    "zadd", "zrem", "zrangebylex", "zrevrangebylex",
)  # fmt: skip
# HGETALL finds what sinks that have ended left.
_PROGRESS = ("get", "hset", "hgetall")
_WATCHING = ("hgetall", "scan", "set")

# The Redis commands of a job, those of its scripts included.
REDIS_COMMANDS = tuple(sorted({*_CONNECTING, *_JOURNAL, *_PROGRESS}))

# The Redis commands of `tidegate status` and `tidegate watermarks`.
REDIS_WATCHING = tuple(sorted({*_CONNECTING, *_WATCHING}))


class Right(NamedTuple):
    """One right at the brokers: an operation on a topic."""

    operation: str
    topic: str


def ingest_rights(read: Iterable[str], ordered: str, *letters: str) -> tuple[Right, ...]:
    """
    Return the rights of ``tidegate ingest``. Read and Write include Describe; Create is needed only to make a topic.

    Args:
        read: The raw topics, and the ordered topic whose CTIs are imported, if any.
        ordered: The topic that is written; read at a start without checkpoint.
        letters: The topic for records that cannot be used, and perhaps another for events that policies drop.
    """
    return (
        *(right for topic in read for right in topic_rights(topic, "Read", "DescribeConfigs")),
        *topic_rights(ordered, "Create", "Read", "Write", "DescribeConfigs"),
        *(right for topic in letters for right in topic_rights(topic, "Create", "Write", "DescribeConfigs")),
    )


def query_rights(ordered: Sequence[str], results: Sequence[str], dead_letter: str) -> tuple[Right, ...]:
    """Return the rights of ``tidegate query``; *results* is empty if it writes files only."""
    return (
        *(right for topic in ordered for right in topic_rights(topic, "Read", "DescribeConfigs")),
        *(right for topic in results for right in topic_rights(topic, "Create", "Read", "Write", "DescribeConfigs")),
        *topic_rights(dead_letter, "Create", "Write", "DescribeConfigs"),
    )


def sink_rights(results: str, dead_letter: str | None) -> tuple[Right, ...]:
    """Return the rights of ``tidegate sink``; *dead_letter* is None if a refused result stops it."""
    letters = () if dead_letter is None else topic_rights(dead_letter, "Create", "Write", "DescribeConfigs")
    return (*topic_rights(results, "Read", "DescribeConfigs"), *letters)


def topic_rights(topic: str, *operations: str) -> Iterator[Right]:
    """Yield one right for each operation on a topic."""
    return (Right(operation, topic) for operation in operations)


def kafka_principal(properties: Mapping[str, str]) -> str:
    """Return this client's principal, if its properties show it: the name in a certificate is not among them."""
    return f"User:{properties.get('sasl.username') or 'PRINCIPAL'}"


def kafka_acl(right: Right, bootstrap: str, principal: str) -> str:
    """Return the command that gives *right* to *principal*."""
    return (
        f"kafka-acls.sh --bootstrap-server {bootstrap} --command-config admin.properties "
        f"--add --allow-principal {principal} --operation {right.operation} --topic {right.topic}"
    )


def redis_acl(user: str = "tidegate", commands: Iterable[str] = REDIS_COMMANDS) -> str:
    """Return the command that makes a Redis user with the right to *commands*, on Tidegate's own keys, and no other right."""
    return f"ACL SETUSER {user} on >PASSWORD resetkeys ~{REDIS_KEYS} -@all {' '.join(f'+{command}' for command in commands)}"
