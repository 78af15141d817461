"""Logs: one event a line, bound fields, and no secret by any road."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hostile_text import HOSTILE, commands_in

from ordering.errors import RefusedError
from tidegate.basics.secret_masking import is_secret_key, remember, scrub, scrub_value
from tidegate.platform.observe.logs import bind_fields, configure, get_logger

CANARY = "canary-7f3a"


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


class Terminal(io.StringIO):
    """A stream that says it is one."""

    def isatty(self) -> bool:
        return True


def logs_to(form: str, level: str = "info", *, is_terminal: bool = False) -> io.StringIO:
    """Configure logging to a stream, which is no terminal unless that is asked for, and return the stream."""
    out = Terminal() if is_terminal else io.StringIO()
    configure(form, level, out)
    return out


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    """Return the JSON events written to *out*."""
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_off_a_terminal_auto_means_json_with_bound_fields() -> None:
    """A program finds topic, partition and offset by name."""
    out = logs_to("auto")
    get_logger(topic="flights", partition=2).info("record unreadable", offset=17)
    (event,) = lines(out)
    assert event["event"] == "record unreadable"
    assert (event["topic"], event["partition"], event["offset"], event["level"]) == ("flights", 2, 17, "info")
    assert event["time"].endswith("Z")


def test_console_is_one_readable_line() -> None:
    """People get text, without colours where no terminal is."""
    out = logs_to("console")
    get_logger().warning("behind", seconds=3)
    (line,) = out.getvalue().splitlines()
    assert "behind" in line
    assert "seconds=3" in line
    assert "\x1b" not in line


def test_the_last_call_of_a_stopped_job_leaves_no_traceback() -> None:
    """py4j logs it past its own logger; what others log there stays."""
    out = logs_to("json")
    for path in ("/site-packages/py4j/java_gateway.py", "/srv/query.py"):
        logging.getLogger().handle(logging.LogRecord("root", logging.INFO, path, 1, "Exception while sending command.", (), None))
    assert len(lines(out)) == 1


def test_events_below_the_level_are_left_out() -> None:
    """Ours and those of libraries."""
    out = logs_to("json", "warning")
    get_logger().info("no")
    logging.getLogger("library").info("no")
    get_logger().error("yes")
    assert [event["event"] for event in lines(out)] == ["yes"]


@pytest.mark.parametrize("form", ["json", "console"])
def test_no_secret_is_logged_by_any_road(form: str) -> None:
    """By field name, nested, in a URL, in the message, in a traceback, from a library, as bytes or as a name."""
    out = logs_to(form)
    remember(CANARY)
    log = get_logger(client={"sasl.password": CANARY})
    log.info(
        f"connecting with {CANARY}",
        url=f"redis://u:{CANARY}@h",
        password=CANARY,
        raw=CANARY.encode(),
        listed=[{"token": CANARY}],
        **{CANARY: 1},
    )
    logging.getLogger("redis").warning("AUTH %s", CANARY)
    try:
        raise ConnectionError(f"cannot log in with {CANARY}")
    except ConnectionError:
        log.exception("failed")
    assert "cannot log in with" in out.getvalue()
    assert CANARY not in out.getvalue()


def test_secrets_never_read_as_settings_are_masked_by_name_and_in_urls() -> None:
    """Nothing was remembered, yet name and place tell."""
    assert scrub_value("sasl.password", "unknown-1") == "***"
    assert scrub("see https://me:unknown-2@host/x?y") == "see https://me:***@host/x?y"


def test_errors_of_ours_are_logged_by_their_parts() -> None:
    """A program can look for the code."""
    out = logs_to("json")
    get_logger().error("not started", error=RefusedError("no", code="TG-X", fix="do that"))
    assert lines(out)[0]["error"] == {"code": "TG-X", "what": "no", "fix": "do that"}


@pytest.mark.parametrize("form", ["json", "console"])
@pytest.mark.parametrize("is_terminal", [True, False])
def test_hostile_text_stays_within_its_event(form: str, is_terminal: bool) -> None:
    """In the message, a name, a value, nested, bound, from a library: one line an event, and no character commands a terminal."""
    out = logs_to(form, is_terminal=is_terminal)
    hostile = f"{HOSTILE}{{}}%s"
    with bind_fields(key=hostile):
        get_logger(substream=hostile).warning(hostile, payload=hostile, raw=hostile.encode("utf-8", "replace"), nested={hostile: [hostile]})
        logging.getLogger("library").error("took %s", hostile)
        get_logger().error("not started", error=RefusedError(hostile, code="TG-X", fix=hostile))
    assert commands_in(out.getvalue(), on_terminal=is_terminal) == []
    assert len(out.getvalue().splitlines()) == 3
    if form == "json":
        first, second, _ = lines(out)
        assert first["event"] == hostile
        assert first["payload"] == first["key"] == first["substream"] == hostile
        assert first["nested"] == {hostile: [hostile]}
        assert second["event"] == f"took {hostile}"


def test_a_traceback_keeps_its_lines_and_nothing_else() -> None:
    """The text of an exception may be a record's."""
    out = logs_to("console")
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        get_logger().exception("failed")
    assert commands_in(out.getvalue()) == []
    assert "\n    raise ValueError(HOSTILE)\n" in out.getvalue()


def test_what_is_bound_stands_on_every_event_of_the_block_whoever_logs_it() -> None:
    """A library's too; another thread's not; and a name that the event uses itself is the event's."""
    out = logs_to("json")
    elsewhere = threading.Thread(target=get_logger("other").warning, args=("from another thread",))
    with bind_fields(topic="rides", partition=3, offset=17), bind_fields(batch=5):
        get_logger("one").warning("waiting", offset=20)
        logging.getLogger("library").warning("told by a library")
        elsewhere.start()
        elsewhere.join()
    get_logger("one").warning("afterwards")
    mine, library, other, after = lines(out)
    assert (mine["topic"], mine["partition"], mine["offset"], mine["batch"]) == ("rides", 3, 20, 5)
    assert (library["topic"], library["offset"]) == ("rides", 17)
    assert "topic" not in other
    assert "topic" not in after


@pytest.mark.parametrize(
    "name", ["password", "sasl.password", "ssl.key.password", "ssl.key.pem", "api_key", "spark.authenticate.secret", "passwrod"]
)
def test_names_of_secrets(name: str) -> None:
    """Settings of this project and of the clients below it, one misspelled."""
    assert is_secret_key(name)


@pytest.mark.parametrize(
    "name",
    [
        "key",
        "partition",
        "ssl.key.location",
        "sasl.username",
        "sasl.oauthbearer.token.endpoint.url",
        "offset",
        "spark.sql.session.timeZone",
    ],
)
def test_names_of_no_secrets(name: str) -> None:
    """What must stay readable, the path of a secret among it."""
    assert not is_secret_key(name)


@given(st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.lists(st.integers())))
def test_numbers_pass_unchanged(fields: dict[str, Any]) -> None:
    """Scrubbing never changes what is no text, unless its name says secret."""
    for name, value in fields.items():
        if not is_secret_key(name):
            assert scrub_value(name, value) == value
