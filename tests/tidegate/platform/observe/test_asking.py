"""What is deleted is asked for: on a terminal by a question, elsewhere by a flag."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from ordering.errors import SettingError
from tidegate.platform.observe.console import Format, confirm_deletion

PROGRAM = """\
from tidegate.platform.observe.console import Format, confirm_deletion
print("wanted" if confirm_deletion("tidegate reset rides", Format.TEXT) else "kept")
"""


@pytest.mark.parametrize(("answer", "printed"), [(b"y\n", "wanted"), (b"n\n", "kept"), (b"\n", "kept")])
def test_a_terminal_is_asked_and_only_a_yes_deletes(answer: bytes, printed: str) -> None:
    """Without an answer nothing goes."""
    terminal, program_side = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=program_side, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    os.close(program_side)
    os.write(terminal, answer)
    out, errors = process.communicate(timeout=60)
    os.close(terminal)
    assert "Delete all of this? [y/N]" in errors
    assert out.strip() == printed


@pytest.mark.parametrize("format", Format)
def test_nobody_can_be_asked_without_a_terminal(format: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor if a program reads the answer; the flag that says yes is shown."""
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: SIM115, PTH123 - closed with the test's process
    with pytest.raises(SettingError) as refused:
        confirm_deletion("tidegate reset rides", format)
    assert refused.value.example == "tidegate reset rides --yes"
