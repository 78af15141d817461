"""Schemas by id: asked for once, unknown ids told apart from a registry that does not answer, and nobody's record given up."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from support.registry_server import Registered, RegistryServer

from tidegate.basics.dead_letter_reasons import UNKNOWN_ID, UNUSABLE
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Field
from tidegate.platform.settings.tables.schema_registry import SchemaRegistrySettings
from tidegate.records.payloads.avro_records import NOT_AVRO
from tidegate.records.payloads.registry_records import NO_FRAME, RegistryReader
from tidegate.records.payloads.schema_registry import NoSchema, SchemaRegistry

POINT = json.dumps({"type": "record", "name": "P", "fields": [{"name": "at", "type": "long"}]})
NAMED = json.dumps({"type": "record", "name": "Q", "fields": [{"name": "k", "type": "string"}, {"name": "at", "type": "long"}]})


class Clock:
    """Time that passes only while somebody waits."""

    def __init__(self, server: RegistryServer, heal_after_s: float = 1e9) -> None:
        self.now_s, self._server, self._heal_after_s = 0.0, server, heal_after_s

    def __call__(self) -> float:
        return self.now_s

    def pause(self, seconds: float) -> None:
        """Let time pass; the registry is mended when it has been long enough."""
        self.now_s += seconds
        if self.now_s >= self._heal_after_s and self._server.broken:
            self._server.broken = 0


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    """A registry that knows two schemas."""
    running = RegistryServer()
    running.ids = {1: Registered(POINT), 2: Registered(NAMED)}
    yield running
    running.stop()


def registry(server: RegistryServer, clock: Clock | None = None, **more: Any) -> SchemaRegistry:
    """A worker's view of the registry."""
    clock = clock or Clock(server)
    return SchemaRegistry(SchemaRegistrySettings(url=server.url, **more), clock, clock.pause)


def framed(number: int, schema: str, value: Any) -> bytes:
    """A payload as a registry's serialisers write it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schema)), value)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


def read(reader: RegistryReader, payloads: list[bytes | None], path: str = "at") -> tuple[list[int | None], dict[int, str]]:
    """The bigints of one field, and the reasons of bad rows."""
    field = Field((path,))
    found = reader.extract(pa.array(payloads, pa.binary()), [field])
    return found.columns[field].of_kind(Kind.BIGINT).to_pylist(), dict(zip(found.bad_rows.tolist(), found.reasons, strict=True))


def test_each_payload_is_read_by_the_schema_it_names(server: RegistryServer) -> None:
    """Schemas may change from record to record; each is asked for once, however many records name it."""
    reader = RegistryReader(registry(server))
    rows: list[bytes | None] = [framed(1, POINT, {"at": at}) if at % 2 else framed(2, NAMED, {"k": "x", "at": at}) for at in range(100)]
    assert read(reader, rows) == (list(range(100)), {})
    assert read(reader, rows) == (list(range(100)), {})
    assert server.asked == {"/schemas/ids/1": 1, "/schemas/ids/2": 1}


def test_each_reason_is_told(server: RegistryServer) -> None:
    """A frame that is none, an id nobody knows, bytes that are no such value: each costs only its own record."""
    server.ids[3] = Registered("syntax = 'proto3';", "PROTOBUF")
    server.ids[4] = Registered("{")
    good = framed(1, POINT, {"at": 5})
    rows = [good, None, b"", b"\0\0\0\0", b"\1" + good[1:], b"{}abcdef", framed(9, POINT, {"at": 5}), good + b"x", good[:-1]]
    rows += [framed(3, POINT, {"at": 5}), framed(4, POINT, {"at": 5}), b"\0\xff\xff\xff\xffx", good]
    values, reasons = read(RegistryReader(registry(server)), rows)
    assert values == [5, *[None] * 11, 5]
    assert {row: reasons[row] for row in (2, 3, 4, 5)} == dict.fromkeys((2, 3, 4, 5), NO_FRAME)
    assert (reasons[6], reasons[11]) == (UNKNOWN_ID, UNKNOWN_ID)
    assert (reasons[7], reasons[8]) == (NOT_AVRO, NOT_AVRO)
    assert (reasons[9], reasons[10]) == (UNUSABLE, UNUSABLE)


def test_an_unknown_id_is_asked_for_again_only_after_a_while(server: RegistryServer) -> None:
    """It may be registered by then; until then its records cost no request each."""
    clock = Clock(server)
    schemas = registry(server, clock)
    assert [schemas.schema(7) for _ in range(50)] == [NoSchema(UNKNOWN_ID)] * 50
    assert server.asked["/schemas/ids/7"] == 1
    server.ids[7] = Registered(POINT)
    clock.now_s += 61
    assert not isinstance(schemas.schema(7), NoSchema)
    assert server.asked["/schemas/ids/7"] == 2


@pytest.mark.parametrize("status", [500, 503, 429, 403])
def test_an_outage_is_waited_for(server: RegistryServer, status: int) -> None:
    """Whatever the registry says instead of an answer: the record waits, and is read when it answers again."""
    server.broken = status
    clock = Clock(server, heal_after_s=30)
    values, reasons = read(RegistryReader(registry(server, clock)), [framed(1, POINT, {"at": 5})])
    assert (values, reasons) == ([5], {})
    assert 30 <= clock.now_s < 40
    assert server.asked["/schemas/ids/1"] < 20, "it is asked again at growing intervals"


def test_a_registry_that_is_not_there_is_waited_for(server: RegistryServer) -> None:
    """Refused connections are an outage too; what is known already needs no registry."""
    clock = Clock(server)
    schemas = registry(server, clock)
    known = schemas.schema(1)
    server.stop()

    def pause(seconds: float) -> None:
        clock.now_s += seconds
        if clock.now_s > 3:
            server.start()
            clock.now_s = 0

    schemas.pause = pause
    assert schemas.schema(1) is known
    assert not isinstance(schemas.schema(2), NoSchema)


def test_a_path_that_is_no_registry_is_no_unknown_id(server: RegistryServer) -> None:
    """404 without the registry's own code comes from something else: nothing is given up because of it."""
    clock = Clock(server)

    class Enough(Exception):
        pass

    def pause(seconds: float) -> None:
        raise Enough

    schemas = SchemaRegistry(SchemaRegistrySettings(url=f"{server.url}/elsewhere"), clock, pause)
    with pytest.raises(Enough):
        schemas.schema(1)


@pytest.mark.parametrize(
    ("login", "settings"),
    [
        ("reader:s3cret-pass", {"username": "reader", "password": "s3cret-pass"}),
        ("Bearer tok-en-1234", {"token": "tok-en-1234", "logical_cluster": "lsrc-1", "identity_pool": "pool-1"}),
        ("Bearer tok-en-1234", {"token": "tok-en-1234"}),
    ],
)
def test_it_lets_in_by_password_or_token(login: str, settings: dict[str, str]) -> None:
    """Basic and bearer logins, as the registry expects them."""
    server = RegistryServer(login)
    server.ids[1] = Registered(POINT)
    try:
        assert not isinstance(registry(server, **settings).schema(1), NoSchema)
    finally:
        server.stop()


def test_schemas_may_refer_to_others(server: RegistryServer) -> None:
    """Referenced schemas are fetched with it, those they refer to first."""
    inner = {"type": "record", "name": "n.Inner", "fields": [{"name": "at", "type": "long"}]}
    middle = {"type": "record", "name": "n.Middle", "fields": [{"name": "inner", "type": "n.Inner"}]}
    outer = {"type": "record", "name": "Outer", "fields": [{"name": "middle", "type": "n.Middle"}]}
    to_inner = [{"name": "n.Inner", "subject": "inner", "version": 3}]
    server.versions[("inner", 3)] = Registered(json.dumps(inner))
    server.versions[("mid/dle", 1)] = Registered(json.dumps(middle), references=to_inner)
    server.ids[5] = Registered(json.dumps(outer), references=[{"name": "n.Middle", "subject": "mid/dle", "version": 1}])
    payload = b"\0\0\0\0\5" + b"\x0a"
    assert read(RegistryReader(registry(server)), [payload], "middle") == ([None], {})
    field = Field(("middle", "inner", "at"))
    found = RegistryReader(registry(server)).extract(pa.array([payload]), [field])
    assert found.columns[field].of_kind(Kind.BIGINT).to_pylist() == [5]


def test_schemas_that_refer_to_each_other_without_end_are_unusable(server: RegistryServer) -> None:
    """A circle of references ends in a reason, not in a loop."""
    for name, other in (("a", "b"), ("b", "a")):
        server.versions[(name, 1)] = Registered(POINT, references=[{"name": other, "subject": other, "version": 1}])
    server.ids[6] = Registered(POINT, references=[{"name": "a", "subject": "a", "version": 1}])
    assert registry(server).schema(6) == NoSchema(UNUSABLE)
