"""
What the run of a script needs beside the script: files, time policies, and perhaps a configuration.

Law: a flag overrides the configuration of the input, which overrides the default.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from ordering.errors import SettingError
from ordering.policies import Action, Policies
from ordering.protocol.keys import KEY_BYTES_MAX
from query.absent_columns import CODE, SAMPLE_RECORDS, absent_columns
from query.engine.program import Program
from query.lint import Finding
from query.local.files import LocalFile, open_file_records
from query.local.inputs import FileInput, TimeRules
from query.local.run import LocalRun
from query.local.script import BoundScript, ScriptSettings
from query.operators.joins.pair_limits import JOIN_PAIRS_MAX
from query.operators.joins.reference_patterns import check_patterns
from query.reference.tables import ReferenceTable
from query.sql.windows.window_functions import WINDOW_US_MAX
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.records.files.blocks import FileFormat
from tidegate.records.files.files import BLOCK_BYTES
from tidegate.records.files.flags import parse_policies

if TYPE_CHECKING:
    from tidegate.platform.settings.load import Settings
    from tidegate.platform.settings.tables.inputs import InputSettings
    from tidegate.platform.settings.tables.references import ReferenceSettings

Named = TypeVar("Named")

# Bytes of a block if only the first records of a file are wanted; about 1,000 records of a CSV.
_SAMPLE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class PolicyFlags:
    """Time policies as typed in flags; None: not given."""

    early: str | None = None
    early_action: Action | None = None
    late: str | None = None
    late_action: Action | None = None
    reorder: str | None = None
    out_of_order_action: Action | None = None

    def override(self, policies: Policies) -> Policies:
        """Return *policies* with the given flags applied; raise SettingError if a duration cannot be read or is out of range."""
        # All flags are parsed with their defaults, to check them together; only the given ones are used.
        given = (self.early, self.early_action, self.late, self.late_action, self.reorder, self.out_of_order_action)
        early = self.early or "5m", self.early_action or Action.DROP
        late = self.late or "5s", self.late_action or Action.ADJUST
        typed = parse_policies(*early, *late, self.reorder or "0s", self.out_of_order_action or Action.ADJUST)
        names = ("early_us", "early_action", "late_us", "late_action", "reorder_us", "out_of_order_action")
        return replace(policies, **{name: getattr(typed, name) for name, flag in zip(names, given, strict=True) if flag is not None})


@dataclass(frozen=True)
class RunSetup:
    """Everything that a run needs beside its script; ``rules`` has the time rules of each input, by its name."""

    settings: ScriptSettings
    rules: Mapping[str, TimeRules]
    files: Sequence[LocalFile]
    references: Mapping[str, ReferenceTable]
    join_pairs_max: int = JOIN_PAIRS_MAX

    @classmethod
    def of(
        cls,
        files: Sequence[LocalFile],
        flags: PolicyFlags,
        config: Path | None = None,
        references: Sequence[LocalFile] = (),
        configured_references: Collection[str] = (),
    ) -> RunSetup:
        """
        Combine files, flags and configuration.

        Args:
            configured_references: Names of tables that are read where the configuration says, if no file is given for them.

        Raises:
            SettingError: A file, flag or setting is wrong.
            RefusedError: A table of reference data is unreadable.
        """
        shared_names = {file.name.lower() for file in files} & {file.name.lower() for file in references}
        if shared_names:
            what, fix = f"{', '.join(sorted(shared_names))} is both an input and reference data", "name it once"
            raise SettingError(what, code="TG-SETTING-CONFLICT", where="--reference", fix=fix)
        settings = _load_config(config)
        schemas, rules = _schemas_and_rules(files, flags, settings)
        known_tables = _by_name(settings.references if settings else {})
        tables = _load_tables(references, known_tables)
        files = _with_form_settings(files, _by_name(settings.inputs if settings else {}))
        given = {file.name.lower() for file in [*files, *references]}
        configured = {table.name: table for name, table in known_tables.items() if name not in given}
        if configured_references and configured:
            from query.reference.files import load_references

            tables |= load_references(configured, configured_references)
        schemas += [table.schema for table in tables.values()]
        longest_us, pairs_max = WINDOW_US_MAX, JOIN_PAIRS_MAX
        if settings:
            longest_us, pairs_max = settings.query.window_max_us, settings.query.join_pairs_max
        return cls(ScriptSettings(schemas, longest_us, settings.functions if settings else {}), rules, files, tables, pairs_max)


def _schemas_and_rules(
    files: Sequence[LocalFile], flags: PolicyFlags, settings: Settings | None
) -> tuple[list[InputSchema], dict[str, TimeRules]]:
    """Return the schema of each file's input, and its time rules by its name: as configured, where the configuration has the input."""
    configured_inputs = _by_name(settings.inputs if settings else {})
    clock_us = time.time_ns() // 1_000
    default = TimeRules(flags.override(Policies()), clock_us=clock_us)
    schemas, rules = [], {}
    for file in files:
        table = configured_inputs.get(file.name.lower())
        if table is None:
            schemas.append(InputSchema(file.name, is_free=True))
            rules[file.name] = default
        else:
            # A file has no headers: its payloads' record User stands for them.
            schemas.append(replace(table.schema_of_events(file.name), headers=None))
            policies, limit = flags.override(table.policies()), table.key_bytes_max or KEY_BYTES_MAX
            form, jump_us = table.timestamp_format, table.watermark_jump_warn_us
            rules[file.name] = TimeRules(policies, form, table.event_shape, table.end, limit, jump_us, clock_us)
    return schemas, rules


def _with_form_settings(files: Sequence[LocalFile], inputs: Mapping[str, InputSettings]) -> list[LocalFile]:
    """Return the files with what the configuration says of their inputs' payloads, where no flag says otherwise."""
    found = []
    for file in files:
        table = inputs.get(file.name.lower())
        if table is not None and table.format == "csv" and file.format is FileFormat.CSV:
            # A .tsv file says by its ending what is between its columns.
            own = None if file.path.lower().endswith(".tsv") else table.csv_delimiter
            file = replace(file, delimiter=file.delimiter or own, columns=table.csv_columns)
        if table is not None and table.explode is not None:
            file = replace(file, explodes=True)
        found.append(file)
    return found


def _load_config(config: Path | None) -> Settings | None:
    if config is None:
        return None
    # Settings import pydantic, which is slow to load; most local runs have no configuration.
    from tidegate.platform.settings.load import load

    return load(config)


def _by_name(tables: Mapping[str, Named]) -> dict[str, Named]:
    return {name.lower(): table for name, table in tables.items()}


def _load_tables(files: Sequence[LocalFile], known: Mapping[str, ReferenceSettings]) -> dict[str, ReferenceTable]:
    if not files:
        return {}
    from query.reference.files import load_reference
    from tidegate.platform.settings.tables.references import ReferenceSettings

    tables = {}
    for file in files:
        settings = known.get(file.name.lower(), ReferenceSettings.model_validate({"path": file.path}))
        given = {"name": file.name, "path": file.path, "effective": {}}
        own: dict[str, Any] = {} if file.delimiter is None else {"csv_delimiter": file.delimiter}
        if file.types:
            named = {name.lower() for name, _ in file.types}
            own["fields"] = dict([*((name, kind) for name, kind in settings.fields.items() if name.lower() not in named), *file.types])
        tables[file.name] = load_reference(settings.model_copy(update=given | own))
    return tables


@contextmanager
def open_run(script: BoundScript, setup: RunSetup, block_bytes: int) -> Iterator[LocalRun]:
    """Open the files that a script reads, in its order; raise OrderFileError if a file does not have the format of its ending."""
    check_patterns(script.plans, setup.references)
    file_of = {file.name: file for file in setup.files}
    with ExitStack() as stack:
        inputs = []
        for scan in script.scans:
            source = FileInput(file_of[scan.input], scan, setup.rules[scan.input], block_bytes)
            stack.callback(source.close)
            inputs.append(source)
        program = Program(script.plans, references=setup.references, join_pairs_max=setup.join_pairs_max)
        yield LocalRun(program, inputs, has_over=script.has_over)


def find_absent(script: BoundScript, setup: RunSetup) -> list[Finding]:
    """
    Return a warning for each column without a value in the first records of a file, and for each of reference data whose type may not be
    meant; standard input cannot be read twice.
    """
    from query.reference.csv_types import CODE as TYPE

    findings = [Finding(TYPE, found.where, found.what, found.fix) for table in setup.references.values() for found in table.warnings]
    for file in setup.files:
        if file.can_be_read_twice:
            payloads = _first_payloads(file)
            if len(payloads):
                absent = dict.fromkeys(absent_columns(script.plans, file.name, payloads))
                findings += [Finding(CODE, file.path, what, fix) for what, fix in absent]
    return findings


def _first_payloads(file: LocalFile) -> pa.Array:
    """Return the first records of a file as JSON: as many as a running job looks at, but only about one block of them if they are large."""
    pieces, count, size = [pa.array([], pa.binary())], 0, 0
    with open_file_records(file, _SAMPLE_BYTES) as records:
        for block in records.blocks():
            pieces.append(block.payloads())
            count, size = count + len(block), size + pieces[-1].nbytes
            if count >= SAMPLE_RECORDS or size >= BLOCK_BYTES:
                break
    return pa.concat_arrays(pieces).slice(0, SAMPLE_RECORDS)
