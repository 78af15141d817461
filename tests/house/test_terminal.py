"""Text reaches the terminal through one door, which shows foreign text and obeys none of it."""

from __future__ import annotations

import ast
import json
import unicodedata
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hostile_text import HOSTILE, commands_in
from support.repository import ROOT

from tidegate.basics.visible_text import visible, visible_lines

PACKAGES = ("ordering", "ingest", "query", "sinks", "tidegate")
DOOR = "tidegate/platform/observe/terminal.py"
STREAMS = {
    DOOR: "the door",
    "ordering/conformance/command.py": "answers of a conformance run, read by a program",
    "sinks/console.py": "results, each passed through visible()",
    "tidegate/platform/observe/console.py": "hands standard error to the door",
    "tidegate/platform/observe/logs.py": "log lines, passed through visible() by the last processor",
    "tidegate/platform/kafka/batch_probe.py": "the answer of a process, read by the one that started it",
    "tidegate/basics/own_packages.py": "says why nothing can be imported, the door neither; passed through visible_lines()",
    "tidegate/records/files/output.py": "results: bytes for files and pipes, passed through visible_lines() for a terminal",
    "tidegate/records/files/summary.py": "hands standard error to the door",
    "tidegate/platform/spark/early_session.py": "gives standard error a descriptor of its own",
    "tidegate/platform/spark/launch/python_host.py": "flushes what a forked process of Spark has printed",
    "tidegate/platform/stack/jars.py": "a path of this machine, read by a build",
}
"""Who may name a standard stream, and why."""
PRINTERS = {
    "ordering/conformance/command.py": "a program of its own, for authors of other implementations",
    "tidegate/basics/own_packages.py": "as above",
}
"""Who may call print."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Yield every module with its place in the repository."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text("utf-8"))


def roads(tree: ast.Module) -> Iterator[str]:
    """Yield the roads by which a module reaches a terminal: ``rich``, ``print``, ``echo``, ``stream``."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names) if any(name.name.partition(".")[0] == "rich" for name in names):
                yield "rich"
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] == "rich":
                yield "rich"
            case ast.ImportFrom(module="sys", names=names) if any(name.name in ("stdout", "stderr") for name in names):
                yield "stream"
            case ast.Name(id="print"):
                yield "print"
            case ast.Attribute(attr="echo" | "secho" | "echo_via_pager"):
                yield "echo"
            case ast.Attribute(value=ast.Name(id="sys"), attr="stdout" | "stderr" | "__stdout__" | "__stderr__"):
                yield "stream"


def test_only_the_door_prints() -> None:
    """Nobody else uses rich, print or echo, and the standard streams only for the reason given above."""
    allowed = {("rich", DOOR), *(("stream", path) for path in STREAMS), *(("print", path) for path in PRINTERS)}
    found = {(road, path) for path, tree in modules() for road in roads(tree)}
    assert found - allowed == set(), "print through tidegate/platform/observe/terminal.py"
    assert allowed - found == set(), "what is allowed here is used nowhere"


@pytest.mark.parametrize(
    "text", ["import rich.table", "from rich import box", "print(1)", "typer.echo(1)", "sys.stderr.write('')", "from sys import stdout"]
)
def test_each_road_is_found(text: str) -> None:
    """The rule can fail."""
    assert list(roads(ast.parse(text)))


def test_markup_is_off_wherever_a_console_is_made() -> None:
    """In the door itself: each console and each column of text says so."""
    tree = ast.parse((ROOT / DOOR).read_text("utf-8"))
    made = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("Console", "TextColumn")]
    assert len(made) == 3
    for call in made:
        assert {(keyword.arg, ast.unparse(keyword.value)) for keyword in call.keywords} >= {("markup", "False")}, ast.unparse(call)


@given(st.text())
def test_what_is_visible_is_one_line_that_no_terminal_obeys(text: str) -> None:
    """Whatever the text; what has a shape stays as it is, and it can be encoded."""
    shown = visible(text)
    assert {unicodedata.category(character) for character in commands_in(shown)} <= {"Zs"}
    assert "\n" not in shown
    shown.encode("utf-8")
    if text.isprintable():
        assert shown == text


@given(st.recursive(st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_stays_the_same_json(value: object) -> None:
    """Escapes are those of JSON, so programs read what was written."""
    assert json.loads(visible(json.dumps(value, ensure_ascii=False))) == value


def test_lines_of_our_own_stay_lines() -> None:
    """Only the line feed; a carriage return would overwrite the line."""
    assert visible_lines("a\nb\r\nc\u2028d") == "a\nb\\r\nc\\u2028d"
    assert commands_in(visible_lines(HOSTILE)) == []
    assert "\N{SNOWMAN}" in visible(HOSTILE)
