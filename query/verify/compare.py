"""
Computes the results of a query again, run by run, and hands them to the checks of its topics, files and tables.

Law: each check gets the rows of the run that has written them, in the order of their channel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from query.verify.plain_rows import PlainTopicCheck
from query.verify.recompute import OnRead, Recomputation
from query.verify.runs import RunPart
from query.verify.stage import VerifiedQuery

# Called with the number of records just read.
OnRecords = Callable[[int], None]


def compare_results(stage: VerifiedQuery, on_records: OnRecords, readers: Mapping[str, OnRead]) -> None:
    """Compute the results of a query and compare them; *readers* get the records of its topics as they are read."""
    for part in stage.parts:
        for number, channels in stage.topics.items():
            for channel in channels:
                channel.begin_run(part.limit(number, channel.partition), has_own_numbers=part.recount.from_us is not None)
        for number, files in stage.files.items():
            files.use_columns(part.columns(number) or ())
        _compare_part(stage, part, on_records, readers)
    for channels in stage.topics.values():
        for channel in channels:
            channel.finish()
    for number, files in stage.files.items():
        files.finish({channel.partition: channel.c for channel in stage.topics.get(number, ())})
    for table in (table for tables in stage.tables.values() for table in tables):
        table.finish()
        stage.notes += table.notes
    if stage.left_out:
        stage.notes.append(f"{stage.left_out:,} rows became dead letters")


def _compare_part(stage: VerifiedQuery, part: RunPart, on_records: OnRecords, readers: Mapping[str, OnRead]) -> None:
    """Compute the results of one run and compare them."""
    recomputation, records_reported = Recomputation(part.recount, readers), 0
    for computed in recomputation.run(part.until_us):
        own = part.own(computed)
        if own is not None:
            if own.results is not None and own.output in stage.topics:
                stage.topics[own.output][own.bucket].accept_rows(own.results)
            for table in stage.tables.get(own.output, ()):
                taken = part.published(computed, table.span_us) if isinstance(table, PlainTopicCheck) else own
                if taken is not None:
                    table.accept(taken)
            if own.sheets and own.output in stage.files:
                stage.files[own.output].accept_sheets(own.bucket, own.sheets)
        on_records(recomputation.records_read - records_reported)
        records_reported = recomputation.records_read
    stage.left_out += recomputation.left_out
