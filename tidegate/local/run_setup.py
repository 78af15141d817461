"""
The surroundings of a script's run: files, time policies, and perhaps a configuration.

Law: a flag overrides the configuration of the input, which overrides the default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ordering.errors import SettingError
from ordering.policies import Action, Policies
from query.engine.program import Program
from query.reference.tables import ReferenceTable
from query.sql.window_functions import WINDOW_US_MAX
from tidegate.expressions.binding.input_schema import InputSchema
from tidegate.local.files import LocalFile
from tidegate.local.inputs import FileInput, TimeRules
from tidegate.local.run import LocalRun
from tidegate.local.script import BoundScript, ScriptSettings
from tidegate.order.flags import parse_policies

if TYPE_CHECKING:
    from tidegate.settings.load import Settings
    from tidegate.settings.tables.inputs import InputSettings
    from tidegate.settings.tables.references import ReferenceSettings

Named = TypeVar("Named")


@dataclass(frozen=True, slots=True)
class PolicyFlags:
    """Time policies as typed in flags; None: not given."""

    early: str | None = None
    late: str | None = None
    late_action: Action | None = None
    reorder: str | None = None
    out_of_order_action: Action | None = None

    def override(self, policies: Policies) -> Policies:
        """Return *policies* with the given flags applied; raise SettingError if a duration cannot be read or is out of range."""
        # All flags are parsed with their defaults, to check them together; only the given ones are used.
        typed = parse_policies(
            self.early or "5m",
            self.late or "5s",
            self.late_action or Action.ADJUST,
            self.reorder or "0s",
            self.out_of_order_action or Action.ADJUST,
        )
        fields: Mapping[str, tuple[object, Any]] = {
            "early_us": (self.early, typed.early_us),
            "late_us": (self.late, typed.late_us),
            "late_action": (self.late_action, typed.late_action),
            "reorder_us": (self.reorder, typed.reorder_us),
            "out_of_order_action": (self.out_of_order_action, typed.out_of_order_action),
        }
        return replace(policies, **{name: value for name, (given, value) in fields.items() if given is not None})


@dataclass(frozen=True)
class RunSetup:
    """Everything that a run needs beside its script; ``rules`` has the time rules of each input, by its name."""

    settings: ScriptSettings
    rules: Mapping[str, TimeRules]
    files: Sequence[LocalFile]
    references: Mapping[str, ReferenceTable]

    @classmethod
    def of(
        cls, files: Sequence[LocalFile], flags: PolicyFlags, config: Path | None = None, references: Sequence[LocalFile] = ()
    ) -> RunSetup:
        """
        Combine files, flags and configuration.

        Raises:
            SettingError: One of them is wrong.
            RefusedError: A table of reference data cannot be read.
        """
        shared_names = {file.name.lower() for file in files} & {file.name.lower() for file in references}
        if shared_names:
            what, fix = f"{', '.join(sorted(shared_names))} is both an input and reference data", "name it once"
            raise SettingError(what, code="TG-SETTING-CONFLICT", where="--reference", fix=fix)
        settings = _load_config(config)
        configured_inputs = _by_name(settings.inputs if settings else {})
        default = TimeRules(flags.override(Policies()))
        schemas, rules = [], {}
        for file in files:
            table = configured_inputs.get(file.name.lower())
            schemas.append(_schema(file, table))
            rules[file.name] = default if table is None else _time_rules(table, flags)
        tables = _load_tables(references, _by_name(settings.references if settings else {}))
        schemas += [table.schema for table in tables.values()]
        longest_us = settings.query.window_max_us if settings else WINDOW_US_MAX
        return cls(ScriptSettings(schemas, longest_us), rules, files, tables)


def _load_config(config: Path | None) -> Settings | None:
    if config is None:
        return None
    # Settings import pydantic, which is slow to load; most local runs have no configuration.
    from tidegate.settings.load import load

    return load(config)


def _by_name(tables: Mapping[str, Named]) -> dict[str, Named]:
    return {name.lower(): table for name, table in tables.items()}


def _time_rules(table: InputSettings, flags: PolicyFlags) -> TimeRules:
    return TimeRules(flags.override(table.policies()), table.timestamp_format, table.event_shape, table.end)


def _schema(file: LocalFile, table: InputSettings | None) -> InputSchema:
    if table is None:
        return InputSchema(file.name, is_free=True)
    return InputSchema(file.name, table.timestamp_by, table.over, table.fields)


def _load_tables(files: Sequence[LocalFile], known: Mapping[str, ReferenceSettings]) -> dict[str, ReferenceTable]:
    if not files:
        return {}
    from query.reference.files import load_reference
    from tidegate.settings.tables.references import ReferenceSettings

    tables = {}
    for file in files:
        settings = known.get(file.name.lower(), ReferenceSettings.model_validate({"path": file.path}))
        tables[file.name] = load_reference(settings.model_copy(update={"name": file.name, "path": file.path, "effective": {}}))
    return tables


@contextmanager
def open_run(script: BoundScript, setup: RunSetup, block_bytes: int) -> Iterator[LocalRun]:
    """Open the files that a script reads, in its order; raise OrderFileError if a file does not have the format of its ending."""
    file_of = {file.name: file for file in setup.files}
    with ExitStack() as stack:
        inputs = []
        for scan in script.scans:
            source = FileInput(file_of[scan.input], scan, setup.rules[scan.input], block_bytes)
            stack.callback(source.close)
            inputs.append(source)
        yield LocalRun(Program(script.plans, references=setup.references), inputs, has_over=script.has_over)
