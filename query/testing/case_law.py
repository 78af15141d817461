"""
A case of ``tidegate test`` that says what disturbs it: besides the run on files, the disturbed run that ``law_of`` made.

``case.toml`` has ``disturbance = "restart 3"`` and, for functions that no package offers, a table ``[functions]`` with
``NAME = "FILE:NAME"`` from the case's folder. Law: the verdict is good only if the disturbed run gives the bytes of an undisturbed one.
"""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

from query.local.case_files import SETTINGS, Case, CaseError
from query.local.case_run import CaseVerdict, run_case
from query.script import read_script_text
from query.testing.disturbance import Disturbance
from query.testing.trial import open_trial
from query.testing.user_code import functions_restored, load_anew, load_place, register_functions
from query.testing.user_query import UserQuery, user_query
from tidegate.records.files.files import BLOCK_BYTES


def check_case(case: Case, block_bytes: int = BLOCK_BYTES) -> CaseVerdict:
    """
    Run a case as :func:`query.local.case_run.run_case` does, with its functions, and once more as it is disturbed.

    Raises:
        CaseError: A function cannot be loaded, or the disturbance is none.
        TidegateError: A file or a setting of the case is wrong.
    """
    disturbance = _disturbance_of(case)
    query = _query_of(case)
    with functions_restored():
        register_functions(load_anew(query.functions))
        verdict = run_case(case, block_bytes)
    # An error of the script has been compared with the expected one.
    if disturbance is None or "error" in verdict.comparisons:
        return verdict
    with open_trial(query, {file.name: Path(file.path) for file in case.files}) as trial:
        return replace(verdict, broken_law=trial.differ(disturbance) or "")


def _disturbance_of(case: Case) -> Disturbance | None:
    try:
        return Disturbance.parse(case.disturbance) if case.disturbance else None
    except ValueError as error:
        what = f"{case.disturbance!r} is no disturbance"
        raise CaseError(what, where=f"{case.folder / SETTINGS}: disturbance", fix=str(error), example='disturbance = "restart 3"') from None


def _query_of(case: Case) -> UserQuery:
    functions = {}
    for name, place in case.functions.items():
        try:
            functions[name] = load_place(place, case.folder)
        except Exception as error:  # whatever the user's module raises
            what = f"{name} cannot be loaded from {place}: {type(error).__name__}: {error}"
            fix = "give the file of a Python module, from the folder of the case, and the name in it of a function, aggregate or operator"
            raise CaseError(what, where=f"{case.folder / SETTINGS}: functions.{name}", fix=fix, example='f = "../rides.py:f"') from None
    policies = {field.name: str(value) for field in fields(case.flags) if (value := getattr(case.flags, field.name)) is not None}
    references = {file.name: Path(file.path) for file in case.references}
    query = user_query(read_script_text(case.script), functions, policies, case.config, references)
    return replace(query, script=case.script)
