"""Results as signed requests: what goes over the wire, what each answer does, and which requests are repeated with which id."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.certificates import Authority
from support.stores import kit
from support.stores.webhook_receiver import is_signed
from support.tls_proxy import TlsFront
from support.valkey_server import Server

from ordering.errors import RefusedError, UnreachableError
from sinks.stores.base import RowsRefused, Store, StoreContext, StoreError, TryLater
from sinks.stores.http.request import sign
from sinks.stores.http_connection import pause_s
from sinks.stores.registry import make_store
from tidegate.platform.settings.load import Settings
from tidegate.platform.settings.tables.stores.http import HttpSettings

pytestmark = pytest.mark.heavy
# The example in the text of Standard Webhooks.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID = kit.stream().id
_number = itertools.count()


class Request(NamedTuple):
    """What came: its headers, and the numbers of the results in it."""

    headers: Any
    body: bytes

    @property
    def numbers(self) -> list[int]:
        return [result["number"] for result in json.loads(self.body)]


class ScriptedReceiver:
    """Answers 200, or what *answers* says of the next requests; refuses the numbers in *refused*; keeps what came."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.refused: set[int] = set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                request = Request(self.headers, self.rfile.read(int(self.headers["content-length"])))
                receiver.requests.append(request)
                status, headers = receiver.answers.pop(0) if receiver.answers else (200, {})
                wrong = receiver.refused.intersection(request.numbers)
                words = f"not {wrong}".encode() if wrong else b"words of the receiver"
                self.send_response(422 if wrong else status)
                for name, value in {**headers, "content-length": str(len(words))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(words)

            def log_message(self, format: str, *arguments: Any) -> None:
                """Be silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def ids(self) -> list[str]:
        return [request.headers["webhook-id"] for request in self.requests]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One Redis for this file."""
    made = Server(tmp_path_factory.mktemp("redis"))
    yield made
    made.kill()


@pytest.fixture
def receiver() -> Iterator[ScriptedReceiver]:
    """A receiver that has got nothing yet."""
    made = ScriptedReceiver()
    yield made
    made.close()


def store_at(redis: Server, url: str, output: str = "", **settings: Any) -> Store:
    """Return a store; without *output* its progress is its own."""
    context = StoreContext(output or f"output{next(_number)}", kit.stream(), kit.COLUMNS, redis.settings())
    return make_store("http", HttpSettings.model_validate({"url": url, "secret": SECRET, "request_timeout": "1s", **settings}), context)


@pytest.fixture
def store(redis: Server, receiver: ScriptedReceiver) -> Iterator[Store]:
    """A store that leads there; refused rows do not stop it."""
    made = store_at(redis, f"http://127.0.0.1:{receiver.port}/results", on_error="dead_letter")
    yield made
    made.close()


def test_the_signature_is_that_of_the_standard() -> None:
    """The example that the libraries of Standard Webhooks are tested with."""
    headers = sign(SECRET, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert (headers["webhook-id"], headers["webhook-timestamp"]) == ("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330")


def test_a_batch_is_one_signed_request(store: Store, receiver: ScriptedReceiver) -> None:
    """Its body is the array of the results, byte for byte; a receiver with code of its own finds the signature right, and only then."""
    assert store.write(kit.batch_of(ID, 1, 0, 3)).position == 3
    (request,) = receiver.requests
    assert request.body == b"[%s]" % b",".join(kit.value_of(1, number) for number in range(3))
    assert request.headers["content-type"] == "application/json"
    assert receiver.ids == [f"{ID}_1_0_3"]
    assert is_signed(SECRET, request.headers, request.body)
    assert not is_signed(SECRET, request.headers, request.body.replace(b"1", b"2", 1))


def test_a_request_without_answer_is_repeated_with_its_id_and_bounds(redis: Server, receiver: ScriptedReceiver) -> None:
    """It may have arrived: another store, which would have cut the batch elsewhere, is told its end, and sends the same."""
    url = f"http://127.0.0.1:{receiver.port}/results"
    first, second = (store_at(redis, url, "told") for _ in range(2))
    receiver.answers = [(500, {})]
    with pytest.raises(UnreachableError, match="500 Internal Server Error words of the receiver"):
        first.write(kit.batch_of(ID, 0, 0, 5))
    assert second.progress([0])[0][1:] == (0, 0, 5)
    assert second.write(kit.batch_of(ID, 0, 0, 9))[1:] == (0, 0, 5), "other bounds are not sent"
    assert second.write(kit.batch_of(ID, 0, 0, 5)).position == 5
    assert receiver.ids == [f"{ID}_0_0_5"] * 2
    assert receiver.requests[0].body == receiver.requests[1].body
    assert first.write(kit.batch_of(ID, 0, 0, 5))[1:] == (5, 13, None), "and the first finds it done"
    assert len(receiver.requests) == 2
    for each in (first, second):
        each.close()


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_an_answer_that_asks_for_another_try(store: Store, receiver: ScriptedReceiver, status: int) -> None:
    """The call may be repeated, after as long as Retry-After says."""
    receiver.answers = [(status, {"retry-after": "7"})]
    with pytest.raises(TryLater) as caught:
        store.write(kit.batch_of(ID, 0, 0, 2))
    assert (caught.value.code, caught.value.wait_s) == ("TG-STORE-UNREACHABLE", 7.0)
    assert store.write(kit.batch_of(ID, 0, 0, 2)).position == 2


@pytest.mark.parametrize("status", [301, 302, 307, 308, 401, 403, 404, 405, 410])
def test_an_answer_that_only_the_user_can_mend(store: Store, receiver: ScriptedReceiver, status: int) -> None:
    """It is not about the rows: no dead letters, the job stops. A redirect is not followed."""
    receiver.answers = [(status, {"location": "/elsewhere"})]
    with pytest.raises(StoreError, match=f"{status} .*words of the receiver") as caught:
        store.write(kit.batch_of(ID, 0, 0, 2))
    assert caught.value.code == "TG-STORE-REFUSED"
    assert len(receiver.requests) == 1


def test_a_refused_batch_goes_row_by_row(store: Store, receiver: ScriptedReceiver) -> None:
    """Only the rows that the receiver refuses are refused; the others are sent once each, and not again with the rest."""
    receiver.refused = {1, 3}
    batch = kit.batch_of(ID, 0, 0, 5)
    with pytest.raises(RowsRefused) as caught:
        store.write(batch)
    assert [refusal.position for refusal in caught.value.refusals] == [1, 3]
    assert caught.value.refusals[0].reason == "422 Unprocessable Entity not {1}"
    assert store.write(batch.without({1, 3})).position == 5
    assert [request.numbers for request in receiver.requests] == [[0, 1, 2, 3, 4], [0], [1], [2], [3], [4]]
    assert receiver.ids[1:] == [f"{ID}_0_{number}_{number + 1}" for number in range(5)]


def test_a_split_batch_never_goes_whole_again(redis: Server, receiver: ScriptedReceiver) -> None:
    """Some of its rows stand: a store made after a crash, at a receiver that refuses nothing now, sends them with the same ids."""
    url = f"http://127.0.0.1:{receiver.port}/results"
    receiver.refused = {2}
    first = store_at(redis, url, "split")
    with pytest.raises(RowsRefused) as caught:
        first.write(kit.batch_of(ID, 0, 0, 4))
    assert [refusal.position for refusal in caught.value.refusals] == [2]
    assert [request.numbers for request in receiver.requests] == [[0, 1, 2, 3], [0], [1], [2]], 'on_error = "stop" sends no more'
    receiver.refused = set()
    first.close()
    second = store_at(redis, url, "split")
    assert second.write(kit.batch_of(ID, 0, 0, 4)).position == 4
    assert [request.numbers for request in receiver.requests[4:]] == [[0], [1], [2], [3]]
    assert receiver.ids[4:7] == receiver.ids[1:4]
    assert second.write(kit.batch_of(ID, 0, 4, 6)).position == 6, "the next batch goes whole"
    assert receiver.requests[-1].numbers == [4, 5]
    second.close()


def test_a_batch_of_one_row_is_refused_as_it_is(store: Store, receiver: ScriptedReceiver) -> None:
    """There is nothing to split; without the row the progress passes it."""
    receiver.refused = {0}
    with pytest.raises(RowsRefused):
        store.write(kit.batch_of(ID, 0, 0, 1))
    assert store.write(kit.batch_of(ID, 0, 0, 1).without({0})).position == 1
    assert len(receiver.requests) == 1


def test_a_redis_that_forgot_loses_nothing(redis: Server, store: Store, receiver: ScriptedReceiver) -> None:
    """The rows come again; with other bounds under another id, so that a receiver does not take them for those it has."""
    import redis as client

    store.write(kit.batch_of(ID, 0, 0, 5))
    with client.Redis(port=redis.port) as line:
        line.flushall()
    store.write(kit.batch_of(ID, 0, 0, 8))
    assert receiver.ids == [f"{ID}_0_0_5", f"{ID}_0_0_8"]


def test_a_receiver_that_is_silent_is_not_waited_for_longer_than_told(redis: Server) -> None:
    """request_timeout is kept, and the receiver counts as one that does not answer."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        store = store_at(redis, f"http://127.0.0.1:{listener.getsockname()[1]}/")
        began_s = time.monotonic()
        with pytest.raises(UnreachableError, match="ReadTimeout"):
            store.write(kit.batch_of(ID, 0, 0, 1))
        assert 0.9 < time.monotonic() - began_s < 8
        store.close()


def test_certificates_are_checked_both_ways(redis: Server, receiver: ScriptedReceiver, tmp_path: Path) -> None:
    """A receiver whose authority is not named gets nothing; with ca_file, certificate_file and key_file it does."""
    authority = Authority(tmp_path)
    shown, ours = authority.issue("receiver"), authority.issue("tidegate")
    front = TlsFront(receiver.port, shown, authority.ca_file)
    url = f"https://127.0.0.1:{front.port}/results"
    stranger = store_at(redis, url)
    with pytest.raises(StoreError, match="CERTIFICATE_VERIFY_FAILED"):
        stranger.write(kit.batch_of(ID, 0, 0, 1))
    assert receiver.requests == []
    files = {"ca_file": authority.ca_file, "certificate_file": ours.certificate_file, "key_file": ours.key_file}
    known = store_at(redis, url, **{name: str(path) for name, path in files.items()})
    assert known.write(kit.batch_of(ID, 0, 0, 1)).position == 1
    with pytest.raises(StoreError, match="certificate files cannot be used"):
        store_at(redis, url, ca_file=str(tmp_path / "missing.pem")).check()
    for each in (stranger, known):
        each.close()
    front.close()


def test_retry_after_is_seconds_or_a_date() -> None:
    """Anything else counts as nothing, and nobody may silence a sink for more than an hour."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    later = format_datetime(now.replace(minute=2), usegmt=True)
    told = ["120", later, format_datetime(now, usegmt=True), "999999999", "-5", "soon", ""]
    assert [pause_s(text, now.timestamp()) for text in told] == [120.0, 120.0, 0.0, 3600.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("secret", ["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_no base64", "whsec_c2hvcnQ=", 7])
def test_a_secret_of_another_form_is_refused(secret: object) -> None:
    """It would sign nothing that a receiver could check; the refusal does not show it."""
    with pytest.raises(ValueError, match="whsec_ and 24 to 64 bytes in base64") as caught:
        HttpSettings.model_validate({"url": "https://hooks.example/", "secret": secret})
    assert str(secret) not in str(caught.value)


@pytest.mark.parametrize("url", ["hooks.example/hook", "ftp://hooks.example/", "https://", "https://a b/"])
def test_a_url_of_another_form_is_refused(url: str) -> None:
    """Before anything starts."""
    with pytest.raises(ValueError, match=r"https://host/path"):
        HttpSettings.model_validate({"url": url, "secret": SECRET})


def test_the_configuration_shows_no_secret() -> None:
    """Neither the key nor a password in the URL; and certificates need https."""
    output = {"topic": "t", "http": {"url": "https://me:hidden-word@hooks.example/hook", "secret": SECRET}}
    settings = Settings.model_validate({"outputs": {"rides": output}})
    shown = settings.model_dump_json(by_alias=True)
    assert "hidden-word" not in shown
    assert SECRET not in shown
    assert "hooks.example/hook" in shown
    with pytest.raises(ValueError, match="means nothing without TLS"):
        HttpSettings.model_validate({"url": "http://hooks.example/", "secret": SECRET, "ca_file": "ca.pem"})


@pytest.mark.parametrize("text", ["[", "7", '["id"]', '["id", "0", 0]', '["id", -1, 0]', '["id", 0, 0, null, 1]', "{}"])
def test_a_progress_that_others_have_written_is_refused_by_name(text: str, redis: Server, receiver: ScriptedReceiver) -> None:
    """Nobody knows then what the receiver has: nothing is sent."""
    store = store_at(redis, f"http://127.0.0.1:{receiver.port}/x")
    store.prepare()
    store._standings.connect().hset(store._standings.key, "0", text)  # type: ignore[attr-defined]
    with pytest.raises(RefusedError) as refusal:
        store.progress([0])
    assert refusal.value.code == "TG-REDIS-CONTENT"
    assert store._standings.key in refusal.value.what  # type: ignore[attr-defined]
    assert receiver.requests == []
    store.close()
