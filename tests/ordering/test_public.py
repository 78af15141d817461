"""``import ordering``: what its public face promises, how little it costs, and that its example is true."""

from __future__ import annotations

import ast
import doctest
import subprocess
import sys

import pytest
from support.repository import ROOT

import ordering


@pytest.mark.parametrize("name", ordering.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    """Each name of ``__all__`` can be had from the package and is the one of its module; classes and functions say what they are."""
    found = getattr(ordering, name)
    assert getattr(sys.modules[ordering._HOME[name]], name) is found
    assert name in dir(ordering)
    assert not callable(found) or found.__doc__


def test_type_checkers_see_the_same_names_as_programs() -> None:
    """The imports for type checkers, the list of public names and the table of their modules agree."""
    imported = {
        alias.name: node.module
        for node in ast.walk(ast.parse((ROOT / "ordering" / "__init__.py").read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("ordering.")
        for alias in node.names
    }
    assert imported == ordering._HOME
    assert sorted(imported) == sorted(ordering.__all__)


def test_an_unknown_name_is_an_ordinary_attribute_error() -> None:
    """``hasattr`` and misspelt imports behave as with any module."""
    assert not hasattr(ordering, "Polices")
    with pytest.raises(ImportError, match="Polices"):
        exec("from ordering import Polices")


def test_the_import_alone_loads_nothing_heavy() -> None:
    """A command that needs only an error or a duration does not wait for Arrow."""
    program = (
        "import sys, ordering; from ordering import Policies, TidegateError, parse_duration; "
        "print({'numpy', 'pyarrow', 'fastavro'} & set(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    assert shown == "set()\n"


def test_the_whole_face_needs_neither_spark_nor_kafka_nor_redis() -> None:
    """Level 1 can be had in any Python: loading every public name imports no client and no JVM."""
    program = "import sys; from ordering import *; print({'pyspark', 'confluent_kafka', 'redis', 'pandas', 'duckdb'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    assert shown == "set()\n"


def test_the_example_of_the_package_prints_what_it_says() -> None:
    """The lines in the docstring run as they stand."""
    result = doctest.testmod(ordering)
    assert (result.attempted, result.failed) == (3, 0)
