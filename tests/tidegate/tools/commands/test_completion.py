"""Completion at the prompt: commands, options, inputs, outputs and topics; by a real bash, and by the protocol of the others."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from ordering.errors import SettingError
from tidegate.tools.commands.completion import FILES, NAMES, answer, install, parameters_of, show_script
from tidegate.tools.commands.main import GROUP, load_command

TABLES = """
kafka.bootstrap = "127.0.0.1:1"
[inputs.taxis]
topic = "raw"
[inputs.trams]
[outputs.rides]
topic = "rides"
"""
COMMANDS = {entry.name: entry for entry in entry_points(group=GROUP) if entry.dist is not None and entry.dist.name == "tidegate"}
FREE = {"config.path", "explain.places", "skip.place", "journal.action"}
"""Arguments that name what cannot be known before."""


def offered(*words: str) -> list[str]:
    """Return the words that are offered, without their help."""
    lines = answer(words, COMMANDS, lambda name: f"help of {name}", lambda name: load_command(COMMANDS[name]))
    return [line.partition(" ")[0] for line in lines]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a configuration, whose brokers are away."""
    (tmp_path / "tidegate.toml").write_text(TABLES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEGATE_CONFIG", raising=False)
    return tmp_path


def test_commands_and_flags_are_offered() -> None:
    """Those that begin as typed; flags once a dash is typed."""
    assert offered("pe") == ["peek"]
    assert set(offered("")) == set(COMMANDS)
    assert "--install-completion" in offered("--")
    assert offered("peek", "x", "--fo") == ["--follow", "--format"]
    assert "--no-ctis" in offered("peek", "--n")
    assert offered("no-such-command", "") == []


def test_inputs_outputs_and_topics_are_offered(project: Path) -> None:
    """As the configuration names them, another one too; without the brokers its own topics are known all the same."""
    assert offered("ingest", "") == ["taxis", "trams"]
    assert offered("ingest", "taxis", "") == ["trams"]
    assert offered("query", "q.sql", "--into", "") == ["rides"]
    assert offered("query", "--into=r") == ["--into=rides"]
    assert offered("status", "t") == ["taxis", "trams"]
    topics = ["raw", "raw.ordered", "raw.ordered.dead", "rides", "trams", "trams.ordered", "trams.ordered.dead"]
    assert offered("peek", "") == topics
    assert offered("peek", "--follow", "trams.") == topics[-2:]
    (project / "other.toml").write_text("[inputs.cars]\n")
    assert offered("ingest", "--config", "other.toml", "") == ["cars"]
    (project / "tidegate.toml").write_text("[inputs.cars")
    assert offered("ingest", "") == []


def test_choices_and_files_are_offered() -> None:
    """The values of choices; files where a path is meant, and where it may be."""
    assert offered("topic", "d") == ["describe", "delete"]
    assert offered("peek", "--format", "j") == ["json"]
    assert offered("lint", "") == [FILES]
    assert FILES in offered("query", "")
    assert offered("up", "") == []


def test_every_argument_of_a_command_is_thought_of() -> None:
    """A new one is added to the table of names, is a path or a choice, or is known to be free; and the table names no others."""
    found = set()
    for name, entry in COMMANDS.items():
        for parameter in parameters_of(load_command(entry)):
            place = f"{name}.{parameter.name}"
            found.add(place)
            if not parameter.flags and not parameter.choices and not parameter.is_path:
                assert place in NAMES or place in FREE or FILES in offered(name, ""), place
    assert {place for place in NAMES if place.partition(".")[0] in COMMANDS} - found == set()


@pytest.mark.parametrize(
    ("line", "replies"),
    [
        ("tidegate pe", ["peek"]),
        ("tidegate ingest ", ["taxis", "trams"]),
        ("tidegate query --into=", ["rides"]),
        ("tidegate peek trams.o", ["trams.ordered", "trams.ordered.dead"]),
    ],
)
def test_bash_completes_a_line(project: Path, line: str, replies: list[str]) -> None:
    """The script as it is installed, in a real bash; of a word with = the part behind it is replaced."""
    program = f"#!{sys.executable} -P\nfrom tidegate.tools.commands.main import main\nmain()\n"
    (folder := project / "bin").mkdir()
    (folder / "tidegate").write_text(program)
    (folder / "tidegate").chmod(0o755)
    script = 'source <(tidegate --show-completion bash)\nCOMP_LINE="$1"; COMP_POINT=${#COMP_LINE}\n_tidegate_completion\n'
    script += 'printf "%s\\n" "${COMPREPLY[@]}"\n'
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script, "bash", line], env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == replies, done.stderr


def test_help_of_an_offer_follows_behind_a_space(project: Path) -> None:
    """The answer of the program itself, as zsh and fish read it."""
    environment = os.environ | {"_TIDEGATE_COMPLETE": "fish"}
    command = [sys.executable, "-P", "-m", "tidegate", "pee"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "peek Show the newest records of a topic: raw, ordered, results, dead letters.\n"


@pytest.mark.parametrize("words", [["in"], ["ingest", ""]])
def test_completion_of_names_loads_little(project: Path, words: list[str]) -> None:
    """Neither settings nor Arrow, Kafka's client or Spark: a shell asks at each key."""
    program = (
        f"import sys, os; sys.argv = ['tidegate', *{words!r}]; os.environ['_TIDEGATE_COMPLETE'] = 'bash'\n"
        "from tidegate.tools.commands.main import main\nmain()\n"
        "print('loaded:', *sorted({'pyspark', 'pandas', 'pyarrow', 'confluent_kafka', 'duckdb', 'pydantic'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60).stdout
    assert shown.rstrip().endswith("loaded:")


@pytest.mark.parametrize(("shell", "profile"), [("bash", ".bashrc"), ("zsh", ".zshrc"), ("fish", None)])
def test_installing_writes_the_script_and_one_line(tmp_path: Path, shell: str, profile: str | None) -> None:
    """Twice is as good as once; what stood in the shell's file stays."""
    if profile:
        (tmp_path / profile).write_text("alias x=y")
    for _ in range(2):
        file = install(shell, tmp_path)
    assert file.read_text() == show_script(shell)
    if profile:
        lines = (tmp_path / profile).read_text().splitlines()
        assert lines[0] == "alias x=y"
        assert lines.count(f"source {file}") == 1


def test_what_cannot_be_installed_is_told(tmp_path: Path) -> None:
    """A shell without a script, and a home that cannot be written; the way out that is printed works."""
    with pytest.raises(SettingError) as refused:
        install("tcsh", tmp_path)
    assert refused.value.code == "TG-COMPLETION-SHELL"
    (tmp_path / "home").write_text("")
    with pytest.raises(SettingError) as away:
        install("bash", tmp_path / "home")
    assert away.value.code == "TG-COMPLETION-HOME"
    assert away.value.example == "source <(tidegate --show-completion bash)"


def test_the_shell_that_asks_is_found(tmp_path: Path) -> None:
    """Called from a bash, without naming it."""
    environment = os.environ | {"HOME": str(tmp_path), "SHELL": "/bin/none"}
    command = f"{sys.executable} -P -m tidegate --install-completion; true"
    done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert "completion for bash is in" in done.stdout, done.stderr
    assert (tmp_path / ".bash_completions" / "tidegate.sh").exists()
