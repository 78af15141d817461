"""
Schemas from a schema registry, by the id in every payload.

Law: the schema of an id never changes, so each worker requests it once. An id that the registry does not know makes the payload bad. While
the registry does not answer, or refuses, the worker logs this and waits: no record is lost to an outage. The client and its packages are
imported only if a registry is used.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ordering.errors import SettingError
from ordering.ticks import SECOND_US
from tidegate.basics.dead_letter_reasons import UNKNOWN_ID, UNUSABLE, ReasonText
from tidegate.basics.secret_masking import scrub
from tidegate.platform.observe.logs import get_logger
from tidegate.platform.settings.tables.schema_registry import SchemaRegistrySettings
from tidegate.records.payloads.avro_layout import AvroSchema
from tidegate.records.payloads.avro_schema import UnusableSchema, parse_avro_schema

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient


# The registry's own codes for a subject, version or schema that it does not have.
_UNKNOWN_CODES = {40401, 40402, 40403}
_FORGET_UNKNOWN_AFTER_S = 60.0
_REMEMBERED_MAX = 10_000
_REFERENCES_MAX = 200
_WAIT_FIRST_S, _WAIT_MAX_S = 0.2, 5.0
_WARN_AGAIN_AFTER_S = 10.0

_log = get_logger("schema_registry")


@dataclass(frozen=True, slots=True)
class NoSchema:
    """The reason why an id has no schema."""

    reason: ReasonText


@dataclass
class SchemaRegistry:
    """The schemas that one worker has requested from a registry; *clock* and *pause* use seconds."""

    settings: SchemaRegistrySettings
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep
    _schemas: dict[int, AvroSchema | NoSchema] = field(default_factory=dict)
    _unknown_since_s: dict[int, float] = field(default_factory=dict)
    _client: SchemaRegistryClient | None = None

    def schema(self, schema_id: int) -> AvroSchema | NoSchema:
        """Return the parsed schema with id *schema_id*, or :class:`NoSchema`. Waits as long as the registry does not answer."""
        schema = self._schemas.get(schema_id)
        if isinstance(schema, NoSchema) and schema_id in self._unknown_since_s:
            # The schema may have been registered since, or may not yet have reached the replica that answered.
            schema = schema if self.clock() - self._unknown_since_s[schema_id] < _FORGET_UNKNOWN_AFTER_S else None
        if schema is None:
            schema = self._ask_until_answered(schema_id)
            self._remember(schema_id, schema)
        return schema

    def _remember(self, schema_id: int, schema: AvroSchema | NoSchema) -> None:
        if len(self._schemas) >= _REMEMBERED_MAX:
            self._schemas.clear()
            self._unknown_since_s.clear()
        self._schemas[schema_id] = schema
        self._unknown_since_s.pop(schema_id, None)
        if isinstance(schema, NoSchema) and schema.reason == UNKNOWN_ID:
            self._unknown_since_s[schema_id] = self.clock()

    def _ask_until_answered(self, schema_id: int) -> AvroSchema | NoSchema:
        wait_s, since_s, warned_s = _WAIT_FIRST_S, self.clock(), -_WARN_AGAIN_AFTER_S
        while True:
            try:
                schema = self._ask(schema_id)
            except _NoAnswer as outage:
                waited_s = self.clock() - since_s
                if waited_s - warned_s >= _WARN_AGAIN_AFTER_S:
                    warned_s = waited_s
                    _log.warning(
                        "waiting for the schema registry; the records that need it are kept",
                        registry=scrub(self.settings.address),
                        schema_id=schema_id,
                        waited_s=round(waited_s, 1),
                        reason=scrub(str(outage)),
                    )
                self.pause(wait_s)
                wait_s = min(2 * wait_s, _WAIT_MAX_S)
            else:
                if warned_s >= 0:
                    _log.info("the schema registry answers again", schema_id=schema_id, waited_s=round(self.clock() - since_s, 1))
                return schema

    def _ask(self, schema_id: int) -> AvroSchema | NoSchema:
        """Return a schema, or NoSchema. Raises _NoAnswer: the registry gave no answer."""
        try:
            client = self._connect_once()
            schema = client.get_schema(schema_id)
            if (schema.schema_type or "AVRO") != "AVRO":
                return NoSchema(UNUSABLE)
            named: dict[str, str] = {}
            self._collect_references(client, schema, named, ())
            return parse_avro_schema(schema.schema_str or "", named)
        except UnusableSchema as problem:
            _log.warning("a schema cannot be used: its records are dead letters", schema_id=schema_id, reason=str(problem))
            return NoSchema(UNUSABLE)
        except Exception as error:
            if getattr(error, "error_code", None) in _UNKNOWN_CODES:
                return NoSchema(UNKNOWN_ID)
            if isinstance(error, SettingError):
                raise
            raise _NoAnswer(f"{type(error).__name__}: {error}") from error

    def _collect_references(
        self, client: SchemaRegistryClient, schema: Schema, named: dict[str, str], above: tuple[tuple[str, int], ...]
    ) -> None:
        """Add the schemas that *schema* refers to, dependencies first."""
        for reference in schema.references or ():
            key = (str(reference.subject), int(reference.version or 0))
            if key in above:
                raise UnusableSchema(f"{key[0]} version {key[1]} refers to itself")
            if reference.name in named:
                continue
            if len(named) >= _REFERENCES_MAX:
                raise UnusableSchema(f"it refers to more than {_REFERENCES_MAX} schemas")
            referenced = client.get_version(*key).schema
            self._collect_references(client, referenced, named, (*above, key))
            named[str(reference.name)] = referenced.schema_str or ""

    def _connect_once(self) -> SchemaRegistryClient:
        if self._client is None:
            self._client = connect(self.settings)
        return self._client


class _NoAnswer(Exception):
    """The registry did not answer whether it has a schema."""


def connect(settings: SchemaRegistrySettings) -> SchemaRegistryClient:
    """Return a client of the registry, without contacting it. Raises SettingError: packages are missing, or settings are refused."""
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise SettingError(
            f"the client of schema registries is not installed: {error}",
            code="TG-SCHEMA-REGISTRY",
            where="schema_registry",
            fix="install confluent-kafka with its schema-registry extra",
            example="pip install 'confluent-kafka[schema-registry]'",
        ) from None
    for client in ("httpx", "httpx2"):
        logging.getLogger(client).setLevel(logging.WARNING)  # it would log each request
    try:
        return SchemaRegistryClient(_client_properties(settings))
    except (ValueError, TypeError, OSError) as error:
        raise SettingError(
            scrub(f"the client of schema registries refuses the settings: {error}"),
            code="TG-SCHEMA-REGISTRY",
            where="schema_registry",
            fix="correct [schema_registry]",
        ) from None


def _client_properties(settings: SchemaRegistrySettings) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "url": settings.address,
        "timeout": settings.request_timeout_us / SECOND_US,
        # SchemaRegistry retries itself, because it logs each wait.
        "max.retries": 0,
    }
    if settings.username is not None:
        password = settings.password.get_secret_value() if settings.password is not None else ""
        properties["basic.auth.user.info"] = f"{settings.username}:{password}"
    if settings.token is not None:
        properties |= {
            "bearer.auth.credentials.source": "STATIC_TOKEN",
            "bearer.auth.token": settings.token.get_secret_value(),
            "bearer.auth.logical.cluster": settings.logical_cluster,
            "bearer.auth.identity.pool.id": settings.identity_pool,
        }
    if settings.ca_file is not None:
        properties["ssl.ca.location"] = settings.ca_file
    if settings.certificate_file is not None:
        properties |= {"ssl.certificate.location": settings.certificate_file, "ssl.key.location": settings.key_file}
    if settings.key_password is not None:
        properties["ssl.key.password"] = settings.key_password.get_secret_value()
    return properties
