"""What commands at the prompt import: a library that takes long to load is imported only where it is used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.basics import lean_imports

_SLOW = {
    "numpy",
    "pyarrow",
    "pandas",
    "duckdb",
    "sqlglot",
    "pydantic",
    "redis",
    "pyspark",
    "confluent_kafka",
    "structlog",
    "rich",
    "asyncio",
    "pyarrow.fs",
    "pyarrow.parquet",
    "opentelemetry.sdk",
    "query.reference.files",
}
_COMMAND = """
import atexit, sys
from tidegate.tools.commands.main import main
atexit.register(lambda: print("imported", *sorted(sys.modules)))
main()
"""


def _run(program: str, folder: Path, *arguments: str, code: int = 0) -> str:
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, cwd=folder, env={**os.environ, "TERM": "dumb"}, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("command", "code", "used"),
    [
        ("--help", 0, ""),
        ("lint --help", 0, ""),
        ("no-such-command", 2, ""),
        ("lint --no-such-flag", 2, ""),
        ("config", 0, "pydantic rich"),
        ("lint q.sql", 0, "numpy pyarrow sqlglot"),
        ("local q.sql --input a=a.ndjson", 0, "numpy pyarrow sqlglot structlog duckdb"),
        ("local q.sql --input a=a.ndjson --config tidegate.toml", 0, "numpy pyarrow sqlglot structlog duckdb pydantic"),
        ("test .", 0, "numpy pyarrow sqlglot structlog duckdb"),
        # Kafka is asked; nothing that would run the query is imported, and no client of object stores.
        ("plan q.sql --config tidegate.toml", 0, "numpy pyarrow sqlglot pydantic confluent_kafka"),
        # Redis is asked, whose client imports asyncio.
        ("status", 4, "structlog pydantic redis asyncio"),
    ],
)
def test_a_command_imports_only_the_slow_libraries_that_it_uses(command: str, code: int, used: str, tmp_path: Path) -> None:
    """pandas, rich and Spark are none of them; settings are read only where there are some."""
    (tmp_path / "q.sql").write_text("SELECT id, at INTO results FROM a TIMESTAMP BY at\n")
    (tmp_path / "a.ndjson").write_text('{"id": 1, "at": "2026-01-01T00:00:00Z"}\n')
    (tmp_path / "tidegate.toml").write_text(
        'redis.url = "redis://127.0.0.1:1"\nkafka.bootstrap = "127.0.0.1:1"\n[inputs.a]\ntimestamp_by = "at"\n'
    )
    (tmp_path / "case").mkdir()
    (tmp_path / "case" / "case.toml").write_text('script = "../q.sql"\n')
    (tmp_path / "case" / "input.a.ndjson").write_text('{"id": 1, "at": "2026-01-01T00:00:00Z"}\n')
    (tmp_path / "case" / "expected.results.ndjson").write_text('{"id":1,"at":"2026-01-01T00:00:00Z"}\n')
    imported = _run(_COMMAND, tmp_path, *command.split(), code=code).rpartition("imported ")[2].split()
    assert _SLOW & set(imported) <= set(used.split())
    assert not {"query.job", "xml.sax"} & set(imported)


def test_pandas_that_is_imported_later_is_known_to_arrow(tmp_path: Path) -> None:
    """An extension may compute with it: NaN of a series is null in Arrow, as in a process that imported pandas at once."""
    program = (
        f"from {lean_imports.__name__} import import_leanly"
        + """
import_leanly()
import sys, pyarrow as pa
pa.array([1.0])
assert "pandas" not in sys.modules
import pandas as pd
print(pa.array(pd.Series([1.0, float("nan")])).null_count, pa.table({"a": [1]}).to_pandas().shape)
"""
    )
    assert _run(program, tmp_path) == "1 (1, 1)\n"


def test_methods_of_dataclasses_that_are_compiled_late_are_the_usual_ones(tmp_path: Path) -> None:
    """Equality, order, hash, text, refusals and pickles of classes made before and after; each method keeps its name."""
    program = (
        f"from {lean_imports.__name__} import import_leanly"
        + """
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace

def make():
    @dataclass(frozen=True, order=True, slots=True)
    class Point:
        x: int
        y: int = 0

    @dataclass
    class Named(object):
        name: str
        inner: object = None
        hidden: int = field(default=1, repr=False, compare=False)

    return Point, Named

def behaviour(Point, Named):
    yield Point(1) == Point(1), Point(1) == Point(2), Point(1) == 1, Point(1) < Point(1, 1), Point(2) >= Point(1), Point(2) <= Point(1)
    yield len({Point(1), Point(1), Point(2)}), hash(Point(1)) == hash((1, 0)), repr(Point(1)), repr(Named("a", Named("b")))
    for change in (lambda p: setattr(p, "x", 2), lambda p: delattr(p, "x")):
        try:
            change(Point(1))
        except FrozenInstanceError as error:
            yield str(error)
    named = Named("a")
    named.inner = named
    yield repr(named), named.name == replace(named, name="b").name, Named("a", 1, 2) == Named("a", 1, 3), Named.__hash__
    yield [getattr(Point, name).__qualname__ for name in ("__eq__", "__lt__", "__repr__", "__hash__", "__setattr__", "__init__")]
    try:
        Point(1) < 1
    except TypeError as error:
        yield str(error)

class Sub:
    pass

usual = list(behaviour(*make()))
import_leanly()
late = list(behaviour(*make()))
again = make()
assert usual == late == list(behaviour(*again)) == list(behaviour(*again)), (usual, late)

@dataclass(frozen=True)
class Base:
    x: int

class Child(Base):
    pass

assert Child(1) == Child(1) and Child(1) != Base(1) and Base(1) == pickle.loads(pickle.dumps(Base(1)))
print("equal")
"""
    )
    assert _run(program, tmp_path) == "equal\n"


def test_asyncio_that_structlog_did_not_import_is_there_when_asked_for(tmp_path: Path) -> None:
    """A logger in a coroutine logs as usual; options of Arrow's functions are documented nowhere else than in their signatures."""
    program = (
        f"from {lean_imports.__name__} import import_leanly"
        + """
import_leanly()
import sys, structlog
assert "asyncio" not in sys.modules
import asyncio
asyncio.run(structlog.get_logger().ainfo("said"))
import inspect
import pyarrow as pa, pyarrow.compute as pc
from pyarrow.vendored import docscrape
assert docscrape.NumpyDocString("Parameters\\n----------\\na : int\\n").get("Parameters") is not None
print(pc.sum(pa.array([1, 2])), list(inspect.signature(pc.sum).parameters)[:2])
"""
    )
    assert _run(program, tmp_path).splitlines()[-1] == "3 ['array', 'skip_nulls']"
