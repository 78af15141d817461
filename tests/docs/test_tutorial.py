"""
The pages that teach are run: every command and every snippet of them gives what stands there.

The pages are tutorial.md, policies.md, library.md and reading.md of docs/learn; of the front page and of docs/queries/queries.md the
``console`` blocks.

A ``console`` block holds commands after ``$ ``, each followed by all it prints. The ``python`` blocks of a page are one
program, top to bottom; what one of them prints stands in the ``text`` block after it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
from pathlib import Path

import pytest
from support.repository import ROOT
from support.stack.warm_jobs import HOST

PAGES = {name: (ROOT / "docs" / "learn" / f"{name}.md").read_text("utf-8") for name in ("tutorial", "policies", "library", "reading")}
CONSOLE_PAGES = PAGES | {
    "front page": (ROOT / "README.md").read_text("utf-8"),
    "queries": (ROOT / "docs" / "queries" / "queries.md").read_text("utf-8"),
}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LANGUAGES = {"console", "python", "text"}


def blocks(page: str) -> list[tuple[str, str]]:
    """Return (language, content) of every block of a page."""
    return FENCE.findall(CONSOLE_PAGES[page])


def consoles() -> list[object]:
    """Return every block of commands, named by its page and place."""
    return [
        pytest.param(content, id=f"{page}-{at}")
        for page in CONSOLE_PAGES
        for at, (language, content) in enumerate(blocks(page), start=1)
        if language == "console"
    ]


def commands(console: str) -> list[tuple[str, str]]:
    """Return (command, what it prints) of a block; a backslash continues a command on the next line."""
    found = []
    for shown in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        command = re.match(r"(?:.*\\\n)*.*\n", shown)
        assert command
        found.append((command[0], shown[command.end() :]))
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder that looks like this project, with ``tidegate`` on its path; what commands write stays in it."""
    for name in ("tests", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tidegate").symlink_to(HOST.program())
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_page_is_run_or_compared(page: str) -> None:
    """A block of another language, or output that follows nothing, would be shown without being held."""
    languages = [language for language, _ in blocks(page)]
    assert set(languages) <= LANGUAGES
    assert all(languages[at - 1] == "python" for at, language in enumerate(languages) if language == "text")
    assert PAGES[page].count("\n```") == 2 * len(languages)


@pytest.mark.parametrize("page", PAGES)
def test_the_snippets_of_a_page_print_what_stands_there(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page is one program, run from the project's folder."""
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {"__name__": page}
    shown = blocks(page)
    for at, (language, content) in enumerate(shown):
        if language == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(content, f"docs/learn/{page}.md, block {at + 1}", "exec"), names)
            follows = shown[at + 1] if at + 1 < len(shown) else ("", "")
            assert printed.getvalue() == (follows[1] if follows[0] == "text" else "")


@pytest.mark.parametrize("console", consoles())
def test_the_commands_of_a_block_print_what_stands_there(console: str, folder: Path) -> None:
    """Typed one after the other, in a folder with this project's tests. The summary on standard error says how long it took."""
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}
    shown = commands(console)
    assert shown
    for command, prints in shown:
        ran = subprocess.run(["sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60)
        assert (ran.returncode, ran.stdout) == (0, prints), ran.stderr
