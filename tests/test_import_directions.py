"""
The floors of the house: a room imports only rooms on lower floors, and nothing goes in circles; ordering stays pure.

A room is a folder of a package or of a wing of ``tidegate``, or a module that stands beside the folders. Lazy imports count like the
others: what a function imports is needed all the same.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from support.repository import ROOT

PACKAGES = ("ordering", "ingest", "query", "sinks", "tidegate")
FLOORS = """
ordering.errors
ordering.arrays  ordering.ticks
ordering.columns  ordering.policies
ordering.protocol
ordering.model
ordering.proof  ordering.tuning
ordering.testing
ordering
ordering.conformance

tidegate  tidegate.basics
tidegate.basics.visible_text
tidegate.basics.own_packages  tidegate.basics.early_stop  tidegate.basics.lean_imports
tidegate.basics.bounded_files  tidegate.basics.fault_points  tidegate.basics.native_parts  tidegate.basics.secret_masking
tidegate.basics.budget  tidegate.basics.process_identity
tidegate.basics.access_rights  tidegate.basics.dead_letter_reasons  tidegate.basics.safe_path
tidegate.basics.unnamed_servers  tidegate.basics.package_offers

tidegate.language
tidegate.language.json_columns  tidegate.language.time_zones  tidegate.language.javascript
tidegate.language.expressions

tidegate.platform
tidegate.platform.stack
tidegate.platform.settings
tidegate.platform.redis_client
tidegate.platform.observe
tidegate.platform.metrics
tidegate.platform.kafka
tidegate.platform.spark
tidegate.platform.checkpoint

tidegate.records  tidegate.records.result_columns
tidegate.records.payloads
tidegate.records.fields
tidegate.records.files

tidegate.ordered_topic

sinks  sinks.base
sinks.waiting_writes
sinks.webhdfs
sinks.console  sinks.file_places  sinks.plain_topic  sinks.stores
sinks.files
sinks.registry  sinks.copying  sinks.extending

ingest  ingest.files  ingest.input_order  ingest.offsets  ingest.skips
ingest.progress
ingest.cti_imports  ingest.planned_range
ingest.config
ingest.journal  ingest.time_warnings
ingest.planner
ingest.running_input  ingest.stage  ingest.start
ingest.replay  ingest.content_search  ingest.unusable_place  ingest.tuning
ingest.job  ingest.explain
ingest.run  ingest.verify
ingest.commands  ingest.__main__

query  query.api
query.columns  query.progress
query.plan  query.reference
query.operators  query.javascript  query.formatting
query.engine  query.sql
query.config  query.extensions  query.listed
query.script  query.lint  query.extending  query.buckets  query.absent_columns  query.null_shares
query.stage
query.start
query.script_plans
query.job
query.running_query  query.output_plan
query.run  query.verify
query.local  query.preview  query.trace  query.editor
query.testing
query.commands  query.__main__

sinks.commands  sinks.results

tidegate.ordering  tidegate.query  tidegate.sinks
tidegate.tools
tidegate.tools.verify  tidegate.tools.reset  tidegate.tools.project  tidegate.tools.peek  tidegate.tools.staircase
tidegate.tools.pipeline  tidegate.tools.why  tidegate.tools.forward_trace  tidegate.tools.convert
tidegate.testing  tidegate.tools.page
tidegate.tools.commands  tidegate.pytest_plugin
tidegate.__main__
"""
"""From the lowest floor to the roof; rooms in one line do not know each other."""
APART = {("query", "ingest"), ("ingest", "query")}
"""They meet on the wire format only."""
PURE = {"numpy", "pyarrow", "fastavro"}
CLOCKS = {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "now", "utcnow", "today"}

WINGS = tuple(f"tidegate.{wing}." for wing in ("basics", "language", "platform", "records", "tools"))
"""Their folders are rooms."""

LEVELS = {room: level for level, floor in enumerate(line for line in FLOORS.splitlines() if line) for room in floor.split()}


@cache
def modules() -> Mapping[str, Path]:
    """Return the source file of each module."""
    found = {}
    for package in PACKAGES:
        for source in sorted((ROOT / package).rglob("*.py")):
            found[".".join(source.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")] = source
    return found


def sources(package: str) -> Iterator[Path]:
    """Yield the source files of one package."""
    return (source for name, source in modules().items() if name.partition(".")[0] == package)


def imported(source: Path) -> Iterator[tuple[int, str]]:
    """Yield line and full name of everything a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(source.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source}:{node.lineno}: a relative import hides its direction"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def module_of(name: str) -> str | None:
    """Return the module of ours that an imported name is, or is in; None if it is not ours."""
    while name and name not in modules():
        name = name.rpartition(".")[0]
    return name or None


@cache
def arrows() -> Iterable[tuple[str, str, int]]:
    """Return (module, module it imports, line) of every import among our own modules."""
    return [
        (name, target, line)
        for name, source in modules().items()
        for line, what in imported(source)
        if (target := module_of(what)) is not None and target != name
    ]


def room_of(module: str) -> str:
    """Return the room that a module is in."""
    parts = module.split(".")
    return ".".join(parts[: 3 if module.startswith(WINGS) else 2])


def test_every_room_has_its_floor() -> None:
    """A new room is drawn in FLOORS, and one that is gone is erased."""
    rooms = {room_of(module) for module in modules()}
    assert rooms == set(LEVELS), f"draw in FLOORS: {sorted(rooms - set(LEVELS))}; erase there: {sorted(set(LEVELS) - rooms)}"


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_downwards(package: str) -> None:
    """No room imports from a higher floor or from its own, nor does ingest import query or query ingest."""
    wrong = [
        f"{module}:{line} imports {target}"
        for module, target, line in arrows()
        if module.partition(".")[0] == package
        and room_of(module) != room_of(target)
        and (LEVELS[room_of(target)] >= LEVELS[room_of(module)] or (package, target.partition(".")[0]) in APART)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("folder", sorted(name for name, source in modules().items() if source.name == "__init__.py"))
def test_nothing_goes_in_circles(folder: str) -> None:
    """Neither the modules in a folder nor the folders in it, as wholes, import each other."""

    def part_of(module: str) -> str | None:
        inside = f"{module}.".startswith(f"{folder}.")
        return module[len(folder) + 1 :].partition(".")[0] or folder if inside else None

    needs: dict[str, set[str]] = {}
    for module, target, _ in arrows():
        part, needed = part_of(module), part_of(target)
        if part is not None and needed is not None and part != needed:
            needs.setdefault(part, set()).add(needed)
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        pytest.fail(f"in {folder}: {' <- '.join(error.args[1])}")


def test_ordering_imports_only_what_needs_no_service() -> None:
    """The model's tests need no JVM, no Kafka and no Redis: standard library, numpy, pyarrow and fastavro only."""
    allowed = PURE | set(sys.stdlib_module_names) | {"ordering"}
    wrong = [
        f"{source.relative_to(ROOT)}:{line} imports {name}"
        for source in sources("ordering")
        for line, name in imported(source)
        if name.partition(".")[0] not in allowed
    ]
    assert not wrong, "\n".join(wrong)


def test_ordering_reads_no_clock() -> None:
    """Time is a parameter: nothing in the model asks what time it is."""
    wrong = [
        f"{source.relative_to(ROOT)}:{node.lineno} calls {ast.unparse(node.func)}"
        for source in sources("ordering")
        for node in ast.walk(ast.parse(source.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLOCKS
    ]
    wrong += [
        f"{source.relative_to(ROOT)}:{line} imports {name}"
        for source in sources("ordering")
        for line, name in imported(source)
        if name.partition(".")[0] == "time"
    ]
    assert not wrong, "\n".join(wrong)
