"""
Completion at the prompt: ``tidegate --install-completion`` has a shell ask this program what may come next.

The shell calls ``tidegate`` with the words typed so far as arguments, the one to be completed last, and its name in ``_TIDEGATE_COMPLETE``.
The answer has a line for each possible word, with its help behind a space; the line ``:files`` stands for the names of files.

Law: completion changes nothing, asks nothing but the brokers' topics, for a second at most, and never prints an error: what cannot be known
is not offered. Only the command that is completed is loaded.
"""

from __future__ import annotations

import os
import shlex
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from typer.models import ArgumentInfo, OptionInfo

from ordering.errors import SettingError
from tidegate.platform.stack.this_folder import find_stack

VARIABLE = "_TIDEGATE_COMPLETE"
FLAGS = ("--install-completion", "--show-completion")
FILES = ":files"
_TOPICS_WAIT_S = 1.0
# A possible word and its help.
Offer = tuple[str, str]

_SCRIPTS = {
    "bash": """_tidegate_completion() {
    local words cur reply
    # Not COMP_WORDS, which bash cuts at : and =.
    read -ra words <<< "${COMP_LINE:0:COMP_POINT}"
    [[ "${COMP_LINE:0:COMP_POINT}" == *[[:space:]] ]] && words+=("")
    cur="${words[${#words[@]}-1]}"
    COMPREPLY=()
    while read -r reply _; do
        if [[ $reply == :files ]]; then compopt -o default 2>/dev/null; continue; fi
        COMPREPLY+=("${reply#"${cur%"${cur##*[:=]}"}"}")
    done < <(_TIDEGATE_COMPLETE=bash tidegate "${words[@]:1}" 2>/dev/null)
}
complete -F _tidegate_completion tidegate
""",
    "zsh": """#compdef tidegate
_tidegate_completion() {
    local -a offers
    local line files=""
    while IFS= read -r line; do
        if [[ $line == :files ]]; then files=1; continue; fi
        offers+=("${${line%% *}//:/\\\\:}:${line#* }")
    done < <(_TIDEGATE_COMPLETE=zsh tidegate "${(@)words[2,$CURRENT]}" 2>/dev/null)
    (( $#offers )) && _describe tidegate offers
    [[ -n $files ]] && _files
}
compdef _tidegate_completion tidegate
""",
    "fish": """function __tidegate_completion
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    for line in (_TIDEGATE_COMPLETE=fish tidegate $words[2..-1] "$current" 2>/dev/null)
        if test "$line" = ":files"
            __fish_complete_path "$current"
        else
            string replace ' ' \\t -- $line
        end
    end
end
complete -c tidegate -f -a '(__tidegate_completion)'
""",
}
# Where a shell finds the script, below the home folder; and the line of its own file that reads it, unless it does so by itself.
_PLACES = {
    "bash": (".bash_completions/tidegate.sh", ".bashrc"),
    "zsh": (".zfunc/tidegate_completion.zsh", ".zshrc"),
    "fish": (".config/fish/completions/tidegate.fish", ""),
}
# What a script needs before it in the shell's own file.
_NEEDED = {"zsh": "autoload -Uz compinit && compinit\n"}
# What the arguments and options of commands name; others are files, choices, or nothing that can be known.
NAMES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("ingest.names", "journal.name", "skip.name", "tune.name", "profile.name"), ("inputs",)),
    **dict.fromkeys(("sink.name", "why.name", "query.into", "plan.into", "lint.into", "local.into"), ("outputs",)),
    **dict.fromkeys(("reset.name", "explain.name", "status.names", "verify.target", "watermarks.input"), ("inputs", "outputs")),
    **dict.fromkeys(("compare.a", "compare.b"), ("inputs", "topics")),
    **dict.fromkeys(("peek.topic", "topic.name", "produce.places", "new.from_topic"), ("topics",)),
    **dict.fromkeys(("query.script", "plan.script"), ("queries",)),
    "run.stages": ("stages",),
}
# Arguments that may be files too.
_OR_FILES = ("query.script", "plan.script", "produce.places", "order.file")


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument of a command, or an option with its *flags*. *repeats*: it takes several words."""

    name: str
    flags: tuple[str, ...]
    help: str
    takes_value: bool
    repeats: bool
    choices: tuple[str, ...]
    is_path: bool

    @classmethod
    def of(cls, name: str, hint: Any) -> Parameter | None:
        """Return a parameter by its name and type; None if typer does not show it."""
        kinds, infos = _plain_types(hint), getattr(hint, "__metadata__", ())
        info = next((each for each in infos if isinstance(each, ArgumentInfo | OptionInfo)), None)
        if info is None or info.hidden:
            return None
        is_flag = bool in kinds
        flags: tuple[str, ...] = ()
        if isinstance(info, OptionInfo):
            usual = f"--{name.replace('_', '-')}"
            # Inside of Annotated the first of the given flags stands where the default would.
            texts = (text for text in (info.default, *(info.param_decls or ())) if isinstance(text, str))
            given = [flag for text in texts for flag in text.split("/") if flag.startswith("-")]
            flags = tuple(given) or ((usual, usual.replace("--", "--no-", 1)) if is_flag else (usual,))
        choices = tuple(str(each.value) for kind in kinds if isinstance(kind, type) and issubclass(kind, Enum) for each in kind)
        return cls(name, flags, " ".join((info.help or "").split()), not is_flag, list in kinds, choices, Path in kinds)


def _plain_types(hint: Any) -> set[Any]:
    """Return the types of a hint: ``{list, str, NoneType}`` of ``Annotated[list[str] | None, ...]``."""
    inner = get_args(hint)
    if get_origin(hint) is Annotated:
        return _plain_types(inner[0])
    if not inner:
        return {hint}
    own = {get_origin(hint)} - {Union, UnionType}
    return own.union(*map(_plain_types, inner))


def parameters_of(command: Callable[..., object]) -> list[Parameter]:
    """Return the arguments and options of a command, a function with typer's annotations, in its order."""
    hints = get_type_hints(command, include_extras=True)
    return [each for name, hint in hints.items() if (each := Parameter.of(name, hint)) is not None]


def answer(
    words: Sequence[str], commands: Iterable[str], describe: Callable[[str], str], load: Callable[[str], Callable[..., object]]
) -> Iterator[str]:
    """
    Yield the lines of the answer.

    Args:
        words: The words after ``tidegate``; the last is to be completed.
        commands: The names of all commands.
        describe, load: Called for the help of a command, and for its function.
    """
    current = words[-1] if words else ""
    if len(words) < 2:
        # Flags are offered once a dash is typed.
        flags = [flag for flag in ("--help", "--version", *FLAGS) if current and flag.startswith(current)]
        yield from _lines([*((name, describe(name)) for name in commands if name.startswith(current)), *((flag, "") for flag in flags)])
        return
    with suppress(Exception):
        yield from _lines(_offers(words[0], parameters_of(load(words[0])), words[1:-1], current))


def _lines(offers: Iterable[Offer]) -> Iterator[str]:
    return (word if word == FILES else f"{word} {help}" for word, help in offers)


def _offers(command: str, parameters: Sequence[Parameter], before: Sequence[str], current: str) -> Iterator[Offer]:
    """Yield what may stand in place of *current*, behind the words *before* of a command."""
    options = {flag: parameter for parameter in parameters for flag in parameter.flags}
    flag, equals, value = current.partition("=")
    if equals and flag in options:
        for word, help in _values(command, options[flag], before, value):
            yield (word if word == FILES else f"{flag}={word}", help)
    elif before and _takes_value(options.get(before[-1])):
        yield from _values(command, options[before[-1]], before, current)
    elif current.startswith("-"):
        yield from ((flag, option.help) for flag, option in options.items() if flag.startswith(current))
        if "--help".startswith(current):
            yield "--help", ""
    else:
        # The words that are neither options nor their values.
        place = sum(
            not word.startswith("-") and not (index and _takes_value(options.get(before[index - 1]))) for index, word in enumerate(before)
        )
        arguments = [parameter for parameter in parameters if not parameter.flags]
        if place < len(arguments) or (arguments and arguments[-1].repeats):
            yield from _values(command, arguments[min(place, len(arguments) - 1)], before, current)


def _takes_value(option: Parameter | None) -> bool:
    return option is not None and option.takes_value


def _values(command: str, parameter: Parameter, before: Sequence[str], current: str) -> Iterator[Offer]:
    """Yield the values of an argument or option that begin with *current*."""
    place = f"{command}.{parameter.name}"
    kinds = NAMES.get(place, ())
    given = set(before) if parameter.repeats else set()
    found = dict.fromkeys(name for kind in kinds for name in _known(kind, before))
    yield from ((name, "") for name in (*found, *parameter.choices) if name.startswith(current) and name not in given)
    if place in _OR_FILES or (parameter.is_path and not kinds):
        yield FILES, ""


def _known(kind: str, before: Sequence[str]) -> list[str]:
    """Return the names of inputs, outputs, queries, stages or topics."""
    tables = _read_tables(before)
    if kind == "topics":
        return sorted({*_configured_topics(tables), *_topics_of_brokers(tables, before)})
    if kind == "stages":
        prefixes = {"inputs": "ingest", "queries": "query", "outputs": "sink"}
        return [f"{stage}:{name}" for section, stage in prefixes.items() for name in _table(tables, section) if stage != "sink"]
    return list(_table(tables, kind))


def _configuration(before: Sequence[str]) -> Path | None:
    """Return the configuration file that the words name, or that is used without a name; None if it is not there."""
    named = [value for flag, value in pairwise(before) if flag == "--config"]
    named += [word.removeprefix("--config=") for word in before if word.startswith("--config=")]
    path = Path(named[-1] if named else os.environ.get("TIDEGATE_CONFIG") or "tidegate.toml")
    return path if path.is_file() else None


def _read_tables(before: Sequence[str]) -> Mapping[str, Any]:
    path = _configuration(before)
    with suppress(OSError, ValueError):
        return tomllib.loads(path.read_text("utf-8")) if path is not None else {}
    return {}


def _table(tables: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = tables.get(name)
    return table if isinstance(table, dict) else {}


def _configured_topics(tables: Mapping[str, Any]) -> Iterator[str]:
    """Yield the topics of a configuration, with the names that they have by default."""
    for name, table in _table(tables, "inputs").items():
        settings = table if isinstance(table, dict) else {}
        given = settings.get("topic", name)
        topics = given if isinstance(given, list) else [given]
        ordered = settings.get("ordered_topic", f"{topics[0] if len(topics) == 1 else name}.ordered")
        yield from map(str, (*topics, ordered, settings.get("dead_letter_topic", f"{ordered}.dead")))
    for table in _table(tables, "outputs").values():
        yield from (str(table[key]) for key in ("topic", "plain_topic") if isinstance(table, dict) and key in table)


def _topics_of_brokers(tables: Mapping[str, Any], before: Sequence[str]) -> list[str]:
    """Return the topics that the brokers show; none if they do not answer soon. Settings, slow to load, are read only for a login."""
    from confluent_kafka.admin import AdminClient

    kafka = _table(tables, "kafka")
    with suppress(Exception):
        properties: dict[str, Any] = {"bootstrap.servers": _bootstrap(kafka, before)}
        if "client" in kafka or any(name.startswith("TIDEGATE_KAFKA__CLIENT") for name in os.environ):
            from tidegate.platform.settings.load import load

            properties = load(_configuration(before)).kafka.client_properties()
        client = AdminClient({**properties, "log_level": 2})
        return [name for name in client.list_topics(timeout=_TOPICS_WAIT_S).topics if not name.startswith("__")]
    return []


def _bootstrap(kafka: Mapping[str, Any], before: Sequence[str]) -> str:
    """Return the address of the brokers: by words, environment or configuration, else that of this folder's stack, else the usual one."""
    given = [word.partition("=")[2] for word in before if word.startswith("kafka.bootstrap=")]
    known: str | None = given[-1] if given else os.environ.get("TIDEGATE_KAFKA__BOOTSTRAP") or kafka.get("bootstrap")
    if known is None and (stack := find_stack()) is not None:
        known = stack.bootstrap
    return known or "localhost:9092"


def show_script(shell: str) -> str:
    """Return the script by which a shell asks. Raises SettingError: it is none that has one."""
    if shell not in _SCRIPTS:
        what, example = f"there is no completion for {shell or 'this shell'}", f"tidegate {FLAGS[0]} bash"
        fix = f"name one of {', '.join(_SCRIPTS)}"
        raise SettingError(what, code="TG-COMPLETION-SHELL", where=FLAGS[0], fix=fix, example=example)
    return _SCRIPTS[shell]


def install(shell: str, home: Path) -> Path:
    """
    Write the script of a shell below a home folder, and have the shell read it; return its file. Raises SettingError: there is no such
    script (TG-COMPLETION-SHELL), or the folder cannot be written (TG-COMPLETION-HOME).
    """
    text = show_script(shell)
    file, profile = _PLACES[shell]
    path = home / file
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        if profile:
            _add_line(home / profile, f"source {shlex.quote(str(path))}", _NEEDED.get(shell, ""))
    except OSError as error:
        what, fix = f"the completion cannot be installed: {error.strerror}", "make the folder writable, or read the script yourself"
        example = f"source <(tidegate {FLAGS[1]} {shell})"
        raise SettingError(what, code="TG-COMPLETION-HOME", where=str(path), fix=fix, example=example) from None
    return path


def _add_line(profile: Path, line: str, before: str) -> None:
    """Add a line to a file of the shell, unless it is there."""
    text = profile.read_text("utf-8", "surrogateescape") if profile.exists() else ""
    if line in text.splitlines():
        return
    needed = "" if before.strip() in text or not before else before
    with profile.open("a", encoding="utf-8", errors="surrogateescape") as file:
        file.write(f"{'' if not text or text.endswith(chr(10)) else chr(10)}{needed}{line}\n")


def shell_of_parent() -> str:
    """Return the name of the shell that has started this process, else that of ``SHELL``; empty if neither is known."""
    with suppress(OSError, IndexError):
        name = Path(f"/proc/{os.getppid()}/comm").read_text("utf-8").strip()
        if name in _SCRIPTS:
            return name
    return Path(os.environ.get("SHELL", "")).name
