"""
The topics and folders that a new run would write, and what is there already.
Law: only one job writes a place, for readers take the first result of each number, whichever query it is of. A run replaces a file only by
all rows of its sheet.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from ordering.errors import RefusedError
from ordering.ticks import INFINITY, format_tick
from query.config import QueryPlan
from query.start.output_start import ELSEWHERE
from sinks.base import SinkError
from sinks.files import FileSink
from tidegate.platform.checkpoint.binding import read_binding


def check_untaken(plan: QueryPlan) -> None:
    """Raise RefusedError (TG-OUTPUT-TAKEN) if a job with another checkpoint beside that of *plan* writes one of its topics or folders."""
    own = {place for output in plan.outputs for place in (output.topic, output.plain_topic, output.files) if place}
    for other in sorted(set(Path(plan.checkpoint).parent.glob("query-*")) - {Path(plan.checkpoint)}):
        written: set[str] = set()
        with suppress(RefusedError):  # a checkpoint that is damaged is the concern of its own job
            outputs = json.loads((read_binding(other) or {}).get("output", "[]"))
            written = {place for topic, files, _, _, plain_topic, *_ in outputs for place in (topic, files, plain_topic)}
        if taken := sorted(own & written):
            fix = f"{ELSEWHERE}; or, if that query is to write it no more, stop it and delete that folder"
            raise RefusedError(
                f"{taken[0]} is written by the query with the checkpoint {other}", code="TG-OUTPUT-TAKEN", where=taken[0], fix=fix
            )


def check_cut_files(plan: QueryPlan) -> None:
    """
    Raise RefusedError (TG-START-CUT) if a run that begins with *plan* would replace a file by a part of it; SinkError (TG-SINK-FILE) if
    nothing says whether the file is there.
    """
    for flag, at_us in (("--start", plan.start_us), ("--until", plan.until_us)):
        for output, promises in zip(plan.outputs, plan.promises, strict=True):
            if output.files is None or at_us is None or at_us == INFINITY or at_us % output.file_span_us == 0:
                continue
            sink = FileSink(output.files, output.file_format, output.file_span_us, by_date=output.file_folders == "date")
            begins_us = at_us - at_us % output.file_span_us
            # A channel that goes on after a promise begins with a whole span.
            names = [sink.name(begins_us, bucket) for bucket in range(plan.buckets) if flag == "--until" or bucket not in promises]
            standing = next((name for name in names if _stands(sink, name)), None)
            if standing is not None:
                what = f"{flag} {format_tick(at_us)} lies within a file that is there: this run would replace it by a part of it"
                fix = "say a time at which a file begins, or write to another folder"
                example = f"{flag} {format_tick(begins_us)}"
                raise RefusedError(what, code="TG-START-CUT", where=sink.place.where(standing), fix=fix, example=example)


def _stands(sink: FileSink, name: str) -> bool:
    try:
        sink.place.read(name)
    except FileNotFoundError:
        return False
    except OSError as error:
        where = sink.place.where(name)
        fix = "see whether the place answers, and may be read; then start again"
        raise SinkError(f"{where} cannot be read: {error}", code="TG-SINK-FILE", where=where, fix=fix) from error
    return True
