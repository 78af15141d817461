"""The commands ``tidegate up`` and ``tidegate down``: a Kafka and a Valkey in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.observe.console import Format, table_console
from tidegate.stack.embedded import DEFAULT_DIRECTORY, EmbeddedStack

if TYPE_CHECKING:
    from rich.table import Table

    from tidegate.stack.embedded import StackStatus


Directory = Annotated[Path, typer.Option("--dir", envvar="TIDEGATE_STACK_DIR", help="The stack's folder: data, logs, stack.json.")]
Output = Annotated[Format, typer.Option("--format", help="What is printed on standard output.")]
Port = Annotated[int | None, typer.Option(min=1, max=65535, help="Loopback port; default: a free one, then the same again.")]


def up(
    directory: Directory = DEFAULT_DIRECTORY,
    kafka_port: Port = None,
    redis_port: Port = None,
    heap: Annotated[str, typer.Option(envvar="TIDEGATE_STACK_HEAP", help="Largest heap of Kafka, as Java writes it.")] = "1g",
    output: Output = Format.TEXT,
) -> None:
    """Start a real Kafka and a real Valkey in this folder, or find the running ones."""
    from rich.console import Console

    stack = EmbeddedStack(directory, kafka_port, redis_port, heap)
    with Console(stderr=True).status("starting") as spinner:
        stack.start(spinner.update)
    _print_status(stack.status(), output)


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
        typer.echo(json.dumps({"directory": str(stack.directory), "stopped": stopped, "wiped": wipe}))
        return
    typer.echo(f"stopped {' and '.join(stopped)}" if stopped else f"nothing was running in {stack.directory}")
    if wipe:
        typer.echo(f"deleted {stack.directory}")


def _print_status(stack_status: StackStatus, output: Format) -> None:
    if output is Format.JSON:
        typer.echo(json.dumps(stack_status.as_dict()))
        return
    print_services(stack_status)


def print_services(stack_status: StackStatus) -> None:
    """Print the servers of a stack, and its folder."""
    console = table_console()
    console.print(services_table(stack_status))
    console.print(f"[dim]{stack_status.directory}[/dim]", soft_wrap=True)


def services_table(stack_status: StackStatus) -> Table:
    """Return the servers of a stack as a table."""
    from rich import box
    from rich.table import Table

    table = Table("server", "address", "health", "pid", "up for", box=box.SIMPLE)
    for service in stack_status.services:
        health = "[green]answers[/green]" if service.healthy else "[yellow]silent[/yellow]" if service.pid else "[red]down[/red]"
        table.add_row(service.name, service.address or "-", health, str(service.pid or "-"), _format_duration(service.uptime_s))
    return table


def _format_duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    minutes, seconds_left = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds_left} s" if minutes else f"{seconds_left} s"
