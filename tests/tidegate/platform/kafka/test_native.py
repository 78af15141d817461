"""The native part is compiled where there is a compiler, can be switched off, and says what is wrong without a secret."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import pytest

import hatch_build
from ordering.errors import TidegateError
from tidegate.basics.native_parts import NATIVE_SWITCH
from tidegate.platform.kafka import native
from tidegate.platform.kafka.messages import MessageProducer
from tidegate.platform.kafka.native import NativeProducer, NativeSource

SOURCE = Path("tidegate/platform/kafka/native.c")
NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL | None:
    """The native part as this checkout compiles it; None where nobody can."""
    target = tmp_path_factory.mktemp("native") / "_native.so"
    return native._open_library(target) if hatch_build.compile_part(SOURCE, target) else None


def test_it_is_compiled_wherever_there_is_a_compiler(library: ctypes.CDLL | None) -> None:
    """And finds the librdkafka that confluent-kafka brings."""
    assert (library is not None) == any(map(shutil.which, ("cc", "gcc", "clang")))


def test_without_a_compiler_a_build_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """It says that it will be slower, and does not fail."""
    monkeypatch.setenv("CC", "no-such-compiler")
    assert not hatch_build.compile_part(SOURCE, tmp_path / "_native.so")
    assert "slower" in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """``TIDEGATE_KAFKA__NATIVE=off``: for a comparison, or a machine where it fails."""
    monkeypatch.setenv(NATIVE_SWITCH, "off")
    assert native.usable_library() is None


def test_a_property_that_is_wrong_is_named_and_its_value_is_not(library: ctypes.CDLL | None) -> None:
    """Values may be secrets."""
    make = MessageProducer if library is None else lambda properties: NativeProducer(library, properties)
    for wrong in ({"no.such.property": "canary"}, {"queue.buffering.max.ms": "canary"}):
        with pytest.raises(
            Exception, match=next(iter(wrong)).replace("queue.buffering.max.ms", "(queue.buffering.max.ms|linger.ms)")
        ) as told:
            make({**NOWHERE, **wrong})
        assert library is None or "canary" not in str(told.value)
        assert library is None or isinstance(told.value, TidegateError)


def test_a_client_is_closed_once(library: ctypes.CDLL | None) -> None:
    """Closing again, and forgetting it, do nothing more; clients nobody answers close too."""
    if library is not None:
        source = NativeSource(library, NOWHERE)
        consumer, other = (source.open_consumer("t", partition, headers=True, rows=10) for partition in range(2))
        consumer.assign(0)
        assert consumer.fetch(10, 10, 1000, 50, 10)[0] is None
        producer = NativeProducer(library, {**NOWHERE, "message.timeout.ms": "0"})
        assert producer.send_one("t", b"v", None, [("h", None)], 0, 1)
        assert producer.flush(50) == 1
        for client in (consumer, source, other, producer):
            client.close()
            client.close()
