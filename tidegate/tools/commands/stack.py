"""The commands ``tidegate up`` and ``tidegate down``: a Kafka and a Valkey in a folder."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.platform.observe.console import Format
from tidegate.platform.observe.terminal import Styled, TextColumn, TextTable, print_lines, print_text, standard_error, standard_output
from tidegate.platform.stack.embedded import DEFAULT_DIRECTORY, EmbeddedStack

if TYPE_CHECKING:
    from tidegate.platform.stack.embedded import StackStatus


Directory = Annotated[Path, typer.Option("--dir", envvar="TIDEGATE_STACK_DIR", help="The stack's folder: data, logs, stack.json.")]
Output = Annotated[Format, typer.Option("--format", help="What is printed on standard output.")]
Port = Annotated[
    int | None, typer.Option(min=1, max=65535, help="Loopback port; default: the usual one or any free one, then the same again.")
]


class Address(StrEnum):
    """An address that ``--print`` prints."""

    BOOTSTRAP = "bootstrap"
    REDIS = "redis"


def _check_heap(heap: str) -> str:
    if not re.fullmatch(r"\d{1,9}[kKmMgG]?", heap):
        raise typer.BadParameter("write a number and k, m or g, such as 512m")
    return heap


def up(
    directory: Directory = DEFAULT_DIRECTORY,
    kafka_port: Port = None,
    redis_port: Port = None,
    heap: Annotated[
        str, typer.Option(envvar="TIDEGATE_STACK_HEAP", callback=_check_heap, help="Largest heap of Kafka, as Java writes it.")
    ] = "1g",
    address: Annotated[
        Address | None, typer.Option("--print", help="Print this address alone, for other programs; that of redis with its password.")
    ] = None,
    output: Output = Format.TEXT,
) -> None:
    """Start a real Kafka and a real Valkey in this folder, or find the running ones."""
    stack = EmbeddedStack(directory, kafka_port, redis_port, heap, usual_ports=True, with_password=True)
    with standard_error().spinner("starting") as update:
        stack.start(update)
    if address is not None:
        print_lines([stack.bootstrap if address is Address.BOOTSTRAP else stack.redis_url])
    elif output is Format.JSON:
        print_text(json.dumps(stack.status().as_dict()) + "\n")
    else:
        print_services(stack.status())


def down(
    directory: Directory = DEFAULT_DIRECTORY,
    wipe: Annotated[bool, typer.Option("--wipe", help="Delete the stack's data, logs and configuration too.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Stop the Kafka and the Valkey of this folder."""
    stack = EmbeddedStack(directory)
    stopped = [service.name for service in stack.status().services if service.pid is not None]
    stack.stop(wipe)
    if output is Format.JSON:
        print_text(json.dumps({"directory": str(stack.directory), "stopped": stopped, "wiped": wipe}) + "\n")
        return
    print_lines([f"stopped {' and '.join(stopped)}" if stopped else f"nothing was running in {stack.directory}"])
    if wipe:
        print_lines([f"deleted {stack.directory}"])


@contextmanager
def own_stack() -> Iterator[None]:
    """Start the servers of this folder, and stop them afterwards; servers that run already are used and left running."""
    stack = EmbeddedStack(DEFAULT_DIRECTORY, usual_ports=True, with_password=True)
    was_running = all(service.healthy for service in stack.status().services)
    with standard_error().spinner("starting") as update:
        stack.start(update)
    try:
        yield
    finally:
        if not was_running:
            stack.stop(False)


def print_services(stack_status: StackStatus) -> None:
    """Print the servers of a stack, and its folder."""
    terminal = standard_output()
    terminal.table(services_table(stack_status))
    terminal.line(Styled(str(stack_status.directory), "dim"))


def services_table(stack_status: StackStatus) -> TextTable:
    """Return the servers of a stack as a table."""
    table = TextTable([TextColumn(name) for name in ("server", "address", "health", "pid", "up for")])
    for service in stack_status.services:
        health = Styled("answers", "green") if service.healthy else Styled("silent", "yellow") if service.pid else Styled("down", "red")
        table.add(service.name, service.address or "-", health, str(service.pid or "-"), _format_duration(service.uptime_s))
    return table


def _format_duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    minutes, seconds_left = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds_left} s" if minutes else f"{seconds_left} s"
