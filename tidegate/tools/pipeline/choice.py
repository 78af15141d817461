"""
Which stages of a configuration a process runs, known before anything of a stage is imported: Spark starts meanwhile.

Law: every stage has one label, by which a process picks it; without any it runs all.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import ingest
import query
from ingest.input_order import order_by_imports
from ordering.errors import SettingError
from tidegate.platform.checkpoint.binding import checkpoint_folder
from tidegate.platform.settings.load import DEFAULT_FILE, Settings
from tidegate.platform.settings.problems import choice_fix

# What the Python processes of these stages import.
PYTHON_MODULES = (*ingest.PYTHON_MODULES, *query.PYTHON_MODULES)
KINDS = ("ingest", "query", "sink")


def labels_of(settings: Settings) -> list[str]:
    """Return the stages of a configuration: its inputs, listed queries, and outputs whose stores a sink fills."""
    sinks = [name for name, output in settings.outputs.items() if output.topic and output.stores and not output.sink_in_job]
    return [
        *(f"ingest:{name}" for name in order_by_imports(settings, list(settings.inputs))),
        *(f"query:{name}" for name in settings.queries),
        *(f"sink:{name}" for name in sinks),
    ]


def choose(settings: Settings, wanted: Iterable[str]) -> list[str]:
    """Return the stages that *wanted* picks, all without any. Raises SettingError: there is none of that name, or none at all."""
    known, picked = labels_of(settings), list(dict.fromkeys(wanted))
    if not known:
        what, fix = "the configuration has no stage", f"add an input, and the queries that read it, to {DEFAULT_FILE}"
        raise SettingError(what, code="TG-SETTING-NAME", where="inputs", fix=fix, example='[queries.revenue]\nscript = "revenue.sql"')
    for label in picked:
        if label not in known:
            raise SettingError(f"there is no stage {label}", code="TG-SETTING-NAME", where=DEFAULT_FILE, fix=choice_fix(label, known))
    return [label for label in known if label in picked] if picked else known


def run_folder(settings: Settings, first: str) -> Path:
    """
    Return the folder of what belongs to the process, not to a stage: Spark's log. Processes run different stages, so the label of the
    *first* one tells them apart.
    """
    return checkpoint_folder(settings, f"run-{first.replace(':', '-')}")
