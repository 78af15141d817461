"""
The dialect: T-SQL as Stream Analytics writes it, parsed by sqlglot.

It differs from sqlglot's T-SQL in seven ways. ``FROM input TIMESTAMP BY expr [OVER key, ...]`` defines event time and the substream key.
``FROM input PARTITION BY key [INTO n]`` says how Stream Analytics spreads its work; both clauses may stand in either order.
``FROM a UNION b`` has all rows of both.
``& | ^`` stand on one level with ``+ -``, as in T-SQL itself.
``f(x) OVER (PARTITION BY key, ... LIMIT DURATION(unit, n) WHEN condition)`` defines the earlier events that a function reads; its clauses
may stand in any order. ``MATCH_RECOGNIZE ( ... )`` may stand after an input or step, its clauses in any order; its PATTERN is kept as text.
Every function keeps its spelling, so that errors show the script's own words;
:mod:`tidegate.language.expressions.functions.catalog` defines its meaning. Only CAST and TRY_CAST have a grammar of their own.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection
from typing import Any, ClassVar

from sqlglot import exp, tokens
from sqlglot.dialects.tsql import TSQL
from sqlglot.errors import TokenError
from sqlglot.parsers.tsql import TSQLParser
from sqlglot.tokenizer_core import TokenType

from ordering.errors import QueryError

TIMESTAMP_BY = "timestamp_by"  # argument of a table node: the expression of TIMESTAMP BY
OVER = "over"  # argument of a table node: the list of expressions of TIMESTAMP BY ... OVER
PARTITION_BY = "partition_by"  # argument of a table node: the list of expressions of PARTITION BY
LIMIT = "limit"  # argument of an OVER node: the function call DURATION(unit, n)
WHEN = "when"  # argument of an OVER node: the condition of WHEN
MATCH = "MATCH_RECOGNIZE"
NAMES = {TokenType.VAR, TokenType.IDENTIFIER}  # tokens that are names


def refuse_compiled() -> None:
    """Raise QueryError if the compiled sqlglot (``sqlglotc``, ``sqlglot[c]``) is installed: its classes cannot be extended."""
    core = importlib.import_module("sqlglot.tokenizer_core")
    if getattr(tokens, "SQLGLOTC_INSTALLED", False) or not str(getattr(core, "__file__", ".py")).endswith(".py"):
        what = "the compiled sqlglot (sqlglotc) is installed; it forbids the dialect of this engine"
        fix = "remove sqlglotc and install sqlglot without its [c] extra"
        example = "pip uninstall sqlglotc && pip install --force-reinstall sqlglot"
        raise QueryError(what, code="TG-QUERY-SQLGLOT", where="sqlglot", fix=fix, example=example)


refuse_compiled()


class AsaParser(TSQLParser):
    """
    T-SQL's parser with TIMESTAMP BY, and with functions left as they are spelled.

    Only this class overrides private methods of sqlglot: ``_parse_table``, ``_parse_table_alias``, ``_parse_types``, ``_parse_window``
    and ``_parse_user_defined_type``. A new minor version may change them, so pyproject.toml caps sqlglot, and ``test_dialect.py`` names the
    tested version.
    """

    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    # Session(...) is a window; T-SQL reads the word as a keyword.
    FUNC_TOKENS: ClassVar[set[Any]] = {*TSQLParser.FUNC_TOKENS, TokenType.SESSION}
    # CASE is the only function without brackets.
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {"CASE": lambda self: self._parse_case()}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        "CAST": lambda self: self._parse_cast(True),
        "TRY_CAST": lambda self: self._parse_cast(False, safe=True),
    }

    TERM: ClassVar[dict[Any, Any]] = {**TSQLParser.TERM, **TSQLParser.BITWISE}
    BITWISE: ClassVar[dict[Any, Any]] = {}

    _is_in_timestamp_by = False

    @property
    def place(self) -> tuple[int, str]:
        """Offset and text of the word at which the parser stands; (-1, "") at the end."""
        return (self._curr.start, self._curr.text) if self._curr else (-1, "")

    def _is_at_timestamp_by(self) -> bool:
        return bool(self._curr and self._next and self._curr.text.upper() == "TIMESTAMP" and self._next.text.upper() == "BY")

    def _is_at_match_recognize(self) -> bool:
        return bool(self._curr and self._next and self._curr.text.upper() == MATCH and self._next.token_type is TokenType.L_PAREN)

    def _parse_table_alias(self, alias_tokens: Collection[Any] | None = None) -> exp.TableAlias | None:
        return None if self._is_at_timestamp_by() or self._is_at_match_recognize() else super()._parse_table_alias(alias_tokens)

    def _parse_table(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        if self._curr and self._curr.text.upper() == "ROWS" and self._next and self._next.token_type is TokenType.FROM:
            # In `INTO rows FROM input`, `rows` is a name; sqlglot expects ROWS FROM (a list of functions).
            self._advance()
            name = self.expression(exp.Identifier(this=self._prev.text, quoted=False), self._prev)
            return self.expression(exp.Table(this=name))
        table = super()._parse_table(*args, **kwargs)
        # In T-SQL an alias and joins follow the table; here they may follow these clauses, so they are parsed once more.
        if isinstance(table, exp.Table) and self._parse_input_clauses(table):
            if not table.args.get("alias") and (alias := self._parse_table_alias(self.TABLE_ALIAS_TOKENS)):
                table.set("alias", alias)
                self._parse_input_clauses(table)
            for join in self._parse_joins():
                table.append("joins", join)
        if isinstance(table, (exp.Table, exp.Subquery)) and self._is_at_match_recognize():
            return self._parse_match(table)
        return self._parse_union_of_names(table) if isinstance(table, exp.Table) else table

    def _parse_match(self, table: exp.Expr) -> exp.Expr:
        """Parse MATCH_RECOGNIZE over the rows of *table*."""
        match = self.expression(exp.MatchRecognize(), self._curr)
        match.set("this", table)
        self._advance(2)
        while self._curr and self._curr.token_type is not TokenType.R_PAREN:
            name, clause = self._parse_match_clause()
            if match.args.get(name):
                self.raise_error(f"{name.split('_')[0].upper()} stands twice in {MATCH}")
            match.set(name, clause)
        self._match_r_paren()
        if alias := super()._parse_table_alias(self.TABLE_ALIAS_TOKENS):
            match.set("alias", alias)
        for join in self._parse_joins():
            match.append("joins", join)
        return match

    def _parse_match_clause(self) -> tuple[str, Any]:
        start, word = self._curr, self._curr.text.upper()
        if partition := self._parse_partition_by():
            return PARTITION_BY, partition
        if order := self._parse_order():
            return "order", order
        if self._match_text_seq("LIMIT"):
            return LIMIT, self._require(self._parse_function(), "LIMIT needs DURATION(unit, n)")
        if self._match_text_seq("WHEN"):
            return WHEN, self._require(self._parse_disjunction(), "WHEN needs a condition")
        if self._match_text_seq("MEASURES"):
            return "measures", self._parse_csv(self._parse_expression)
        for words in (("ONE", "ROW", "PER", "MATCH"), ("ALL", "ROWS", "PER", "MATCH"), ("AFTER", "MATCH", "SKIP")):
            if self._match_text_seq(*words):
                while words[0] == "AFTER" and self._curr and self._curr.text.upper() in ("TO", "PAST", "NEXT", "LAST", "FIRST", "ROW"):
                    words = (*words, self._curr.text.upper())
                    self._advance()
                clause = self.expression(exp.Var(this=" ".join(words)), start)
                return "after" if words[0] == "AFTER" else "rows", clause
        if self._match_text_seq("PATTERN"):
            return "pattern", self._parse_pattern_text()
        if self._match_text_seq("DEFINE"):
            return "define", self._parse_csv(self._parse_definition)
        self.raise_error(f"{word} is no clause of {MATCH}")
        raise AssertionError

    def _parse_definition(self) -> exp.Expr | None:
        name = self._parse_id_var(any_token=True)
        if not self._match(TokenType.ALIAS):
            self.raise_error("DEFINE takes a name, AS, and a condition")
        condition = self._require(self._parse_disjunction(), "DEFINE needs a condition after AS")
        return self.expression(exp.Alias(this=condition, alias=name))

    def _parse_pattern_text(self) -> exp.Expr:
        """Parse ``( ... )`` as the place of a text: where it begins and ends in the script."""
        opening = self._curr
        if not self._match(TokenType.L_PAREN):
            self.raise_error("PATTERN needs a pattern in brackets")
        depth = 1
        while self._curr and depth:
            depth += (self._curr.token_type is TokenType.L_PAREN) - (self._curr.token_type is TokenType.R_PAREN)
            self._advance()
        if depth:
            self.raise_error("the bracket of PATTERN is never closed")
        node = exp.Var(this="PATTERN")
        node.meta.update(start=opening.start + 1, end=self._prev.start)
        return node

    def _parse_union_of_names(self, table: exp.Table) -> exp.Expr:
        """Parse ``UNION b`` after a table, if it is there: all rows of both, as Stream Analytics joins steps that are partitioned anew."""
        if not (self._curr and self._curr.token_type is TokenType.UNION and self._next and self._next.token_type in NAMES):
            return table
        self._advance()
        sides = [self._all_rows_of(table), self._all_rows_of(self._require(self._parse_table(), "UNION needs a name"))]
        return self.expression(exp.Subquery(this=exp.Union(this=sides[0], expression=sides[1], distinct=False)), self._prev)

    def _all_rows_of(self, rows: exp.Expr | None) -> exp.Expr:
        if isinstance(rows, exp.Subquery):
            return rows.this  # type: ignore[no-any-return]
        return self.expression(exp.Select(expressions=[exp.Star()], from_=exp.From(this=rows)), self._prev)

    def _parse_input_clauses(self, table: exp.Table) -> bool:
        """Parse TIMESTAMP BY and PARTITION BY, in either order, into *table*; return False if there is neither."""
        has_clauses = False
        while True:
            if not table.args.get(TIMESTAMP_BY) and self._is_at_timestamp_by():
                self._advance(2)
                table.set(TIMESTAMP_BY, self._parse_timestamp_by())
                if self._match_text_seq("OVER"):
                    table.set(OVER, self._parse_csv(self._parse_bitwise))
            elif not table.args.get(PARTITION_BY) and self._match(TokenType.PARTITION_BY):
                table.set(PARTITION_BY, self._parse_csv(self._parse_bitwise))
                if self._match(TokenType.INTO):
                    self._require(self._parse_number(), "INTO after PARTITION BY needs a number")
            else:
                return has_clauses
            has_clauses = True

    def _parse_types(self, check_func: bool = False, *args: Any, **kwargs: Any) -> exp.Expr | None:
        # Types stand in CAST only. In an expression sqlglot would read `bit(...)` as a type first, then as a call: twice at each level.
        return None if check_func else super()._parse_types(check_func, *args, **kwargs)

    def _parse_user_defined_type(self, identifier: exp.Identifier) -> exp.Expr | None:
        try:
            return super()._parse_user_defined_type(identifier)
        except TokenError:
            # sqlglot reads the text of a name in brackets as SQL; a name that is no SQL is still only an unknown type.
            return exp.DataType.build(identifier, udt=True)

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
        # In `TIMESTAMP BY f(x) OVER key` OVER belongs to TIMESTAMP BY, not to f.
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
        """Parse one clause of OVER ( ... ) into *window*; return False if there is none."""
        readers: dict[str, Any] = {
            "partition_by": self._parse_partition_by,
            "order": self._parse_order,
            LIMIT: lambda: self._match_text_seq("LIMIT") and self._require(self._parse_function(), "LIMIT needs DURATION(unit, n)"),
            WHEN: lambda: self._match_text_seq("WHEN") and self._require(self._parse_disjunction(), "WHEN needs a condition"),
        }
        for name, read in readers.items():
            if clause := read():
                if window.args.get(name):
                    self.raise_error(f"{name.split('_')[0].upper()} stands twice in OVER")
                window.set(name, clause)
                return True
        return False

    def _require(self, node: exp.Expr | None, message: str) -> exp.Expr | None:
        if node is None:
            self.raise_error(message)
        return node


class Asa(TSQL):
    """Stream Analytics' SQL."""

    class Tokenizer(TSQL.Tokenizer):
        """T-SQL's words, with the operators "not less" and "not greater"."""

        KEYWORDS: ClassVar[dict[str, TokenType]] = {**TSQL.Tokenizer.KEYWORDS, "!<": TokenType.GTE, "!>": TokenType.LTE}

    Parser = AsaParser
