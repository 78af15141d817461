"""The command ``tidegate explain``: the effect of each policy on records of a raw topic, and the records that caused it. Reads only."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import typer

from ordering.errors import RefusedError, SettingError
from tidegate.platform.observe.console import Format, live_line, print_json
from tidegate.platform.observe.terminal import print_lines, standard_error

if TYPE_CHECKING:
    from ingest.config import IngestPlan, Partition
    from ingest.content_search import SearchedContent
    from ingest.journal.redis_journal import RedisJournal
    from ingest.skips import Skip
    from ingest.unusable_place import UnusablePlace
    from ordering.proof.explain import Explanation
    from ordering.protocol.elements import Places
    from ordering.protocol.facts import Fact
    from tidegate.language.expressions.tree import Expr
    from tidegate.platform.kafka.admin import Admin
    from tidegate.platform.settings.load import Settings

# How many records one search explains at most.
LIMIT_MAX = 10_000
_PLACE = re.compile(r"(?P<topic>.+)-(?P<partition>\d{1,9})@(?P<offset>\d{1,18})(?:\[(?P<index>\d{1,7})\])?")


def explain_records(
    settings: Settings,
    name: str,
    places: list[str] | None,
    where: str | None,
    key: str | None,
    limit: int,
    format: Format,
    start: str | None,
    until: str | None,
) -> None:
    """
    Show what each policy did with records of input *name*, the watermark they met, and the record that had set it.

    They are those at *places*, or up to *limit* that *where* and *key* find, with timestamps from *start* up to *until*. Raises
    SettingError, and typer.Exit(1) if there is none.
    """
    from ingest.commands.journal import open_services, plan_for_journal
    from ingest.content_search import SearchedContent
    from ingest.journal.skip_book import SkipBook
    from tidegate.platform.checkpoint.output_start import parse_time_span
    from tidegate.records.payloads.formats import PayloadFormat

    # Errors that no server is needed to find come first, so that an unreachable server does not hide them.
    is_search = where is not None or key is not None
    if bool(places) == is_search:
        what = "either places or --where and --key say which records" if places else "nothing says which records"
        example = f"tidegate explain {name} --where \"order_id = 'o-1'\""
        raise SettingError(what, code="TG-SETTING-FLAG", where="PLACE", fix="give topic-partition@offset, or --where", example=example)
    parse_places(places or [])
    span_us = parse_time_span(start, until, "--from")
    if not is_search and span_us != (None, None):
        fix = "leave them out"
        raise SettingError("--from and --until limit a search, and places need none", code="TG-SETTING-FLAG", where="--from", fix=fix)
    condition = _bind_where(settings, name, where)
    admin, journal = open_services(settings, name)
    plan = plan_for_journal(settings, name, admin)
    skips = SkipBook.of(plan, journal).read().in_force
    plan = replace(plan, payloads=PayloadFormat.of(settings.input(name), settings.schema_registry), skips=skips)
    missing = False
    found = _search(plan, admin, SearchedContent(condition, None if key is None else key.encode()), limit, span_us) if is_search else {}
    if is_search and not found:
        print_lines([f"no record of {name} is like that"] if format is Format.TEXT else [])
        raise typer.Exit(1)
    numbered = plan.settings.places
    for partition, offsets in (found or parse_places(places or [], plan.partitions, numbered)).items():
        explained = _print_skipped(skips, partition, offsets, numbered, format)
        if explained:
            explanations, unusable = _explain_records(plan, admin, journal, partition, explained)
            for offset in explained:
                missing |= offset not in explanations and offset not in unusable
                _print_record(partition, offset, numbered, explanations.get(offset), unusable.get(offset), format)
    if missing:
        raise typer.Exit(1)


def _bind_where(settings: Settings, name: str, where: str | None) -> Expr | None:
    """Return the condition of --where; raise QueryError if it is none, SettingError if there is no such input."""
    table = settings.input(name)
    if where is None:
        return None
    from tidegate.language.expressions.binding.setting_expressions import bind_condition

    return bind_condition(where, "--where", table.schema_of_events(name), frozenset({name.lower(), name}))


def _search(
    plan: IngestPlan, admin: Admin, wanted: SearchedContent, limit: int, span_us: tuple[int | None, int | None]
) -> dict[Partition, list[int]]:
    """
    Return the offsets of the first records that are wanted, by partition; say how many were searched, and whether there may be more.
    *span_us* are the timestamps where the search begins and ends, microseconds; None: with the topic.
    """
    from ingest.content_search import find_offsets

    starts, ends = admin.starts(plan.partitions), admin.ends(plan.partitions)
    since_us, until_us = span_us
    if since_us is not None:
        starts = admin.offsets_from(plan.partitions, since_us)
    if until_us is not None:
        # With stamps of producers the first record of a later time may stand before that of an earlier one.
        ends = {place: max(end, starts[place]) for place, end in admin.offsets_from(plan.partitions, until_us).items()}
    found: dict[Partition, list[int]] = {}
    searched = 0
    with live_line(
        standard_error(), f"searching {plan.settings.name}", sum(ends[place] - starts[place] for place in plan.partitions)
    ) as show:

        def on_records(count: int) -> None:
            nonlocal searched
            searched += count
            show(f"{searched:,} records, {sum(map(len, found.values())):,} found", searched)

        for partition in plan.partitions:
            for offset in find_offsets(plan, partition, starts[partition], ends[partition], wanted, on_records):
                if sum(map(len, found.values())) == limit:
                    standard_error().line(f"more than {limit:,} records are like that; --limit {min(limit * 10, LIMIT_MAX)} shows more")
                    return found
                found.setdefault(partition, []).append(offset)
    return found


def _explain_records(
    plan: IngestPlan, admin: Admin, journal: RedisJournal, partition: Partition, offsets: list[int]
) -> tuple[dict[int, Explanation], dict[int, UnusablePlace]]:
    """Return, by offset, the explanations of the records at *offsets*, and why others of them are no events; show the progress."""
    from ingest.explain import ExplainingWalk

    start, end = _read_bounds(admin, partition, [plan.settings.places.offset_of(offset) for offset in offsets])
    walk = ExplainingWalk(plan, partition, _read_facts(plan, journal, partition), frozenset(offsets))
    walked = 0
    with live_line(standard_error(), f"{partition[0]}-{partition[1]}", end - start) as show:

        def on_records(count: int) -> None:
            nonlocal walked
            walked += count
            show(f"{walked:,} records", walked)

        explanations = {explanation.offset: explanation for explanation in walk.explanations(start, end, on_records)}
    return explanations, walk.unusable_offsets


def _print_record(
    partition: Partition,
    offset: int,
    numbered: Places,
    explanation: Explanation | None,
    unusable: UnusablePlace | None,
    format: Format,
) -> None:
    place = f"{partition[0]}-{partition[1]}@{numbered.text(offset)}"
    if format is Format.JSON:
        fields: dict[str, Any] = {**_json_place(partition, offset, numbered), "unusable": None}
        if unusable is not None:
            fields |= {"unusable": unusable.reason, "at_byte": unusable.at_byte, "around": unusable.around, "problem": unusable.problem}
        print_json({**(explanation.as_dict() if explanation is not None else {"verdict": None}), **fields})
    elif unusable is not None:
        print_lines([f"The record at {place} went to the dead-letter topic: {unusable}."])
    elif explanation is not None:
        print_lines(str(explanation).split("\n"))
    else:
        print_lines([f"There is no record at {place}."])


def _json_place(partition: Partition, offset: int, numbered: Places) -> dict[str, str | int]:
    index = {"index": numbered.index_of(offset)} if numbered.bits else {}
    return {"topic": partition[0], "partition": partition[1], "offset": numbered.offset_of(offset), **index}


def _print_skipped(skips: tuple[Skip, ...], partition: Partition, offsets: list[int], numbered: Places, format: Format) -> list[int]:
    """Print which of the records are skipped, and why; return the other offsets."""
    from ingest.skips import skip_at

    others = []
    for offset in offsets:
        skip = skip_at(skips, partition, numbered.offset_of(offset))
        if skip is None:
            others.append(offset)
        elif format is Format.JSON:
            place = _json_place(partition, offset, numbered)
            print_json({"verdict": "skipped", "skip": asdict(skip), **place, "unusable": None})
        else:
            print_lines([f"The record at {partition[0]}-{partition[1]}@{numbered.text(offset)} is skipped, by the skip {skip.describe()}."])
    return others


def parse_places(places: list[str], partitions: tuple[Partition, ...] = (), numbered: Places | None = None) -> dict[Partition, list[int]]:
    """
    Return the requested places by input partition; without an index it is the first element. SettingError: a place has another form, names
    none of *partitions*, or has an index where records are no arrays, if these are known.
    """
    offsets_by_partition: dict[Partition, list[int]] = {}
    for place in places:
        match = _PLACE.fullmatch(place)
        partition = (match["topic"], int(match["partition"])) if match else ("", -1)
        if match is None or (partitions and partition not in partitions):
            what = f"{place} names no record of the input"
            fix = "write topic-partition@offset, as dead letters, logs and tidegate compare do"
            topic, number = partitions[0] if partitions else ("flights", 0)
            raise SettingError(what, code="TG-SETTING-PLACE", where="PLACE", fix=fix, example=f"{topic}-{number}@1234")
        index = int(match["index"] or 0)
        if index and numbered is not None and not numbered.bits:
            what, fix = f"{place} names an element, and a record of the input is one event", 'leave [index] out, or set explode = "array"'
            raise SettingError(what, code="TG-SETTING-PLACE", where="PLACE", fix=fix, example=place.partition("[")[0])
        offset = int(match["offset"])
        offsets_by_partition.setdefault(partition, []).append(offset if numbered is None else numbered.place_of(offset, index))
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
