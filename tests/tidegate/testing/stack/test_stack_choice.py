"""Which servers a session uses, as the environment asks for it."""

from __future__ import annotations

import pytest

from ordering.errors import SettingError
from tidegate.testing.stack.stack_choice import VARIABLE, find_obstacle


def test_the_embedded_stack_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    """No engine is asked then."""
    monkeypatch.setenv(VARIABLE, "embedded")
    assert find_obstacle("none/such:0") == f"{VARIABLE}=embedded"


def test_containers_that_are_forced_and_cannot_be_had_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an engine, and with one that has no such image; not forced, it is a reason for the embedded stack."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    monkeypatch.setenv(VARIABLE, "containers")
    with pytest.raises(SettingError, match="no Docker engine answers"):
        find_obstacle("none/such:0")
    monkeypatch.delenv(VARIABLE)
    assert find_obstacle("none/such:0") == "no Docker engine answers"


def test_other_words_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the two."""
    monkeypatch.setenv(VARIABLE, "somewhere")
    with pytest.raises(SettingError, match="write containers or embedded"):
        find_obstacle("none/such:0")
