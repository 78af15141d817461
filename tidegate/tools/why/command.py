"""
The command ``tidegate why``: what the next results of an output wait for.

Law: it reads Kafka, Redis and the configuration; no job notices but for the details that it is asked for. Exit code 1: something has to be
done, since no time will end the wait.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ordering.ticks import INFINITY, MILLISECOND_US, format_duration, format_tick
from tidegate.platform.observe.console import Format, print_json
from tidegate.platform.observe.terminal import print_lines

if TYPE_CHECKING:
    from tidegate.tools.why.facts import OutputFacts
    from tidegate.tools.why.holds import Hold


def why(
    name: Annotated[str, typer.Argument(metavar="OUTPUT", help="Which [outputs.NAME].")],
    at: Annotated[str | None, typer.Option(metavar="TIME", help="Results of this time; default: the next ones.")] = None,
    key: Annotated[str | None, typer.Option(help="Results of this substream.")] = None,
    config: Annotated[Path | None, typer.Option(help="Configuration file; default: tidegate.toml here.")] = None,
    assign: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: redis.url=redis://host:6379/0")] = None,
    format: Annotated[Format, typer.Option("--format", help="What is printed; json: one object.")] = Format.TEXT,
) -> None:
    """Show what the next results of an output wait for, since when, and until when at the latest."""
    from tidegate.platform.checkpoint.output_start import parse_time_flag
    from tidegate.platform.kafka.admin import Admin
    from tidegate.platform.observe.progress_store import ProgressStore
    from tidegate.platform.settings.load import load_assigned
    from tidegate.tools.why.gather import Gathering
    from tidegate.tools.why.holds import find_holds

    settings = load_assigned(config, assign)
    at_us = None if at is None else parse_time_flag(at, "--at")
    admin = Admin.connect(settings.kafka)
    now_us = time.time_ns() // 1_000
    with ProgressStore(settings.redis) as store:
        facts = Gathering(settings, admin, store, config.parent if config is not None else Path()).output_facts(name, now_us, key, at_us)
    holds = find_holds(facts, now_us)
    if format is Format.JSON:
        print_json(as_dict(facts, holds, now_us))
    else:
        print_lines([*_lines(facts, holds), *_delay_lines(facts, now_us)])
    if any(hold.until_us is None and hold.cause not in ("behind", "slow", "waiting") for hold in holds):
        raise typer.Exit(1)


def as_dict(facts: OutputFacts, holds: tuple[Hold, ...], now_us: int) -> dict[str, Any]:
    """Return the answer for programs."""
    from tidegate.tools.why.delay import split_delay

    delay = split_delay(facts, now_us)
    complete = "ended" if facts.has_ended else format_tick(facts.complete_us) if facts.complete_us > 0 else None
    due = None if facts.due_us == INFINITY else format_tick(facts.due_us)
    answer = {"output": facts.name, "complete": complete, "due": due, "key": facts.key, "holds": [hold.to_json() for hold in holds]}
    return answer | {"delay_s": None if delay is None else round(sum(delay.values()), 3), "delay_by_cause_s": delay}


def _delay_lines(facts: OutputFacts, now_us: int) -> list[str]:
    """Return a line that says what the results' distance from the clock is made of; none if nothing is complete yet."""
    from tidegate.tools.why.delay import split_delay

    delay = split_delay(facts, now_us)
    if delay is None or not sum(delay.values()):
        return []
    parts = ", ".join(f"{cause} {_span(seconds)}" for cause, seconds in delay.items() if seconds)
    return [f"  {_span(sum(delay.values()))} behind the clock: {parts}"]


def _span(seconds: float) -> str:
    return format_duration(round(seconds * 1_000) * MILLISECOND_US)


def _lines(facts: OutputFacts, holds: tuple[Hold, ...]) -> list[str]:
    if facts.has_ended:
        return [f"{facts.name} has ended: all its results are published"]
    is_begun = facts.complete_us > 0
    published = f"results before {format_tick(_whole(facts.complete_us))} are published" if is_begun else "no result is published"
    if not holds:
        return [f"{facts.name}: {published}; nothing holds those of {format_tick(facts.due_us)}"]
    return [f"{facts.name}: {published}. Those of {format_tick(_whole(facts.due_us))} wait:", *(f"  {hold.in_words}" for hold in holds)]


def _whole(us: int) -> int:
    return us // MILLISECOND_US * MILLISECOND_US
