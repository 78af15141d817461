"""Who may ask the page, what every answer forbids a browser, and that nothing of a topic becomes markup or shows a secret."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from structlog.testing import capture_logs
from support.certificates import Authority

from ordering.errors import RefusedError, SettingError, UnreachableError
from tidegate.platform.settings.load import Settings
from tidegate.tools.commands import page_answers
from tidegate.tools.commands.page_answers import make_answers
from tidegate.tools.commands.page_messages import list_names
from tidegate.tools.commands.ui import page_beside
from tidegate.tools.page import server
from tidegate.tools.page.access import LOOPBACK, Access
from tidegate.tools.page.actions import KEY_HEADER, Actions
from tidegate.tools.page.listening import check_binding
from tidegate.tools.page.server import PAGES, make_page

MARKUP = "</script><img src=x onerror=alert(1)>"
TOKEN = "a-token-that-nobody-knows"
FILES = Path(server.__file__).parent / "files"


def client(answers: Mapping[str, Any] | None = None, token: str = "", host: str = "localhost:8600") -> TestClient:
    """Return a client of a page with *answers*."""
    return TestClient(make_page(answers or {"echo": dict}, Access(frozenset(LOOPBACK), token)), base_url=f"http://{host}")


@pytest.mark.parametrize(
    "path", ["/", *(f"/{page}" for page in PAGES), "/page.js", "/time.js", "/dagre.js", "/page.css", "/icon.svg", "/api/echo"]
)
def test_every_answer_forbids_what_is_not_of_this_server(path: str) -> None:
    """Files, pages and answers all carry the policy."""
    answer = client().get(path)
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8600", "127.0.0.1.evil.example", "localhost:x", ""])
def test_another_name_is_refused(host: str) -> None:
    """A site that lets its own name point at this machine must not read the pipeline."""
    assert client().get("/api/echo", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8600", "[::1]:8600", "[::1]"])
def test_the_names_of_this_machine_are_known(host: str) -> None:
    """With and without a port, in any case."""
    assert Access(frozenset(LOOPBACK)).is_known_host(host)


def test_a_token_is_asked_for_and_is_not_read_from_an_address() -> None:
    """As a bearer or as the password of Basic; nothing else will do."""
    guarded = client(token=TOKEN)
    basic = base64.b64encode(f"any:{TOKEN}".encode()).decode()
    assert guarded.get("/api/echo", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert guarded.get("/api/echo", headers={"authorization": f"Basic {basic}"}).status_code == 200
    for wrong in ("", "Bearer", "Bearer x", "Basic !", "Basic eDp5", "Digest " + TOKEN):
        assert guarded.get("/page.js", headers={"authorization": wrong}).status_code == 401
    assert guarded.get(f"/api/echo?token={TOKEN}").status_code == 401


def test_others_reach_the_page_only_if_there_is_a_token() -> None:
    """The loopback needs none; a short token is none."""
    check_binding("127.0.0.1", "")
    with pytest.raises(SettingError) as refused:
        check_binding("0.0.0.0", "short")
    assert "TIDEGATE_UI_TOKEN" in refused.value.fix
    check_binding("0.0.0.0", TOKEN)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_only_reading_is_answered(method: str) -> None:
    """Nothing changes by a request."""
    assert client().request(method, "/api/echo").status_code == 405


def acting(done: list[Any], allowed: bool = True) -> tuple[TestClient, Actions]:
    """Return a client of a page with one action, which notes what it was asked."""
    actions = Actions({"note": lambda asked: done.append(asked) or {"noted": len(done)}} if allowed else {})
    page = make_page({"echo": dict}, Access(frozenset(LOOPBACK)), actions)
    return TestClient(page, base_url="http://localhost:8600"), actions


def test_an_action_needs_a_post_of_this_page_itself() -> None:
    """The key that only its pages have, JSON, and no other site; each alone refuses, and a GET never acts."""
    done: list[Any] = []
    page, actions = acting(done)
    assert page.get("/actions").json() == {"allowed": True, "key": actions.key}
    good = {"content-type": "application/json", KEY_HEADER: actions.key}
    for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH"):
        assert page.request(method, "/actions/note", headers=good).status_code == 405
    wrong = [
        {KEY_HEADER: ""},
        {KEY_HEADER: actions.key[:-1]},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"host": "evil.example"},
    ]
    for each in wrong:
        assert page.post("/actions/note", headers=good | each, content="{}").status_code in (403, 415, 421), each
    for body in ("", "[]", "{", '"x"', "9" * 200_000):
        assert page.post("/actions/note", headers=good, content=body).status_code == 400
    assert page.post("/actions/other", headers=good, content="{}").status_code == 404
    assert done == []
    own = {"origin": "http://localhost:8600", "sec-fetch-site": "same-origin"}
    answer = page.post("/actions/note", headers=good | own, content='{"place": "a-0@1"}')
    assert (answer.status_code, answer.json(), done) == (200, {"noted": 1}, [{"place": "a-0@1"}])


def test_without_the_flag_every_action_is_refused() -> None:
    """Also with whatever key; the page is told none."""
    done: list[Any] = []
    page, actions = acting(done, allowed=False)
    assert page.get("/actions").json() == {"allowed": False, "key": ""}
    answer = page.post("/actions/note", headers={"content-type": "application/json", KEY_HEADER: actions.key}, content="{}")
    assert answer.status_code == 403
    assert answer.json()["code"] == "TG-UI-ACTIONS"
    assert "--allow-actions" in answer.json()["error"]
    assert done == []


def test_actions_and_refusals_are_logged() -> None:
    """Who asked for what, and what came of it; never the key."""
    done: list[Any] = []
    page, actions = acting(done)
    good = {"content-type": "application/json", KEY_HEADER: actions.key}
    with capture_logs() as logged:
        page.post("/actions/note", headers=good, content='{"place": "a-0@1"}')
        page.post("/actions/note", headers=good | {KEY_HEADER: "guess"}, content="{}")
    told = [(each["event"], each["log_level"], each["client"]) for each in logged]
    asked, acted, refused = told
    assert asked == ("an action is asked for", "info", "testclient")
    assert acted == ("the action is done", "info", "testclient")
    assert refused == ("an action is refused", "warning", "testclient")
    assert actions.key not in str(logged)
    assert "guess" not in str(logged)


def test_a_download_is_a_file_and_never_a_page() -> None:
    """Whatever its bytes and its name say."""
    load = {"record": lambda _: (MARKUP + "\r\nx: y", b"<script>alert(1)</script>")}
    answer = TestClient(make_page({}, Access(frozenset(LOOPBACK)), None, load), base_url="http://localhost").get("/download/record")
    assert answer.content == b"<script>alert(1)</script>"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment; filename*=UTF-8''%3C%2Fscript%3E")
    assert "x" not in answer.headers


def test_hostile_text_travels_as_json_alone() -> None:
    """Markup in names and values stays text."""
    answer = client({"echo": lambda asked: {MARKUP: asked["x"]}}).get("/api/echo", params={"x": MARKUP})
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {MARKUP: MARKUP}


def test_the_script_makes_no_markup_of_text() -> None:
    """The script has no way to make markup of text, and the page no inline script or style."""
    script = "".join(path.read_text() for path in FILES.glob("*.js") if path.name != "dagre.js")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|setAttribute\(\"on", script)
    page = (FILES / "index.html").read_text()
    assert not re.search(r"<script>|<style| style=| on\w+=|https?://", page)


def test_an_error_shows_no_secret() -> None:
    """A password in an address is masked."""

    def fail(_: Mapping[str, str]) -> None:
        raise UnreachableError("redis://:hunter2secret@host:6379 does not answer", code="TG-X")

    answer = client({"fail": fail}).get("/api/fail")
    assert answer.status_code == 503
    assert "hunter2secret" not in answer.text


def test_an_answer_that_cannot_be_computed_leaves_the_others() -> None:
    """One odd record does not end the page."""

    def fail(_: Mapping[str, str]) -> None:
        raise ValueError("odd record")

    page = client({"fail": fail, "echo": dict})
    assert page.get("/api/fail").status_code == 500
    assert page.get("/api/echo").status_code == 200
    assert page.get("/api/other").status_code == 404


def test_two_clients_cost_what_one_costs() -> None:
    """An answer is kept for a second."""
    asked = []
    page = client({"count": lambda _: asked.append(1)})
    page.get("/api/count")
    page.get("/api/count")
    assert len(asked) == 1


def test_only_topics_of_the_pipeline_are_shown() -> None:
    """Other topics of the brokers are none of the page's business."""
    settings = Settings()
    assert list_names(settings)["topics"] == []
    answer = client(make_answers(settings, Path())).get("/api/messages", params={"topic": "__consumer_offsets"})
    assert answer.status_code == 400
    assert answer.json()["code"] == "TG-SETTING-NAME"


@pytest.mark.parametrize(
    "asked",
    [
        {"late": "5s --config=/etc/passwd"},
        {"touch": "-1"},
        {"reorder": "--limit=1"},
        {"early": "5"},
        {"limit": "0"},
        {"limit": "1 --config=x"},
        {"window": "1m --config"},
        {"late_action": "explode"},
    ],
)
def test_tuning_takes_durations_and_shares_alone(asked: dict[str, str]) -> None:
    """What a client asks becomes no other flag of a command."""
    settings = Settings.model_validate({"inputs": {"cars": {"topic": "cars", "timestamp_by": "at"}}})
    answer = client(make_answers(settings, Path())).get("/api/tune", params={"name": "cars", **asked})
    assert answer.status_code == 400
    assert answer.json()["code"] in ("TG-SETTING-VALUE", "TG-DURATION", "TG-SETTING")


def in_a_terminal(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a person does."""
    return subprocess.run([sys.executable, "-P", "-m", "tidegate", *command], capture_output=True, text=True, check=False, timeout=120)


def test_a_command_that_is_too_slow_for_the_page_answers_in_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TG-UI-SLOW; its fix is played."""
    (tmp_path / "tidegate.toml").write_text("[inputs.i]\ntopic = 'i'\n[outputs.o]\ntopic = 'o'\n")
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "all.sql"
    script.write_text("SELECT a INTO o FROM i TIMESTAMP BY t")
    command = ["lint", str(script)]
    monkeypatch.setattr(page_answers, "_COMMAND_S", 0.01)
    with pytest.raises(RefusedError) as refused:
        page_answers.run_command(command)
    assert (refused.value.code, refused.value.where) == ("TG-UI-SLOW", "lint")
    assert "in a terminal" in refused.value.fix
    done = in_a_terminal(*command)
    assert done.returncode == 0, done.stderr


def test_a_command_that_fails_without_a_code_says_why_in_a_terminal(tmp_path: Path) -> None:
    """TG-UI-COMMAND; its fix is played."""
    command = ["lint", str(tmp_path / "missing.sql")]
    with pytest.raises(RefusedError) as refused:
        page_answers.run_command(command)
    assert refused.value.code == "TG-UI-COMMAND"
    assert "in a terminal" in refused.value.fix
    done = in_a_terminal(*command)
    assert done.returncode != 0
    assert "missing.sql" in done.stdout + done.stderr


def test_a_file_beside_the_page_is_not_served() -> None:
    """Only scripts, styles and the icon have addresses."""
    for path in ("/dagre.LICENSE", "/index.html", "/../server.py", "/%2e%2e/server.py"):
        assert client().get(path).status_code == 404


def test_a_run_shows_the_page_and_a_taken_port_does_not_stop_it() -> None:
    """The first run has the port; a second one goes on without a page; once the first has ended, the port is free."""
    with page_beside(Settings(), Path(), [], 0) as address:
        port = int(address.rpartition(":")[2])
        with urllib.request.urlopen(f"{address}/api/names", timeout=20) as answer:
            assert json.load(answer) == {"inputs": [], "outputs": [], "topics": [], "letters": []}
        with page_beside(Settings(), Path(), [], port) as other:
            assert other == ""
    with page_beside(Settings(), Path(), [], port) as again:
        assert again == address


@contextlib.contextmanager
def command(folder: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """Run ``tidegate ui`` with a token; end it."""
    (folder / "tidegate.toml").touch()
    line = [sys.executable, "-P", "-m", "tidegate", "ui", *flags]
    own = os.environ | {"TIDEGATE_UI_TOKEN": TOKEN}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(line, cwd=folder, env=own, text=True, **pipes) as server:  # type: ignore[call-overload]
        try:
            yield server
        finally:
            server.terminate()


def test_with_a_certificate_the_page_speaks_tls_alone_and_logs_no_token(tmp_path: Path) -> None:
    """Whoever trusts the authority reads it, with the token; nobody else does."""
    authority = Authority(tmp_path)
    keys = authority.issue("page")
    with command(tmp_path, "--port", "0", "--certificate", str(keys.certificate_file), "--key", str(keys.key_file)) as server:
        assert server.stdout is not None
        said = server.stdout.readline()
        address = said.split()[-1]
        assert address.startswith("https://127.0.0.1:")
        trusting = ssl.create_default_context(cafile=authority.ca_file)
        asked = urllib.request.Request(f"{address}/api/names", headers={"authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(asked, timeout=60, context=trusting) as answer:
            assert json.load(answer)["inputs"] == []
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{address}/api/names?token={TOKEN}", timeout=60, context=trusting)
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            urllib.request.urlopen(asked, timeout=60, context=ssl.create_default_context())
        with pytest.raises((urllib.error.URLError, OSError)):
            urllib.request.urlopen(address.replace("https", "http"), timeout=60)
        server.send_signal(signal.SIGINT)
        out, errors = server.communicate(timeout=60)
    assert server.returncode == 0
    assert TOKEN not in said + out + errors
    assert "Traceback" not in errors


def test_what_the_page_cannot_serve_with_is_refused_before_it_says_that_it_serves(tmp_path: Path) -> None:
    """A taken port, a foreign address, and all that is wrong with a certificate, each with what to do."""
    keys, other = Authority(tmp_path).issue("page", password="secret"), Authority(tmp_path, "another").issue("other")
    missing, empty = tmp_path / "missing.pem", tmp_path / "empty.pem"
    empty.touch()
    own, foreign = str(other.certificate_file), str(other.key_file)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        wrong: list[tuple[str, list[str]]] = [
            ("TG-SETTING-PORT", ["--port", port]),
            ("TG-SETTING-PORT", ["--port", "0", "--host", "192.0.2.1"]),
            ("TG-SETTING-FLAG", ["--key", foreign]),
            ("TG-SETTING-FILE", ["--certificate", str(missing)]),
            ("TG-SETTING-FILE", ["--certificate", str(empty)]),
            ("TG-SETTING-FILE", ["--certificate", own]),
            ("TG-SETTING-FILE", ["--certificate", str(keys.certificate_file), "--key", foreign]),
            ("TG-SETTING-FILE", ["--certificate", str(keys.certificate_file), "--key", str(keys.key_file)]),
        ]
        for code, flags in wrong:
            with command(tmp_path, *flags) as server:
                out, errors = server.communicate(timeout=60)
            assert (server.returncode, out) == (2, ""), flags
            assert json.loads(errors)["error"]["code"] == code, flags
