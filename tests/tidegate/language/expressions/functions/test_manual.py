"""The manual of functions has each of them once, with an example that has the value it says."""

from __future__ import annotations

import re

import pytest
from support.query_runs import values
from support.reference_pages import catalogue

from ordering.errors import QueryError
from query.sql.bind import bind_script
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.functions.catalog import FUNCTIONS
from tidegate.language.expressions.functions.column_functions import REGISTERED
from tidegate.language.expressions.functions.manual import FORMS, FUNCTION_MANUAL, FunctionEntry, find_function, function_entries
from tidegate.language.expressions.syntax.parse import parse_script

EXAMPLES = [entry for entry in function_entries() if entry.example]
COUNTED = [entry for entry in function_entries() if entry.names[0] not in FORMS and entry.names[0] in {*FUNCTIONS, *REGISTERED}]


def test_the_manual_has_every_name_that_a_script_can_call() -> None:
    """And each once, in the order of names within its chapter."""
    names = [name for entry in function_entries() for name in entry.names]
    assert len(names) == len(set(names))
    assert set(names) == catalogue() | FORMS
    for entries in FUNCTION_MANUAL.values():
        assert [entry.names[0] for entry in entries] == sorted(entry.names[0] for entry in entries)


@pytest.mark.parametrize("entry", EXAMPLES, ids=lambda entry: entry.example)
def test_an_example_has_the_value_that_the_manual_says(entry: FunctionEntry) -> None:
    """As results show it."""
    assert values(f"SELECT {entry.example} AS v FROM arrivals", [{}]) == [f'{{"v":{entry.value}}}']


@pytest.mark.parametrize("entry", COUNTED, ids=lambda entry: entry.name)
def test_a_function_takes_as_many_arguments_as_the_manual_names(entry: FunctionEntry) -> None:
    """Those in brackets may be left out, and dots stand for any number more."""
    function = FUNCTIONS.get(entry.names[0]) or REGISTERED[entry.names[0]]
    inside = entry.syntax.partition("(")[2].rpartition(")")[0]
    needed = [name for name in re.sub(r"\[.*\]", "", inside).split(",") if name.strip()]
    named = [name for name in inside.split(",") if name.strip()]
    if any(name.strip() == "..." for name in named):
        assert function.args_max > len(named)
    else:
        assert (function.args_min, function.args_max) == (len(needed), len(named))


def test_names_are_found_in_any_case() -> None:
    """And by each of their spellings."""
    assert find_function("dateADD") is find_function("DATEADD")
    assert find_function("tumbling") is find_function("TumblingWindow")
    assert find_function("nonsense") is None


@pytest.mark.parametrize("name", sorted(FORMS))
def test_what_has_a_grammar_of_its_own_is_no_function(name: str) -> None:
    """A call without anything in brackets is refused, or means the time."""
    sql = f"SELECT {name}() AS v INTO out FROM i TIMESTAMP BY at"
    if name == "system.timestamp":
        bind_script(parse_script(sql), [InputSchema("i", is_free=True)])
        return
    with pytest.raises(QueryError):
        bind_script(parse_script(sql), [InputSchema("i", is_free=True)])
