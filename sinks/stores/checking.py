"""For ``tidegate lint`` and ``plan``: says how results reach the stores of an output, and checks whether these fit its query."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress

from ordering.errors import SettingError, TidegateError, UnreachableError
from ordering.ticks import format_duration
from sinks.stores.base import KeyedStore, StoreContext, StoreError, Stream
from sinks.stores.registry import make_store
from tidegate.platform.settings.tables.outputs import OutputSettings
from tidegate.records.result_columns import Column, are_known

NULL_KEY = "TG-LINT-NULL-KEY"


def check_stores(output: OutputSettings, selected: Sequence[Column]) -> list[TidegateError]:
    """
    Return the errors of copying results into the stores of *output* if its script has *selected* these columns: a StoreError for each store
    that does not fit, an UnreachableError for each that does not answer, or whose secrets are not set here. Nothing is changed.
    """
    columns = output.columns_of(selected)
    if output.stores and not are_known(columns):
        what = f"the query selects *, so nobody can say which columns {output.name} has in its stores"
        return [
            StoreError(
                what,
                code="TG-STORE-COLUMNS",
                where=f"outputs.{output.name}",
                fix=f"name the columns in SELECT, or give outputs.{output.name}.columns",
            )
        ]
    errors: list[TidegateError] = []
    for kind, settings in output.stores.items():
        try:
            with closing(make_store(kind, settings, _context(output, columns))) as store:
                store.check()
        except (StoreError, UnreachableError) as error:
            errors.append(error)
        except SettingError as error:
            errors.append(_not_asked(error))
    return errors


def _not_asked(error: SettingError) -> UnreachableError:
    """Return the warning that a store cannot be asked from here; raise *error* if it is another than that a secret is not set."""
    if error.code != "TG-SETTING-UNSET":
        raise error
    return UnreachableError(error.what, code=error.code, where=error.where, fix=error.fix, example=error.example)


def warn_of_null_keys(output: OutputSettings, selected: Sequence[Column], never_null: Collection[str]) -> list[StoreError]:
    """
    Return a warning for each column of a store's key that may be NULL, where the store takes no NULL: all but those that are *never_null*.
    Stores that do not fit or cannot be asked are passed over: :func:`check_stores` has them.
    """
    columns, known = output.columns_of(selected), {name.lower() for name in never_null}
    warnings: list[StoreError] = []
    for kind, settings in output.stores.items() if are_known(columns) else ():
        refusals: Mapping[str, str] = {}
        with suppress(StoreError, UnreachableError, SettingError), closing(make_store(kind, settings, _context(output, columns))) as store:
            refusals = store.null_refusals() if isinstance(store, KeyedStore) else {}
        for column, statement in refusals.items():
            if column.lower() not in known:
                what = f"key column {column} may be NULL, and {kind} takes no such row: one would stop the job (TG-STORE-ROW)"
                others = f'leave such rows out (WHERE {column} IS NOT NULL), name them (COALESCE), or set on_error = "dead_letter"'
                fix = f"{statement}; or {others}" if statement else others
                warnings.append(StoreError(what, code=NULL_KEY, where=f"outputs.{output.name}.{kind}", fix=fix))
    return warnings


def _context(output: OutputSettings, columns: Sequence[Column]) -> StoreContext:
    return StoreContext(output.name, Stream(output.topic or output.name, "", 1), columns)


def describe_copies(output: OutputSettings, selected: Sequence[Column]) -> list[str]:
    """Return lines that say how results reach the stores: through which topic, by which job, and which columns as JSON."""
    if not output.stores:
        return []
    kept = "for ever" if output.retention_us is None else f"for {format_duration(output.retention_us)}"
    job = "the query itself" if output.sink_in_job else f"tidegate sink {output.name}"
    lines = [f"{output.name}: topic {output.topic}, made if missing, keeps them {kept}; {job} copies them into {', '.join(output.stores)}"]
    untyped = [name for name, kind in output.columns_of(selected) if kind == "any" and name != "*"]
    if untyped and output.stores.keys() - {"http", "redis"}:
        fix = "declare it in fields of the input, or write CAST"
        lines.append(f"{output.name}: stores get {', '.join(untyped)} as JSON, since nothing says its type: {fix}")
    return lines
