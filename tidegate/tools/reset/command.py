"""
The command ``tidegate reset``: starts a job over by deleting all that it has made.

Law: everything that goes is listed before anything goes. What was cut off is finished by the same command
(:mod:`tidegate.tools.reset.deletion`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.platform.observe.console import Format, confirm_deletion, print_json
from tidegate.platform.observe.terminal import TextColumn, TextTable, print_lines, standard_output

if TYPE_CHECKING:
    from tidegate.tools.reset.belongings import JobBelongings
    from tidegate.tools.reset.deletion import Doomed, Reset


def reset(
    name: Annotated[str, typer.Argument(metavar="OUTPUT|INPUT", help="Which [outputs.NAME] or [inputs.NAME].")],
    rows: Annotated[bool, typer.Option("--rows", help="Delete the rows of the outputs' stores too.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would go.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
    config: Annotated[Path | None, typer.Option(help="Configuration file; default: tidegate.toml here.")] = None,
    assign: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: kafka.bootstrap=host:9092")] = None,
    format: Annotated[Format, typer.Option("--format", help="What is printed on standard output.")] = Format.TEXT,
) -> None:
    """Start a query or an ingest over: delete its checkpoint, topics and files, on request the rows of stores; the raw topic stays."""
    from tidegate.platform.settings.load import load_assigned
    from tidegate.tools.reset.belongings import find_belongings, find_readers
    from tidegate.tools.reset.deletion import Reset

    settings = load_assigned(config, assign)
    job = find_belongings(settings, name)
    work = Reset(settings, job, rows=rows)
    work.check_stopped()
    doomed = work.doomed()
    notes = [*_notes(work), *_readers(find_readers(settings, [each.place for each in doomed if each.kind == "topic"]), job)]
    if format is Format.TEXT:
        _print_list(job, doomed, notes)
    is_wanted = bool(doomed) and not dry_run and (yes or confirm_deletion(f"tidegate reset {name}", format))
    if is_wanted:
        work.execute()
    if format is Format.JSON:
        items = [{"kind": each.kind, "place": each.place, "amount": each.amount} for each in doomed]
        outputs = [output.name for output in job.outputs]
        print_json({"job": job.job, "outputs": outputs, "deletes": items, "notes": notes, "deleted": is_wanted})
    elif is_wanted:
        print_lines([f"deleted: the next start of tidegate {job.job.partition(' ')[0]} begins anew"])
    if doomed and not is_wanted and not dry_run:
        raise typer.Exit(1)


def _print_list(job: JobBelongings, doomed: Sequence[Doomed], notes: Sequence[str]) -> None:
    if not doomed:
        print_lines([f"{job.job} has made nothing that is still there"])
        return
    outputs = f" ({', '.join(output.name for output in job.outputs)})" if len(job.outputs) > 1 else ""
    print_lines([f"of {job.job}{outputs} these go:"])
    table = TextTable([TextColumn(name) for name in ("what", "where", "how much")], is_plain=True)
    for each in doomed:
        table.add(each.kind, each.place, each.amount)
    standard_output().table(table)
    print_lines(notes)


def _notes(work: Reset) -> list[str]:
    return [
        f"the rows of {where} stay, and its sink will refuse the new topic (TG-TOPIC-RECREATED): --rows deletes them too"
        for where in work.kept_rows()
    ]


def _readers(folders: Sequence[str], job: JobBelongings) -> list[str]:
    others = [folder for folder in folders if folder != str(job.folder)]
    return [
        f"the query with the checkpoint {folder} reads what goes, and will refuse the new topic: reset its output too" for folder in others
    ]
