"""
The command ``tidegate skip``: lists the offsets of an input that ingest does not read, asks for one more, or undoes one.

A request takes effect at the next start of the job, so that it covers a whole range or none of it. Records that are judged for good cannot
be skipped.
"""

from __future__ import annotations

import getpass
import socket
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ordering.errors import RefusedError, SettingError
from ordering.ticks import format_tick
from tidegate.platform.observe.console import Format, print_json
from tidegate.platform.observe.terminal import print_lines

if TYPE_CHECKING:
    from ingest.config import IngestPlan, Partition
    from ingest.journal.skip_book import KnownSkips, SkipBook
    from ingest.skips import Skip
    from tidegate.platform.kafka.admin import Admin
    from tidegate.platform.settings.load import Settings


def skip(
    name: Annotated[str, typer.Argument(metavar="INPUT", help="Which [inputs.NAME].")],
    place: Annotated[str | None, typer.Argument(metavar="[PLACE]", help="The offset: topic-partition@offset. Default: list all.")] = None,
    why: Annotated[str | None, typer.Option("--why", help="The reason; it is kept and shown.")] = None,
    until: Annotated[
        int | None, typer.Option("--until", min=0, max=2**63 - 1, help="First offset read again; default: the one after PLACE.")
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Undo the skip that begins at PLACE, if the job has not passed it.")] = False,
    config: Annotated[Path | None, typer.Option(help="Configuration file; default: tidegate.toml here.")] = None,
    assign: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: redis.url=redis://host:6379/0")] = None,
    format: Annotated[Format, typer.Option("--format", help="What is printed; json: one object a line.")] = Format.TEXT,
) -> None:
    """Let ingest pass over an offset of a raw topic, in this run and in every replay; without PLACE list what is skipped."""
    from ingest.commands.explain import parse_places
    from ingest.commands.journal import open_services, plan_for_journal
    from ingest.journal.skip_book import SkipBook
    from tidegate.platform.settings.load import load_assigned

    settings = load_assigned(config, assign)
    # Errors that no server is needed to find come first, so that an unreachable server does not hide them.
    _refuse_queries(settings, name, place or "")
    settings.input(name)
    parse_places([place] if place else [])
    admin, journal = open_services(settings, name)
    plan = plan_for_journal(settings, name, admin)
    book = SkipBook.of(plan, journal)
    if place is None:
        _print_skips(book.read(), name, format)
        return
    [(partition, [offset])] = parse_places([place], plan.partitions).items()
    passed = _passed_positions(plan, admin)
    if undo:
        _undo(book, settings, plan, partition, offset, passed)
    else:
        _ask(book, plan, admin, _requested_skip(partition, offset, until, why, name), passed)
    _print_skips(book.read(), name, format, place)


def _refuse_queries(settings: Settings, name: str, place: str) -> None:
    written = {settings.outputs[output].topic for output in settings.outputs} | {table.ordered_topic for table in settings.inputs.values()}
    from tidegate.platform.kafka.unreadable import WRITE_ANEW

    if name in settings.outputs or place.rpartition("-")[0] in written:
        raise RefusedError(
            "only records of raw topics can be skipped, by the ingest job that reads them",
            code="TG-SKIP-QUERY",
            where=place or name,
            fix=f"an event on which a query fails becomes a dead letter; to keep one out, skip its record before ingest has judged it; "
            f"if records of an ordered topic are lost, {WRITE_ANEW}",
        )


def _requested_skip(partition: Partition, offset: int, until: int | None, why: str | None, name: str) -> Skip:
    from ingest.skips import Skip

    place = f"{partition[0]}-{partition[1]}@{offset}"
    end = offset + 1 if until is None else until
    if not why or end <= offset:
        raise SettingError(
            "a skip needs a reason" if not why else f"--until {end} is not behind {place}",
            code="TG-SETTING-FLAG",
            where="--why" if not why else "--until",
            example=f'tidegate skip {name} {place} --why "its batch cannot be decompressed"',
        )
    return Skip(*partition, offset, end, why, f"{_user()}@{socket.gethostname()}", format_tick(time.time_ns() // 1000))


def _ask(book: SkipBook, plan: IngestPlan, admin: Admin, requested: Skip, passed: dict[Partition, int]) -> None:
    from ingest.journal.skip_book import passed_error

    partition = requested.input_partition
    end = admin.ends([partition], committed=False)[partition]
    if requested.end > end:
        what = f"{requested.topic}-{requested.partition} ends at offset {end}: what is not there yet cannot be skipped"
        raise SettingError(what, code="TG-SETTING-PLACE", where="--until" if requested.start < end else "PLACE")
    if requested.start < passed[partition]:
        raise passed_error(requested, passed[partition], plan.settings.name)
    known = {skip.place: skip for skip in book.read().in_force}.get(requested.place)
    if known is not None:
        what = f"a skip from {known.place} to {known.end} is in force already"
        raise RefusedError(what, code="TG-SKIP-KNOWN", where=known.place, fix=f"skip from offset {known.end} on, or undo this one first")
    book.write(requested)


def _undo(book: SkipBook, settings: Settings, plan: IngestPlan, partition: Partition, offset: int, passed: dict[Partition, int]) -> None:
    from ingest.journal.skip_book import passed_error

    known = book.read()
    place = f"{partition[0]}-{partition[1]}@{offset}"
    undone = next((skip for skip in (*known.in_force, *known.asked) if skip.place == place), None)
    if undone is None:
        raise SettingError(f"no skip begins at {place}", code="TG-SETTING-PLACE", where="PLACE", fix="tidegate skip INPUT lists them")
    if undone in known.in_force:
        if undone.start < passed[partition]:
            raise passed_error(undone, passed[partition], plan.settings.name)
        _refuse_running(settings, plan)
    book.undo(undone)


def _refuse_running(settings: Settings, plan: IngestPlan) -> None:
    from tidegate.platform.observe.progress_store import ProgressStore

    with ProgressStore(settings.redis) as store:
        progress = store.read(plan.settings.ordered_topic)
    if progress is not None and progress.job.get("state") != "stopped" and progress.is_alive(time.time_ns() // 1_000_000):
        what = f"a job is writing {plan.settings.ordered_topic} under this skip"
        fix = f"stop tidegate ingest {plan.settings.name} first"
        raise RefusedError(what, code="TG-SKIP-RUNNING", where=plan.settings.ordered_topic, fix=fix)


def _passed_positions(plan: IngestPlan, admin: Admin) -> dict[Partition, int]:
    from ingest.journal.skip_book import passed_positions
    from ingest.offsets import IngestOffset
    from tidegate.platform.checkpoint.offset_log import last_batches, read_offset

    folder = Path(plan.checkpoint)
    stored = read_offset(folder, last_batches(folder)[1])
    judged = {} if stored is None else {p: planned.next_offset for p, planned in IngestOffset.from_json(stored).partitions.items()}
    return passed_positions(plan, admin, judged)


def _print_skips(known: KnownSkips, name: str, format: Format, place: str | None = None) -> None:
    states = (("in force", known.in_force), (f"at the next start of tidegate ingest {name}", known.asked), ("undone", known.undone))
    shown = [(state, skip) for state, skips in states for skip in skips if place in (None, skip.place)]
    if not shown and format is Format.TEXT:
        print_lines([f"nothing of {name} is skipped"])
    for state, skip in shown:
        if format is Format.JSON:
            fields = asdict(skip)
            del fields["is_undone"]
            print_json({**fields, "state": {"in force": "in force", "undone": "undone"}.get(state, "asked")})
        else:
            print_lines([f"{skip.describe()}: {state}"])


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "unknown"
