"""
An embedded stack behind locks, with secrets that must not turn up anywhere: who may do what there is up to each test.

Valkey's binary has no TLS, so a front of the tests' own speaks it; what stands behind is a real server with its ACL on.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import redis
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from support.certificates import Authority, Keys
from support.tls_proxy import TlsFront

from tidegate.basics.access_rights import REDIS_COMMANDS, REDIS_KEYS, REDIS_WATCHING, Right
from tidegate.basics.secret_masking import Secrets
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.stack.embedded import EmbeddedStack
from tidegate.platform.stack.security import SUPER_USER, StackSecurity, redis_password

_WAIT_S = 30.0
_OPERATIONS = {operation.name.replace("_", "").lower(): operation for operation in AclOperation}


def canary(place: str) -> str:
    """Return a secret that tells where it was planted."""
    return f"canary-{place}-{uuid.uuid4().hex}"


@dataclass
class Locked:
    """
    A running stack behind locks.

    Attributes:
        stack: The servers.
        authority: Whose certificates they trust.
        folder: Where its certificates are.
        front: TLS before Valkey.
        secrets: Every canary by the place it was planted.
    """

    stack: EmbeddedStack
    authority: Authority
    folder: Path
    front: TlsFront
    keys: dict[str, Keys]
    secrets: dict[str, str]
    security: StackSecurity

    @property
    def bootstrap(self) -> str:
        """Where Kafka lets users with a password in."""
        return self.stack.bootstrap

    @property
    def redis_url(self) -> str:
        """Where Redis speaks TLS."""
        return f"rediss://127.0.0.1:{self.front.port}/0"

    def properties(self, user: str) -> Secrets:
        """Return what a Kafka client of *user* needs."""
        return Secrets({**self.security.client_properties(user), "bootstrap.servers": self.bootstrap})

    def admin(self) -> Admin:
        """Return a client that may do everything."""
        return Admin(self.properties(SUPER_USER), _WAIT_S)

    def redis(self) -> redis.Redis:
        """Return a client of Valkey that may do everything."""
        port = int(self.stack.redis_url.rpartition(":")[2].partition("/")[0])
        return redis.Redis(port=port, username=SUPER_USER, password=self.secrets["redis-admin"], protocol=2)

    def allow(self, user: str, rights: Iterable[Right]) -> None:
        """Give *user* exactly *rights*, and return once the broker knows."""
        client = AdminClient(dict(self.properties(SUPER_USER)))
        mine = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, f"User:{user}", None, AclOperation.ANY, AclPermissionType.ANY
        )
        wanted, there = {_binding(user, right) for right in rights}, set(client.describe_acls(mine).result(_WAIT_S))
        # Never all of them taken away at once: a running job would notice.
        added, removed = list(wanted - there), [_filter(binding) for binding in there - wanted]
        futures = [*(client.create_acls(added).values() if added else ()), *(client.delete_acls(removed).values() if removed else ())]
        for future in futures:
            future.result(_WAIT_S)
        deadline_s = time.monotonic() + _WAIT_S
        while set(client.describe_acls(mine).result(_WAIT_S)) != wanted:
            assert time.monotonic() < deadline_s, f"the broker does not take the rights of {user}"
            time.sleep(0.02)

    def allow_redis(self, *without: str, keys: str = REDIS_KEYS) -> None:
        """Give the Redis user of the jobs the rights listed, but for the commands *without*."""
        commands = [f"+{command}" for command in REDIS_COMMANDS if command not in without]
        with self.redis() as client:
            client.execute_command("ACL", "SETUSER", "tidegate", "resetkeys", f"~{keys}", "-@all", *commands)


def _binding(user: str, right: Right) -> AclBinding:
    operation = _OPERATIONS[right.operation.lower()]
    return AclBinding(ResourceType.TOPIC, right.topic, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


def _filter(binding: AclBinding) -> AclBindingFilter:
    fields = (binding.restype, binding.name, binding.resource_pattern_type, binding.principal)
    return AclBindingFilter(*fields, binding.host, binding.operation, binding.permission_type)


def start_locked(folder: Path) -> Locked:
    """Start a stack behind locks in *folder*; whoever asks stops it (:func:`stop_locked`)."""
    certificates = folder / "certificates"
    certificates.mkdir(parents=True)
    names = ("admin", "ingest", "key", "redis-admin", "redis", "redis-key", "watcher", "oauth", "spark")
    secrets = {name: canary(name) for name in names}
    (certificates / "redis-password").write_text(secrets["redis"])
    authority = Authority(certificates)
    keys = {
        "broker": authority.issue("broker"),
        "cache": authority.issue("cache"),
        "query": authority.issue("query", password=secrets["key"]),
        "journal": authority.issue("journal", password=secrets["redis-key"]),
    }
    rules = {
        "tidegate": f"on {redis_password(secrets['redis'])}",
        "watcher": f"on {redis_password(secrets['watcher'])} ~{REDIS_KEYS} {' '.join(f'+{command}' for command in REDIS_WATCHING)}",
        SUPER_USER: f"on {redis_password(secrets['redis-admin'])} ~* +@all",
    }
    users = {SUPER_USER: secrets["admin"], "ingest": secrets["ingest"]}
    security = StackSecurity(authority.ca_file, keys["broker"].both_file, "broker", users, rules)
    stack = EmbeddedStack(folder / "stack", heap="384m", security=security)
    stack.start()
    front = TlsFront(int(stack.redis_url.rpartition(":")[2].partition("/")[0]), keys["cache"], authority.ca_file)
    locked = Locked(stack, authority, certificates, front, keys, secrets, security)
    locked.allow_redis()
    return locked


def stop_locked(locked: Locked) -> None:
    """Stop the servers and delete what they kept."""
    locked.front.close()
    locked.stack.stop(wipe=True)
