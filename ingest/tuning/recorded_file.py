"""
The recording of a file: its records by the rules of ``tidegate order``.

Law: which records are events, their times and their timelines are those of ``tidegate order`` with the same flags. Two flags go further:
the arrival may be an expression of the query language over the record's fields, and records may be taken in the order of their arrivals.
Two records have the same content if their fields are equal, arrival and partition apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ingest.tuning.contents import ContentNumbers, RecordedContents
from ordering.arrays import Ints, Mask
from ordering.errors import SettingError
from ordering.policies import Policies
from ordering.ticks import NEVER
from ordering.tuning.recording import Recording
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.binding.setting_expressions import bind_event_time
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Expr, Field
from tidegate.language.expressions.variant import Variant
from tidegate.records.fields.reader import FieldReader
from tidegate.records.fields.values import Values, evaluate_by_name
from tidegate.records.files.blocks import Block, FileFormat, FileRecords, OrderFileError, spelled_in
from tidegate.records.files.fields import FieldPath, FilePartition, parse_path
from tidegate.records.files.files import BLOCK_BYTES, choose_delimiter, detect_format, open_records, open_source
from tidegate.records.files.rows import FieldNames, OrderPlan, Rows

if TYPE_CHECKING:
    import pyarrow.parquet as pq


@dataclass(frozen=True, slots=True)
class FileColumns:
    """What the fields of a file mean, as the flags of ``tidegate order``: *arrival* may be an expression too."""

    timestamp_by: str
    over: str | None = None
    arrival: str | None = None
    partition: str | None = None
    timestamp_format: str = "auto"
    input_format: str | None = None
    delimiter: str | None = None
    by_arrival: bool = False

    @property
    def has_expression(self) -> bool:
        return self.arrival is not None and "(" in self.arrival

    def paths(self) -> dict[str, FieldPath | None]:
        """Return the fields by flag; SettingError: one is no field path."""
        arrival = None if self.has_expression else self.arrival
        flags = {"--timestamp-by": self.timestamp_by, "--over": self.over, "--arrival": arrival, "--partition": self.partition}
        return {flag: None if text is None else parse_path(text, flag) for flag, text in flags.items()}


def read_file(path: str, columns: FileColumns) -> Recording:
    """Return the recording of the file at *path*. OrderFileError: it cannot be read, or has no arrivals; SettingError: a flag is wrong."""
    return _read(path, columns, None).recording


def read_file_with_contents(path: str, columns: FileColumns) -> RecordedContents:
    """Return the recording with contents and keys; errors as those of :func:`read_file`."""
    return _read(path, columns, ContentNumbers())


def _read(path: str, columns: FileColumns, contents: ContentNumbers | None) -> RecordedContents:
    paths = columns.paths()
    text = columns.arrival if columns.has_expression else None
    expression = None if text is None else bind_event_time(text, "--arrival", InputSchema("input"))
    separator = choose_delimiter(path, columns.delimiter, columns.input_format)
    with open_source(path) as source:
        file_format = detect_format(path, source, columns.input_format)
        is_fast = contents is None and file_format is FileFormat.PARQUET
        if is_fast and (pieces := _read_parquet(path, source, columns, paths, expression)) is not None:
            return _recording(pieces, columns)
        records = open_records(path, file_format, source, separator, BLOCK_BYTES)
        plan = _order_plan(columns, paths, is_typed=file_format is not FileFormat.CSV)
        return _recording(_read_blocks(path, records, plan, text, contents), columns)


@dataclass(slots=True)
class _Pieces:
    """The columns of a file, one entry a record; *partition* is a number of each partition, *substream* one of each key."""

    partition: Ints
    arrival_us: Ints
    event_us: Ints
    readable: Mask
    substream: Ints | None
    content: Ints | None = None
    key_names: tuple[str, ...] = ()


def _recording(pieces: _Pieces, columns: FileColumns) -> RecordedContents:
    if columns.by_arrival:
        order = np.argsort(pieces.arrival_us, kind="stable")
        substream = None if pieces.substream is None else pieces.substream[order]
        times = pieces.arrival_us[order], pieces.event_us[order]
        content = None if pieces.content is None else pieces.content[order]
        pieces = _Pieces(pieces.partition[order], *times, pieces.readable[order], substream, content, pieces.key_names)
    recording = Recording.of(pieces.partition, pieces.arrival_us, pieces.event_us, pieces.readable, pieces.substream)
    return RecordedContents.of(recording, pieces.content, pieces.key_names)


def _order_plan(columns: FileColumns, paths: Mapping[str, FieldPath | None], *, is_typed: bool) -> OrderPlan:
    timestamp_by = paths["--timestamp-by"]
    assert timestamp_by is not None, "the flag has no default"
    return OrderPlan(
        policies=Policies(),
        timestamp_by=timestamp_by,
        timestamp_format=columns.timestamp_format,
        over=paths["--over"],
        arrival=paths["--arrival"],
        # An expression is evaluated here; no well-known field is looked for then.
        has_arrival=not columns.has_expression,
        partition=paths["--partition"],
        is_typed=is_typed,
    )


def _read_blocks(path: str, records: FileRecords, plan: OrderPlan, expression: str | None, contents: ContentNumbers | None) -> _Pieces:
    arrivals = None if expression is None else FieldReader(expression, "auto", None)
    names = FieldNames(plan)
    if records.columns is not None:
        names.resolve(records.columns)
    numbers: dict[FilePartition, int] = {}
    keys: dict[bytes, int] = {}
    pieces: list[_Pieces] = []
    for block in records.blocks():
        if not names.is_resolved and (first_names := block.first_names()) is not None:
            names.resolve(first_names)
        if arrivals is None and names.arrival is None and names.is_resolved:
            raise _no_arrival(path)
        pieces.append(_read_block(block, names, arrivals, numbers, keys, contents))
    return _join(pieces, plan, tuple(key.decode(errors="replace") for key in keys))


def _read_block(
    block: Block,
    names: FieldNames,
    arrivals: FieldReader | None,
    numbers: dict[FilePartition, int],
    keys: dict[bytes, int],
    contents: ContentNumbers | None,
) -> _Pieces:
    rows = Rows(names, block)
    if arrivals is not None:
        read = arrivals.read(block.payloads())
        rows.arrival_us = np.where(read.timed, read.event_time_us, NEVER)
        rows.mark_bad(~np.asarray(read.timed), "arrival", is_walked=False)
    codes = np.array([numbers.setdefault(partition, len(numbers)) for partition in rows.partitions], dtype=np.int64)
    walked = rows.is_walked & (rows.codes >= 0)
    assert rows.event_us is not None, "event times are read from a field"
    substream = None if rows.substream is None else _number_keys(rows.substream, keys)[walked]
    content = None if contents is None else contents.of_records(block.text, (names.arrival, names.partition))[walked]
    return _Pieces(codes[rows.codes[walked]], rows.arrival_us[walked], rows.event_us[walked], ~rows.is_bad[walked], substream, content)


def _number_keys(column: pa.Array, keys: dict[bytes, int]) -> Ints:
    encoded = column.dictionary_encode()
    numbers = np.array([keys.setdefault(key, len(keys)) for key in encoded.dictionary.to_pylist()], dtype=np.int64)
    found: Ints = numbers[encoded.indices.to_numpy(zero_copy_only=False)]
    return found


def _join(pieces: list[_Pieces], plan: OrderPlan, key_names: tuple[str, ...]) -> _Pieces:
    if not pieces:
        none = np.empty(0, dtype=np.int64)
        return _Pieces(none, none, none, np.empty(0, dtype=np.bool_), none if plan.over is not None else None)
    joined = [np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("partition", "arrival_us", "event_us", "readable")]
    substream = np.concatenate([piece.substream for piece in pieces if piece.substream is not None]) if plan.over is not None else None
    contents = [piece.content for piece in pieces if piece.content is not None]
    return _Pieces(joined[0], joined[1], joined[2], joined[3], substream, np.concatenate(contents) if contents else None, key_names)


def _no_arrival(path: str) -> OrderFileError:
    what = "the records have no arrival, without which nothing is late and no watermark has a delay"
    fix = "name the field with --arrival, or compute it"
    return OrderFileError(what, code="TG-TUNE-ARRIVAL", where=path, fix=fix, example="--arrival 'DATEADD(minute, delay, date)'")


_KINDS = (
    *((pa.types.is_boolean, Kind.BIT), (pa.types.is_integer, Kind.BIGINT)),
    *((pa.types.is_string, Kind.NVARCHAR), (pa.types.is_large_string, Kind.NVARCHAR)),
)


def _read_parquet(
    path: str, source: Any, columns: FileColumns, paths: Mapping[str, FieldPath | None], expression: Expr | None
) -> _Pieces | None:
    """Return the columns of a Parquet file without looking at its rows one by one; None: a column has a type that needs it."""
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(source)
    except (ValueError, OSError):
        source.seek(0)
        return None
    fields = [path for path in paths.values() if path is not None]
    if expression is not None:
        fields += [leaf.path for leaf in expression.leaves() if isinstance(leaf, Field)]
    plan = _order_plan(columns, paths, is_typed=True)
    names = FieldNames(plan)
    names.resolve(file.schema_arrow.names)
    if expression is None and names.arrival is None:
        raise _no_arrival(path)
    wanted = {*fields, *([names.arrival] if names.arrival else []), *([names.partition] if names.partition else [])}
    variants = _read_variants(file, wanted)
    if variants is None:
        source.seek(0)
        return None
    count = file.metadata.num_rows
    exprs: dict[str, Expr] = {"event": Field(plan.timestamp_by)}
    exprs["arrival"] = expression if expression is not None else Field(names.arrival or ())
    values = evaluate_by_name(exprs, variants, count)
    event_us, timed = values["event"].ticks(plan.timestamp_format)
    arrival_us, has_arrival = values["arrival"].ticks("auto")
    partition = np.zeros(count, dtype=np.int64) if names.partition is None else _codes(variants[Field(names.partition)])
    substream = None if plan.over is None else _codes(variants[Field(plan.over)])
    pieces = _Pieces(partition, arrival_us, event_us, timed, substream)
    if has_arrival.all():
        return pieces
    chosen = None if substream is None else substream[has_arrival]
    return _Pieces(partition[has_arrival], arrival_us[has_arrival], event_us[has_arrival], timed[has_arrival], chosen)


def _read_variants(file: pq.ParquetFile, paths: set[FieldPath]) -> dict[Field, Variant] | None:
    """Return the columns by field; None: one is nested, missing, or of a type whose text matters."""
    spelled = {path: spelled_in(file.schema_arrow.names, path[0]) if len(path) == 1 else None for path in paths}
    if None in spelled.values():
        return None
    table = file.read(columns=sorted({name for name in spelled.values() if name is not None}))
    variants: dict[Field, Variant] = {}
    for path, name in spelled.items():
        column = table[name]
        if pa.types.is_timestamp(column.type):
            kind, column = Kind.DATETIME, column.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
        else:
            found = next((kind for test, kind in _KINDS if test(column.type)), None)
            if found is None:
                return None
            kind, column = found, column.cast(found.arrow)
        variants[Field(path)] = Variant.of(table.num_rows, {kind: column})
    return variants


def _codes(variant: Variant) -> Ints:
    codes: Ints = Values(variant).keys().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def check_share(percent: float) -> float:
    """Return the share that a number of percent means. SettingError: it is no share."""
    if not 0 <= percent <= 100:
        what = f"{percent:g} percent is no share"
        raise SettingError(what, code="TG-SETTING-VALUE", where="--touch", fix="give a number from 0 to 100", example="--touch 0.1")
    return percent / 100
