"""Which scripts ``tidegate verify`` computes an output by."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordering.errors import SettingError
from query.verify.scripts import add_configured_scripts, read_scripts
from tidegate.platform.settings.load import Settings, load

TABLES = """
[inputs.taxis]

[outputs.rides]
topic = "rides"
query = "rides.sql"

[outputs.totals]
topic = "totals"
query = "totals.sql"

[outputs.others]
topic = "others"
query = "there is none.sql"
"""
RIDES = "SELECT car, COUNT(*) AS n FROM taxis GROUP BY car, TumblingWindow(minute, 1)"
TOTALS = "SELECT SUM(n) AS n FROM rides GROUP BY TumblingWindow(hour, 1)"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A chain of two outputs, each with its script, and one whose script is gone."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("tidegate.toml", TABLES), ("rides.sql", RIDES), ("totals.sql", TOTALS), ("other.sql", f"{RIDES} HAVING n > 1")):
        Path(name).write_text(text)
    return load(env={})


def test_the_scripts_of_the_settings_are_those_of_the_target_and_of_what_it_reads(settings: Settings) -> None:
    """Scripts of other outputs are not read: they may be missing."""
    assert add_configured_scripts(settings, {}, "rides").keys() == {"rides"}
    assert add_configured_scripts(settings, {}, "totals").keys() == {"rides", "totals"}
    assert add_configured_scripts(settings, {}, "taxis") == {}


def test_a_script_that_is_named_comes_before_that_of_the_settings(settings: Settings) -> None:
    """A verification may be given the script as it was."""
    named = add_configured_scripts(settings, read_scripts(settings, ["rides=other.sql"]), "totals")
    assert named["rides"] != add_configured_scripts(settings, {}, "totals")["rides"]
    assert named.keys() == {"rides", "totals"}
    with pytest.raises(SettingError, match="two scripts write INTO rides"):
        read_scripts(settings, ["rides=other.sql", "rides=rides.sql"])
