"""
Result files that a new run would replace by a part of what they hold, because it begins or ends in the midst of their span.
Law: a run replaces a file only by all rows of its sheet.
"""

from __future__ import annotations

from ordering.errors import RefusedError
from ordering.ticks import INFINITY, format_tick
from query.config import QueryPlan
from sinks.base import SinkError
from sinks.files import FileSink


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
