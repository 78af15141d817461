"""
The command ``tidegate profile``: the disorder of recorded events, as a table, a picture, and a file from which ``tidegate produce --like``
makes events with the same disorder.

Law: it reads only, but for the files that ``--plot`` and ``--write`` name. Standard output has the answer and nothing else.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.commands.recorded_input import (
    ArrivalFlag,
    ByArrivalFlag,
    DelimiterFlag,
    InputFormatFlag,
    PartitionFlag,
    TimestampFormatFlag,
    no_such_name,
    read_input,
    require_events,
    require_time,
)
from ordering.errors import SettingError
from tidegate.platform.observe.console import Format, print_json
from tidegate.platform.observe.terminal import print_lines, standard_error, standard_output

if TYPE_CHECKING:
    from ingest.tuning.profile import Profile
    from ingest.tuning.recorded_file import FileColumns
    from tidegate.platform.settings.load import Settings


def profile(
    name: Annotated[str, typer.Argument(metavar="INPUT|TOPIC|FILE", help="An [inputs.NAME], a topic, or a file as tidegate order has it.")],
    write: Annotated[Path | None, typer.Option(metavar="FILE.toml", help="Write the profile, for tidegate produce --like.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the distributions: FILE.svg or FILE.png.")] = None,
    hide_keys: Annotated[bool, typer.Option("--hide-keys", help="Call the keys key1, key2 and so on.")] = False,
    start: Annotated[str | None, typer.Option("--from", metavar="TIME", help="Of a topic: records since a time, or an age as 6h.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Of a topic: records before a time, or an age.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Of a topic: the newest records in all.")] = 3_000_000,
    timestamp_by: Annotated[str | None, typer.Option(help="Of a file, or a topic of no input: the field with the event time.")] = None,
    over: Annotated[str | None, typer.Option(help="Of a file, or a topic of no input: the field whose values are substreams.")] = None,
    arrival: ArrivalFlag = None,
    partition: PartitionFlag = None,
    by_arrival: ByArrivalFlag = False,
    timestamp_format: TimestampFormatFlag = "auto",
    input_format: InputFormatFlag = None,
    delimiter: DelimiterFlag = None,
    config: Annotated[Path | None, typer.Option(help="Configuration file; default: tidegate.toml here.")] = None,
    assign: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: kafka.bootstrap=host:9092")] = None,
    format: Annotated[Format, typer.Option("--format", help="What is printed; json: one object.")] = Format.TEXT,
) -> None:
    """Measure the disorder of recorded events: lateness by key, silence, ties, repetitions."""
    from ingest.tuning.profile import write_profile
    from ingest.tuning.profile_words import draw_profile, profile_json
    from ingest.tuning.recorded_file import FileColumns
    from tidegate.platform.observe.drawing import check_plot, write_picture
    from tidegate.platform.settings.load import load_assigned

    if plot is not None:
        check_plot(plot)
    if write is not None and not write.absolute().parent.is_dir():
        raise SettingError(f"there is no folder {write.parent}", code="TG-SETTING-VALUE", where="--write", fix="make it, or name another")
    settings = load_assigned(config, assign)
    if not Path(name).exists() or name in settings.inputs:
        measured = _measure_topic(settings, name, timestamp_by, over, (config, assign or []), (start, until, limit))
    else:
        columns = FileColumns(
            timestamp_by=require_time(timestamp_by, name, "profile"),
            over=over,
            arrival=arrival,
            partition=partition,
            timestamp_format=timestamp_format,
            input_format=input_format,
            delimiter=delimiter,
            by_arrival=by_arrival,
        )
        measured = _measure_file(name, columns)
    measured = measured.without_names() if hide_keys else measured
    if plot is not None:
        write_picture(draw_profile(measured), plot)
    if write is not None:
        write.write_text(write_profile(measured), "utf-8")
        standard_error().line(f"wrote {write}: tidegate produce --like {write} TOPIC makes events with this disorder")
    if format is Format.JSON:
        print_json(profile_json(measured))
        return
    _print(measured)


def _measure_topic(
    settings: Settings,
    name: str,
    timestamp_by: str | None,
    over: str | None,
    files: tuple[Path | None, list[str]],
    span: tuple[str | None, str | None, int],
) -> Profile:
    """Return the profile of an input, or of a topic: that of the input which reads it, or of one made for it."""
    from ingest.tuning.profile import Profile
    from ingest.tuning.recorded_topic import read_topic_with_contents
    from tidegate.platform.settings.load import load_assigned

    readers = [known for known, table in settings.inputs.items() if table.topics == (name,)]
    asked = name if name in settings.inputs else readers[0] if readers else None
    if asked is None and timestamp_by is not None:
        asked = f"t_{re.sub(r'[^A-Za-z0-9_]', '_', name)}"
        own = [f"inputs.{asked}.topic={name}", f"inputs.{asked}.timestamp_by={timestamp_by}"]
        settings = load_assigned(files[0], [*files[1], *own, *([] if over is None else [f"inputs.{asked}.over={over}"])])
    if asked is None:
        raise no_such_name(settings, name, "or a topic with --timestamp-by")
    read = read_input(settings, asked, *span, read_topic_with_contents)
    table = settings.input(asked)
    assert table.timestamp_by is not None, "without one there is no recording"
    return Profile.of(name, table.timestamp_by, table.over, read.measure())


def _measure_file(path: str, columns: FileColumns) -> Profile:
    from ingest.tuning.profile import Profile
    from ingest.tuning.recorded_file import read_file_with_contents

    read = read_file_with_contents(path, columns)
    require_events(read.recording, path, columns.timestamp_by)
    return Profile.of(Path(path).stem, columns.timestamp_by, columns.over, read.measure())


def _print(measured: Profile) -> None:
    from ingest.tuning.profile_words import describe_profile, describe_shares, durations_table, keys_table

    print_lines([describe_profile(measured)])
    standard_output().table(durations_table(measured))
    print_lines(describe_shares(measured))
    if measured.disorder.keys:
        print_lines([""])
        standard_output().table(keys_table(measured))
