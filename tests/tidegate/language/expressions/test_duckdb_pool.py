"""DuckDB as a calculator: tables by the name of a variable, and nothing of the machine beside them."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from tidegate.language.expressions.duckdb_pool import run


def test_a_statement_reads_the_table_that_it_is_given() -> None:
    """One after the other, none of an earlier one."""
    for values in ([1, 2], [3]):
        assert run("SELECT v + 1 AS v FROM input", input=pa.table({"v": values}))["v"].to_pylist() == [value + 1 for value in values]


@pytest.mark.parametrize("source", ["read_text('/etc/hostname')", "glob('/etc/*')", "'/etc/a.csv'", "read_csv('http://127.0.0.1:1/a.csv')"])
def test_a_statement_reads_neither_files_nor_the_network(source: str) -> None:
    """No text of a query becomes SQL as it stands; if one ever did, it would find nothing to read."""
    with pytest.raises(duckdb.Error, match=r"disabled by configuration|httpfs"):
        run(f"SELECT * FROM {source}")


@pytest.mark.parametrize("statement", ["LOAD httpfs", "SET disabled_filesystems = ''", "ATTACH '/tmp/a.db'"])
def test_nothing_opens_the_machine_again(statement: str) -> None:
    """Neither an extension, nor a setting, nor a database."""
    with pytest.raises(duckdb.Error, match="disabled"):
        run(statement)
