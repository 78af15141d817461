"""
The command ``tidegate verify``: computes a published result again from its raw topics, and says whether it is the same.

Exit code 0: equal. 1: it differs. Others: errors.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ordering.errors import SettingError
from ordering.ticks import format_tick
from tidegate.platform.observe.console import Format, print_json, show_reading
from tidegate.platform.observe.terminal import print_lines

if TYPE_CHECKING:
    from tidegate.tools.verify.stages import Request, Stage


def verify(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="An input or output, or its topic or folder of files.")],
    queries: Annotated[
        list[str] | None,
        typer.Option(
            "--query",
            metavar="[NAME=]FILE",
            help="The query that writes it, and those before it; NAME as --into of the job; default: outputs.NAME.query.",
        ),
    ] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="TIME", help="Only results from this time on.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Only results before this time.")] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="Only so many short spans, one drawn in each of equal parts of the history.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="With --sample: draws the same spans again; default: another each time.")] = None,
    start: Annotated[str | None, typer.Option(help="The --start of the query's job, if its checkpoint is not here.")] = None,
    sign_with: Annotated[
        Path | None, typer.Option("--sign", metavar="KEY", help="If it is equal, write an attestation, signed with this Ed25519 key (PEM).")
    ] = None,
    check: Annotated[
        Path | None, typer.Option("--check", metavar="FILE", help="Only check whether the results are still those of this attestation.")
    ] = None,
    public_key: Annotated[Path | None, typer.Option(metavar="FILE", help="With --check: the key that must have signed it (PEM).")] = None,
    attestation: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --sign: where to write it; default: TARGET.attestation.json.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Configuration file; default: tidegate.toml here.")] = None,
    assign: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: kafka.bootstrap=host:9092")] = None,
    format: Annotated[Format, typer.Option("--format", help="What is printed on standard output.")] = Format.TEXT,
) -> None:
    """Compute a published result again from raw topics, journal, settings and query, and compare every byte."""
    from ingest.commands.journal import open_services
    from query.verify.scripts import add_configured_scripts, read_scripts
    from tidegate.platform.checkpoint.output_start import parse_start, parse_time_span
    from tidegate.platform.settings.load import load_assigned
    from tidegate.tools.verify.attestation import read_private_key
    from tidegate.tools.verify.stages import Request, find_target

    if check is not None:
        _check(check, public_key, queries or [], config, assign, format)
        return
    if sign_with is not None:
        # Before anything is computed: a key that cannot be read would waste the work.
        read_private_key(sign_with)
    settings = load_assigned(config, assign)
    since_us, until_us = parse_time_span(since, until, "--since")
    if sample is not None and sign_with is not None:
        what, fix = "a sample is not attested", "leave --sample or --sign out; --since and --until attest a part"
        raise SettingError(what, code="TG-SETTING-CONFLICT", where="--sign", fix=fix)
    name, is_input = find_target(settings, target)
    requested = parse_start(start, time.time_ns() // 1_000)
    scripts = add_configured_scripts(settings, read_scripts(settings, queries or []), name)
    admin, journal = open_services(settings, name if is_input else "INPUT")
    request = Request(settings, admin, journal, scripts, since_us, until_us, requested)
    if sample is None:
        _verify_whole(request, name, sign_with, attestation or Path(f"{name}.attestation.json"), format, is_input=is_input)
    else:
        _verify_sample(request, name, sample, time.time_ns() % 1_000_000 if seed is None else seed, format, is_input=is_input)


def _verify_whole(request: Request, name: str, sign_with: Path | None, attestation: Path, format: Format, *, is_input: bool) -> None:
    """Verify all requested results; exit with 1 if they differ, else write the attestation if a key is given to sign it with."""
    from tidegate.tools.verify.attestation import sign
    from tidegate.tools.verify.report import as_dict, as_lines, make_statement
    from tidegate.tools.verify.stages import explain_stages

    stages = _verify_with_progress(request, name, is_input=is_input)
    explanations = explain_stages(stages, request.admin)
    verification = as_dict(name, stages, explanations)
    if format is Format.JSON:
        print_json(verification)
    else:
        print_lines(as_lines(name, stages, explanations))
    if not verification["equal"]:
        raise typer.Exit(1)
    if sign_with is not None:
        statement = make_statement(verification, stages[-1].since_us, request.until_us, time.time_ns() // 1_000)
        attestation.write_text(sign(statement, sign_with), encoding="utf-8")
        if format is Format.TEXT:
            print_lines([f"attested: {attestation}"])


def _verify_sample(request: Request, name: str, count: int, seed: int, format: Format, *, is_input: bool) -> None:
    """Verify *count* randomly drawn spans; print the result of each, and exit with 1 if one differs."""
    from tidegate.tools.verify.report import as_dict, as_lines
    from tidegate.tools.verify.sampling import draw_spans, find_extent
    from tidegate.tools.verify.stages import explain_stages

    settings, kafka = request.settings, request.settings.kafka.client_properties()
    plans = request.scripts.get(name, ())
    inputs = [name] if is_input else [each for plan in plans for each in plan.inputs if each in settings.inputs]
    # Times of results follow those of events; the first input's ordered topic shows how far they reach.
    topic = settings.input(inputs[0]).ordered_topic if inputs else str(settings.output(plans[0].inputs[0] if plans else name).topic)
    extent = find_extent(request.admin, kafka, topic, range(request.admin.require(topic).partitions))
    first_us, last_us = extent or (0, 0)
    first_us, last_us = max(first_us, request.since_us or 0), min(last_us, request.until_us or last_us)
    differs, spans = False, []
    for since_us, until_us in draw_spans(first_us, last_us, count, seed):
        stages = _verify_with_progress(replace(request, since_us=since_us, until_us=until_us), name, is_input=is_input)
        explanations = explain_stages(stages, request.admin)
        result = as_dict(name, stages, explanations)
        differs |= not result["equal"]
        spans.append({"since": format_tick(since_us), "until": format_tick(until_us), **result})
        if format is Format.TEXT:
            print_lines([f"from {format_tick(since_us)} to {format_tick(until_us)}:", *as_lines(name, stages, explanations)])
    if format is Format.JSON:
        print_json({"equal": not differs, "target": name, "seed": seed, "spans": spans})
    else:
        verdict = "different" if differs else "equal"
        print_lines([f"{len(spans)} spans of {format_tick(first_us)} to {format_tick(last_us)}, drawn with --seed {seed}: {verdict}"])
    if differs:
        raise typer.Exit(1)


def _check(file: Path, public_key: Path | None, queries: list[str], config: Path | None, assign: list[str] | None, format: Format) -> None:
    """Check an attestation's signature, and that the published results still have its digests; exit with 1 if not."""
    from query.verify.scripts import find_columns
    from query.verify.standing import find_changes
    from tidegate.basics.bounded_files import RESULTS_BYTES_MAX, read_file_text
    from tidegate.platform.kafka.admin import Admin
    from tidegate.platform.settings.load import load_assigned
    from tidegate.tools.verify.attestation import check_signature

    try:
        text = read_file_text(file, RESULTS_BYTES_MAX)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"the attestation cannot be read: {error}", code="TG-VERIFY-KEY", where=str(file)) from None
    attestation = check_signature(text, str(file), public_key)
    settings = load_assigned(config, assign)
    admin = Admin(settings.kafka.client_properties(), settings.kafka.connect_timeout_us / 1e6)
    statement = attestation.statement
    changes = list(find_changes(statement, admin, settings, lambda: find_columns(settings, statement["target"], queries)))
    if format is Format.JSON:
        print_json({"holds": not changes, "key": attestation.fingerprint, "changes": changes, "statement": statement})
    else:
        published = [f"{each['rows']:,} rows of {each['name']}" for each in statement["published"]]
        verdict = "no longer stands as attested" if changes else "stands as attested"
        signed = f"{', '.join(published)}: {verdict} at {statement['at']}, signed with the key {attestation.fingerprint}"
        print_lines([*changes, signed])
    if changes:
        raise typer.Exit(1)


def _verify_with_progress(request: Request, name: str, *, is_input: bool) -> list[Stage]:
    from tidegate.tools.verify.stages import verify as verify_stages

    def verify_reporting(on_records: Callable[[int], None]) -> list[Stage]:
        return verify_stages(replace(request, on_records=on_records), name, is_input=is_input)

    return show_reading("verify", verify_reporting, lambda read: f"{name}: {read:,} records")
