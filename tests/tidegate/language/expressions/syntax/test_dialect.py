"""The dialect overrides private methods of sqlglot: what it overrides and calls is there in the version that is installed."""

from __future__ import annotations

import ast
import inspect

import sqlglot
from sqlglot.parsers.tsql import TSQLParser

from tidegate.language.expressions.syntax.dialect import AsaParser

TRIED_WITH = "30."
"""The version whose private methods the dialect was written for. Another one: read the overrides again, then pyproject.toml's cap."""


def test_the_version_is_the_one_that_the_overrides_were_tried_with() -> None:
    """pyproject.toml caps sqlglot below the next version."""
    assert sqlglot.__version__.startswith(TRIED_WITH)


def test_each_override_has_the_parameters_of_what_it_overrides() -> None:
    """A renamed or changed private method would be overridden by nothing, and scripts read otherwise."""
    overrides = [name for name in vars(AsaParser) if name.startswith("_parse") and hasattr(TSQLParser, name)]
    assert sorted(overrides) == ["_parse_table", "_parse_table_alias", "_parse_types", "_parse_user_defined_type", "_parse_window"]
    for name in overrides:
        own, theirs = (list(inspect.signature(getattr(parser, name)).parameters) for parser in (AsaParser, TSQLParser))
        named = len(own) - 2
        assert own == theirs or (own[named:] == ["args", "kwargs"] and own[:named] == theirs[:named]), name


def test_each_private_method_that_is_called_is_there() -> None:
    """The dialect calls other private methods of the parser, too."""
    tree = ast.parse(inspect.getsource(AsaParser))
    called = {node.func.attr for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)}
    private = {name for name in called if name.startswith("_")}
    assert private
    assert not {name for name in private if not hasattr(AsaParser, name)}
