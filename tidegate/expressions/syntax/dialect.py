"""
The dialect: T-SQL as Stream Analytics writes it, read by sqlglot.

It differs from T-SQL in three ways. ``FROM input TIMESTAMP BY expr [OVER key, ...]`` says what event time is, and along which
key time advances. ``f(x) OVER (PARTITION BY key, ... LIMIT DURATION(unit, n) WHEN condition)`` says on which events a function
looks back; the clauses may stand in any order. Every function is read as it is spelled:
:mod:`tidegate.expressions.functions.catalog` gives the meaning, and an error shows the script's own words. Only CAST and TRY_CAST
have a grammar of their own.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection
from typing import Any, ClassVar

from sqlglot import exp, tokens
from sqlglot.dialects.tsql import TSQL
from sqlglot.parsers.tsql import TSQLParser
from sqlglot.tokenizer_core import TokenType

from ordering.errors import QueryError

# Argument of a table node: the expression of TIMESTAMP BY.
TIMESTAMP_BY = "timestamp_by"
# Argument of a table node: the list of expressions of TIMESTAMP BY ... OVER.
OVER = "over"
# Argument of an OVER node: the function call DURATION(unit, n).
LIMIT = "limit"
# Argument of an OVER node: the condition of WHEN.
WHEN = "when"


def refuse_compiled() -> None:
    """Refuse a sqlglot whose modules are compiled. Raises QueryError: the ``sqlglotc`` distribution (``sqlglot[c]``) is installed."""
    core = importlib.import_module("sqlglot.tokenizer_core")
    if getattr(tokens, "SQLGLOTC_INSTALLED", False) or not str(getattr(core, "__file__", ".py")).endswith(".py"):
        raise QueryError(
            "the compiled sqlglot (sqlglotc) is installed; it forbids the dialect of this engine",
            code="TG-QUERY-SQLGLOT",
            where="sqlglot",
            fix="remove sqlglotc and install sqlglot without its [c] extra",
            example="pip uninstall sqlglotc && pip install --force-reinstall sqlglot",
        )


refuse_compiled()


class AsaParser(TSQLParser):
    """
    T-SQL's parser with TIMESTAMP BY, and functions left as they are spelled.

    All overrides of sqlglot's private methods are in this class: ``_parse_table``, ``_parse_table_alias`` and ``_parse_window``. A
    new minor version may change them, so pyproject.toml caps sqlglot, and ``test_dialect.py`` names the version they were tried with.
    """

    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    # Session(...) is a window, not a word about connections.
    FUNC_TOKENS: ClassVar[set[Any]] = {*TSQLParser.FUNC_TOKENS, TokenType.SESSION}
    # CASE is the only word that is read as a function without brackets.
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {"CASE": lambda self: self._parse_case()}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        "CAST": lambda self: self._parse_cast(True),
        "TRY_CAST": lambda self: self._parse_cast(False, safe=True),
    }

    _is_in_timestamp_by = False

    def _is_at_timestamp_by(self) -> bool:
        return bool(self._curr and self._next and self._curr.text.upper() == "TIMESTAMP" and self._next.text.upper() == "BY")

    def _parse_table_alias(self, alias_tokens: Collection[Any] | None = None) -> exp.TableAlias | None:
        return None if self._is_at_timestamp_by() else super()._parse_table_alias(alias_tokens)

    def _parse_table(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        if self._curr and self._curr.text.upper() == "ROWS" and self._next and self._next.token_type is TokenType.FROM:
            # `INTO rows FROM input` is no list of functions.
            self._advance()
            name = self.expression(exp.Identifier(this=self._prev.text, quoted=False), self._prev)
            return self.expression(exp.Table(this=name))
        table = super()._parse_table(*args, **kwargs)
        # What follows a table in T-SQL - an alias, joins - follows TIMESTAMP BY here, so it is read once more.
        if isinstance(table, exp.Table) and self._is_at_timestamp_by():
            self._advance(2)
            table.set(TIMESTAMP_BY, self._parse_timestamp_by())
            if self._match_text_seq("OVER"):
                table.set(OVER, self._parse_csv(self._parse_bitwise))
            if not table.args.get("alias") and (alias := super()._parse_table_alias(self.TABLE_ALIAS_TOKENS)):
                table.set("alias", alias)
            for join in self._parse_joins():
                table.append("joins", join)
        if isinstance(table, exp.Table) and self._curr and self._curr.token_type is TokenType.PARTITION_BY:
            self.raise_error("an input takes no PARTITION BY")
        return table

    def _parse_timestamp_by(self) -> exp.Expr | None:
        self._is_in_timestamp_by = True
        try:
            expression = self._parse_bitwise()
        finally:
            self._is_in_timestamp_by = False
        if expression is None:
            self.raise_error("TIMESTAMP BY needs an expression")
        return expression

    def _parse_window(self, this: exp.Expr | None, alias: bool = False) -> exp.Expr | None:
        # `TIMESTAMP BY f(x) OVER key` is no window function.
        if self._is_in_timestamp_by:
            return this
        if not self._match_pair(TokenType.OVER, TokenType.L_PAREN):
            return super()._parse_window(this, alias)
        window = exp.Window(this=this, over="OVER")
        while self._parse_over_clause(window):
            pass
        self._match_r_paren()
        return window

    def _parse_over_clause(self, window: exp.Window) -> bool:
        """Read one clause of OVER ( ... ); return whether there was one."""
        readers: dict[str, Any] = {
            "partition_by": self._parse_partition_by,
            "order": self._parse_order,
            LIMIT: lambda: self._match_text_seq("LIMIT") and self._required(self._parse_function(), "LIMIT needs DURATION(unit, n)"),
            WHEN: lambda: self._match_text_seq("WHEN") and self._required(self._parse_disjunction(), "WHEN needs a condition"),
        }
        for name, read in readers.items():
            if clause := read():
                if window.args.get(name):
                    self.raise_error(f"{name.split('_')[0].upper()} stands twice in OVER")
                window.set(name, clause)
                return True
        return False

    def _required(self, node: exp.Expr | None, message: str) -> exp.Expr | None:
        if node is None:
            self.raise_error(message)
        return node


class Asa(TSQL):
    """Stream Analytics' SQL."""

    Parser = AsaParser
