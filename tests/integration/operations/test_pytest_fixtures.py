"""
The fixtures that Tidegate gives to tests of others, in a session of pytest as a user has it, outside the checkout. Level 1: the same bytes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# It starts servers and five JVMs of its own, as a user's session does.
pytestmark = [pytest.mark.integration, pytest.mark.heavy, pytest.mark.deep]

USERS_TEST = '''
import json

import pytest

INPUT = """
[inputs.{name}]
topic = "rides"
timestamp_by = "at"
ordered_topic = "{name}"
reorder = "{reorder}"
"""


def test_a_kill_changes_nothing(tidegate_stack, kill_and_restart, assert_same_bytes, virtual_time, tmp_path):
    inputs = {"calm": "3s", "killed": "3s", "other": "1s"}
    (tmp_path / "tidegate.toml").write_text("".join(INPUT.format(name=name, reorder=reorder) for name, reorder in inputs.items()))
    lines = []
    for number in range(2000):
        virtual_time.advance("1s")
        lines.append(json.dumps(virtual_time.event(k=number, late=f"{number % 3 * 2}s")))
    (tmp_path / "rides.ndjson").write_text("\\n".join(lines))
    create = ["topic", "create", "rides", "--timestamp-type", "create"]
    produce = ["produce", "rides.ndjson", "rides", "--timestamp-by", "EventEnqueuedUtcTime"]
    for command in (create, produce, ["ingest", "calm", "--until-end"], ["ingest", "other", "--until-end"]):
        done = tidegate_stack.run(*command, folder=tmp_path)
        assert done.returncode == 0, done.stderr
    assert kill_and_restart(["ingest", "killed", "--until-end"])
    assert_same_bytes("calm", "killed")
    with pytest.raises(AssertionError, match="ended before it was seen to write"):
        kill_and_restart(["config"])
    assert not kill_and_restart(["config"], after_s=60)
    with pytest.raises(AssertionError, match="other"):
        assert_same_bytes("calm", "other")
'''


def test_a_users_session_has_them(tmp_path: Path) -> None:
    """A stage that was killed writes what one writes that was not; a topic under other policies is told from it."""
    (tmp_path / "test_rides.py").write_text(USERS_TEST)
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "temp"), "test_rides.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
