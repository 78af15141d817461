"""
What ``tidegate local`` and ``tidegate test`` run a script with: files, time policies, and perhaps a configuration.

Law: a flag that is given counts; else what the configuration says of the input; else the default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ordering.errors import SettingError
from ordering.policies import Action, Policies, Shape
from query.program import Program
from tidegate.cli import order_flags
from tidegate.cli.local_files import LocalFile
from tidegate.cli.local_input import FileInput, Rules
from tidegate.cli.local_run import LocalRun
from tidegate.cli.local_script import Reads, ScriptSettings
from tidegate.runtime.scalars.catalog import InputSchema


@dataclass(frozen=True, slots=True)
class PolicyFlags:
    """Time policies as they are typed; None where they are not."""

    early: str | None = None
    late: str | None = None
    late_action: Action | None = None
    reorder: str | None = None
    out_of_order_action: Action | None = None

    def over(self, policies: Policies) -> Policies:
        """
        Return *policies* with those that were typed in their places.

        Raises:
            SettingError: A duration cannot be read or is out of range.
        """
        typed = order_flags.policies(
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
class Given:
    """
    What a run is given beside its script and its files.

    Args:
        settings: What the script is bound with.
        rules: How the time of each input is told, by its name.
    """

    settings: ScriptSettings
    rules: Mapping[str, Rules] = field(default_factory=dict)

    @classmethod
    def of(cls, files: Sequence[LocalFile], flags: PolicyFlags, config: Path | None = None) -> Given:
        """
        Put together flags and configuration.

        Raises:
            SettingError: One of them is wrong, or asks for what there is not on files.
        """
        default = Rules(flags.over(Policies()))
        if config is None:
            free = [InputSchema(file.name, is_free=True) for file in files]
            return cls(ScriptSettings(free), {file.name: default for file in files})
        from tidegate.runtime.settings import load

        configured = load(config)
        schemas, rules, longest_us = [], {}, configured.query.window_max_us
        for file in files:
            table = next((table for name, table in configured.inputs.items() if name.lower() == file.name.lower()), None)
            if table is None:
                schemas.append(InputSchema(file.name, is_free=True))
                rules[file.name] = default
                continue
            if table.event_shape is Shape.EDGE:
                what, fix = f"{table.name} has edges, which files cannot hold yet", "order the file with tidegate order --shape edge"
                raise SettingError(what, code="TG-LOCAL-INPUT", where=f"inputs.{table.name}.shape", fix=fix)
            schemas.append(InputSchema(file.name, table.timestamp_by, table.over, table.fields))
            rules[file.name] = Rules(flags.over(table.policies()), table.timestamp_format)
        return cls(ScriptSettings(schemas, longest_us), rules)


@contextmanager
def opened_run(reads: Reads, files: Sequence[LocalFile], given: Given, block_bytes: int) -> Iterator[LocalRun]:
    """
    Open the files that a script reads, in the order in which it names them.

    Raises:
        OrderFileError: A file is not what its name says.
    """
    file_of = {file.name: file for file in files}
    with ExitStack() as stack:
        inputs = []
        for scan in reads.scans:
            source = FileInput(file_of[scan.input], scan, given.rules[scan.input], block_bytes)
            stack.callback(source.close)
            inputs.append(source)
        yield LocalRun(Program(reads.plans), inputs, over=reads.over)
