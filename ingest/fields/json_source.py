"""
Fields of JSON payloads: paths of exact names, and expressions in which names are matched ignoring case.
Law: the C code walks a payload once for all fields. Payloads that it leaves are read by :mod:`ingest.fields.json_paths` and by the parser
of queries, with the same results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ingest.fields.columns import Column, ExtractedFields, Ticks
from ingest.fields.json_paths import JsonPaths, Path
from ingest.fields.values import Values, evaluate_by_name
from ordering.arrays import Ints, Mask
from tidegate.expressions.json_members import extract_parsed, walk_members
from tidegate.expressions.tree import Expr, Field
from tidegate.expressions.variant import Variant
from tidegate.json_columns.json_fields import Wanted


class JsonSource:
    """Extracts fields by name, some by *paths* and some by *exprs*, from JSON payloads."""

    def __init__(self, paths: Mapping[str, Path], exprs: Mapping[str, Expr]) -> None:
        self._names, self._exprs, self._paths = tuple(paths), dict(exprs), JsonPaths(paths)
        self._leaves = tuple(dict.fromkeys(leaf for expr in exprs.values() for leaf in expr.leaves() if isinstance(leaf, Field)))
        self._wanted = (*(Wanted(path, is_exact=True) for path in paths.values()), *(Wanted(leaf.path) for leaf in self._leaves))

    def extract(self, payloads: pa.Array) -> ExtractedFields:
        """Extract the fields; a row in which an expression fails has no value."""
        found, leaves = self._walk(payloads) or self._parse(payloads)
        return ExtractedFields(found.well_formed, {**found.columns, **evaluate_by_name(self._exprs, leaves, len(payloads))})

    def _parse(self, payloads: pa.Array) -> tuple[ExtractedFields, dict[Field, Variant]]:
        return self._paths.extract(payloads), extract_parsed(payloads, self._leaves).columns if self._leaves else {}

    def _walk(self, payloads: pa.Array) -> tuple[ExtractedFields, dict[Field, Variant]] | None:
        walked = walk_members(payloads, self._wanted)
        if walked is None:
            return None
        ok, variants = ~walked.missing, iter(walked.columns)
        columns: dict[str, Column] = {name: Values(next(variants)) for name in self._names}
        leaves = dict(zip(self._leaves, variants, strict=True))
        if len(rows := walked.other_rows):
            others, other_leaves = self._parse(payloads.take(pa.array(rows)))
            ok[rows] = others.well_formed
            columns = {name: _MergedColumn(column, rows, others.columns[name]) for name, column in columns.items()}
            leaves = {field: walked.merge(column, other_leaves[field]) for field, column in leaves.items()}
        return ExtractedFields(ok, columns), leaves


@dataclass(frozen=True, slots=True)
class _MergedColumn:
    """A column whose *rows* have the values of column *others*."""

    column: Column
    rows: Ints
    others: Column

    def ticks(self, unit: str) -> tuple[Ticks, Mask]:
        ticks, valid = self.column.ticks(unit)
        ticks[self.rows], valid[self.rows] = self.others.ticks(unit)
        return ticks, valid

    def keys(self) -> pa.DictionaryArray:
        keys, others = self.column.keys(), self.others.keys()
        indices = keys.indices.to_numpy().astype(np.int32)
        indices[self.rows] = others.indices.to_numpy() + len(keys.dictionary)
        return pa.DictionaryArray.from_arrays(pa.array(indices), pa.concat_arrays([keys.dictionary, others.dictionary]))

    def present(self) -> Mask:
        present = self.column.present()
        present[self.rows] = self.others.present()
        return present
