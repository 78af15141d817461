"""The command ``tidegate explain``: the effect of each policy on records of a raw topic, and the records that caused it. Reads only."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ordering.errors import RefusedError, SettingError
from tidegate.observe.console import Format, live_line, print_json
from tidegate.observe.terminal import print_lines, standard_error

if TYPE_CHECKING:
    from ingest.config import IngestPlan, Partition
    from ingest.journal.redis_journal import RedisJournal
    from ingest.skips import Skip
    from ordering.proof.explain import Explanation
    from ordering.protocol.facts import Fact
    from tidegate.kafka.admin import Admin

_PLACE = re.compile(r"(?P<topic>.+)-(?P<partition>\d{1,9})@(?P<offset>\d{1,18})")


def explain(
    name: Annotated[str, typer.Argument(metavar="INPUT", help="Which [inputs.NAME].")],
    places: Annotated[list[str], typer.Argument(metavar="PLACE...", help="Records of its raw topics: topic-partition@offset.")],
    config: Annotated[Path | None, typer.Option(help="Configuration file; default: tidegate.toml here.")] = None,
    assign: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: kafka.bootstrap=host:9092")] = None,
    format: Annotated[Format, typer.Option("--format", help="What is printed; json: one object a line.")] = Format.TEXT,
) -> None:
    """Show what each policy did with records, the watermark they met, and the record that had set it."""
    from ingest.journal.skip_book import SkipBook
    from tidegate.cli.journal import open_services, plan_for_journal
    from tidegate.payloads.formats import PayloadFormat
    from tidegate.settings.load import load_assigned

    # Errors that no server is needed to find come first, so that an unreachable server does not hide them.
    parse_places(places)
    settings = load_assigned(config, assign)
    settings.input(name)
    admin, journal = open_services(settings)
    plan = plan_for_journal(settings, name, admin)
    skips = SkipBook.of(plan, journal).read().in_force
    plan = replace(plan, payloads=PayloadFormat.of(settings.input(name), settings.schema_registry), skips=skips)
    missing = False
    for partition, offsets in parse_places(places, plan.partitions).items():
        explained = _print_skipped(skips, partition, offsets, format)
        if explained:
            explanations, unusable = _explain_records(plan, admin, journal, partition, explained)
            for offset in explained:
                missing |= offset not in explanations and offset not in unusable
                _print_record(partition, offset, explanations.get(offset), unusable.get(offset), format)
    if missing:
        raise typer.Exit(1)


def _explain_records(
    plan: IngestPlan, admin: Admin, journal: RedisJournal, partition: Partition, offsets: list[int]
) -> tuple[dict[int, Explanation], dict[int, str]]:
    """Return, by offset, the explanations of the records at *offsets*, and why others of them are no events; show the progress."""
    from ingest.explain import ExplainingWalk

    start, end = _read_bounds(admin, partition, offsets)
    walk = ExplainingWalk(plan, partition, _read_facts(plan, journal, partition), frozenset(offsets))
    walked = 0
    with live_line(standard_error(), f"{partition[0]}-{partition[1]}", end - start) as show:

        def on_records(count: int) -> None:
            nonlocal walked
            walked += count
            show(f"{walked:,} records", walked)

        explanations = {explanation.offset: explanation for explanation in walk.explanations(start, end, on_records)}
    return explanations, walk.unusable_offsets


def _print_record(partition: Partition, offset: int, explanation: Explanation | None, unusable: str | None, format: Format) -> None:
    place = f"{partition[0]}-{partition[1]}@{offset}"
    if format is Format.JSON:
        fields = {"topic": partition[0], "partition": partition[1], "offset": offset, "unusable": unusable}
        print_json({**(explanation.as_dict() if explanation is not None else {"verdict": None}), **fields})
    elif unusable is not None:
        print_lines([f"The record at {place} went to the dead-letter topic: {unusable}."])
    elif explanation is not None:
        print_lines(str(explanation).split("\n"))
    else:
        print_lines([f"There is no record at {place}."])


def _print_skipped(skips: tuple[Skip, ...], partition: Partition, offsets: list[int], format: Format) -> list[int]:
    """Print which of the records are skipped, and why; return the other offsets."""
    from ingest.skips import skip_at

    others = []
    for offset in offsets:
        skip = skip_at(skips, partition, offset)
        if skip is None:
            others.append(offset)
        elif format is Format.JSON:
            place = {"topic": partition[0], "partition": partition[1], "offset": offset, "unusable": None}
            print_json({"verdict": "skipped", "skip": asdict(skip), **place})
        else:
            print_lines([f"The record at {partition[0]}-{partition[1]}@{offset} is skipped, by the skip {skip.describe()}."])
    return others


def parse_places(places: list[str], partitions: tuple[Partition, ...] = ()) -> dict[Partition, list[int]]:
    """Return the requested offsets by input partition. SettingError: a place has another form, or names none of *partitions*, if known."""
    offsets_by_partition: dict[Partition, list[int]] = {}
    for place in places:
        match = _PLACE.fullmatch(place)
        partition = (match["topic"], int(match["partition"])) if match else ("", -1)
        if match is None or (partitions and partition not in partitions):
            what = f"{place} names no record of the input"
            fix = "write topic-partition@offset, as dead letters, logs and tidegate compare do"
            topic, number = partitions[0] if partitions else ("flights", 0)
            raise SettingError(what, code="TG-SETTING-PLACE", where="PLACE", fix=fix, example=f"{topic}-{number}@1234")
        offsets_by_partition.setdefault(partition, []).append(int(match["offset"]))
    return offsets_by_partition


def _read_bounds(admin: Admin, partition: Partition, offsets: list[int]) -> tuple[int, int]:
    start, end = admin.starts([partition])[partition], admin.ends([partition])[partition]
    if min(offsets) < start:
        where = f"{partition[0]}-{partition[1]}@{min(offsets)}"
        raise RefusedError("retention has deleted the record", code="TG-RETENTION", where=where, fix=f"the partition begins at {start} now")
    return start, end


def _read_facts(plan: IngestPlan, journal: RedisJournal, partition: Partition) -> list[Fact]:
    facts = journal.dump(plan.journal_key(partition))
    return facts + (journal.dump(plan.import_key(partition)) if plan.imported is not None else [])
