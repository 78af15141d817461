"""The import arrows: ordering <- tidegate <- sinks <- ingest, query <- tidegate.cli; ordering stays pure."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.repository import ROOT

AREAS = ("ordering", "tidegate", "sinks", "ingest", "query", "tidegate.cli")
"""From left to right; each may import itself and what stands further left."""
COMMANDS = ("tidegate.cli", "tidegate.local", "tidegate.order", "tidegate.compare", "tidegate.__main__")
"""The area ``tidegate.cli``: the command line and what commands on files and topics do; the rest of tidegate both jobs stand on."""
NEVER = {("query", "ingest"), ("ingest", "query")}
"""They meet on the wire format only."""
PURE = {"numpy", "pyarrow", "fastavro"}
CLOCKS = {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "now", "utcnow", "today"}


def modules(area: str) -> Iterator[Path]:
    """Yield the source files of one area."""
    for source in sorted((ROOT / area.partition(".")[0]).rglob("*.py")):
        if area_of(".".join(source.relative_to(ROOT).with_suffix("").parts)) == area:
            yield source


def imported(source: Path) -> Iterator[tuple[int, str]]:
    """Yield line and full name of everything a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(source.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source}:{node.lineno}: a relative import hides its direction"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def area_of(name: str) -> str | None:
    """Return the area a module name belongs to; None if it is nobody's of ours."""
    if any(name == command or name.startswith(command + ".") for command in COMMANDS):
        return "tidegate.cli"
    return next((area for area in AREAS if name == area or name.startswith(area + ".")), None)


@pytest.mark.parametrize("area", AREAS)
def test_imports_point_to_the_left(area: str) -> None:
    """No module imports from an area further right, nor does ingest import query or query ingest."""
    allowed = {other for other in AREAS[: AREAS.index(area) + 1] if (area, other) not in NEVER}
    wrong = [
        f"{source.relative_to(ROOT)}:{line} imports {name}"
        for source in modules(area)
        for line, name in imported(source)
        if (target := area_of(name)) and target not in allowed
    ]
    assert not wrong, "\n".join(wrong)


def test_ordering_imports_only_what_needs_no_service() -> None:
    """The model's tests need no JVM, no Kafka and no Redis: standard library, numpy, pyarrow and fastavro only."""
    allowed = PURE | set(sys.stdlib_module_names) | {"ordering"}
    wrong = [
        f"{source.relative_to(ROOT)}:{line} imports {name}"
        for source in modules("ordering")
        for line, name in imported(source)
        if name.partition(".")[0] not in allowed
    ]
    assert not wrong, "\n".join(wrong)


def test_ordering_reads_no_clock() -> None:
    """Time is a parameter: nothing in the model asks what time it is."""
    wrong = [
        f"{source.relative_to(ROOT)}:{node.lineno} calls {ast.unparse(node.func)}"
        for source in modules("ordering")
        for node in ast.walk(ast.parse(source.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLOCKS
    ]
    wrong += [
        f"{source.relative_to(ROOT)}:{line} imports {name}"
        for source in modules("ordering")
        for line, name in imported(source)
        if name.partition(".")[0] == "time"
    ]
    assert not wrong, "\n".join(wrong)
