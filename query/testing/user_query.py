"""
A query of the user's, ready to be run any number of times: its script, its functions, its policies.

Law: each bucket is made of code that was loaded anew, as that of a restarted worker.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from query import extensions
from query.api import Query, Step
from query.buckets.bucket import Bucket
from query.engine.program import Program
from query.javascript.declarations import declare_functions
from query.local.run import new_bucket
from query.local.run_setup import PolicyFlags, RunSetup
from query.local.script import BoundScript, bind_parsed
from query.script import read_script_text
from query.testing.input_files import Rows, write_inputs
from query.testing.ordered_inputs import OrderedInputs, order_inputs
from query.testing.user_code import UserFunction, find_installed, functions_restored, load_anew, pickle_by_value, register_functions
from tidegate.language.expressions.syntax.parse import Script, parse_script

QueryText = str | Path | Query | Step
"""
A query as users have it: SQL, built with ``tidegate.query.api``, a script's path, or the name of a query that an installed package offers.
A text without spaces is one of the last two.
"""


@dataclass(frozen=True)
class UserQuery:
    """A query and what it needs."""

    sql: str
    # The pickled functions of the script.
    functions: bytes
    # Time policies as the flags of ``tidegate local``: ``{"late": "5m", "late_action": "drop"}``.
    policies: Mapping[str, str] = field(default_factory=dict)
    # A configuration, for the schemas of inputs.
    config: Path | None = None
    # Tables that JOIN looks up.
    references: Mapping[str, Rows] = field(default_factory=dict)
    # The file that has the text; functions in JavaScript are found beside it.
    script: Path | None = None

    @contextmanager
    def open(self, inputs: Mapping[str, Rows]) -> Iterator[OpenQuery]:
        """Bind the query to the rows of its inputs. Raises QueryError: the script is wrong."""
        with TemporaryDirectory(prefix="tidegate-testing-") as folder:
            files = write_inputs(inputs, Path(folder))
            tables = write_inputs(self.references, Path(folder), "reference")
            setup = RunSetup.of(files, PolicyFlags(**self.policies), self.config, tables)  # type: ignore[arg-type]
            beside = None if self.script is None else self.script.parent
            with functions_restored():
                parsed = declare_functions(parse_script(self.sql, "query.sql"), setup.settings.functions, beside)
                yield OpenQuery(self, setup, parsed, self.bind(setup, parsed))

    def bind(self, setup: RunSetup, parsed: Script) -> BoundScript:
        """Bind the script to code that is loaded anew; call it only while the query is open."""
        # Rows are evaluated by functions that are found by their names, so they stay known until the next restart.
        register_functions(load_anew(self.functions))
        return bind_parsed(parsed, setup.settings)


@dataclass(frozen=True)
class OpenQuery:
    """A query bound to files."""

    query: UserQuery
    setup: RunSetup
    parsed: Script
    script: BoundScript

    @property
    def outputs(self) -> list[str]:
        return [plan.output for plan in self.script.plans]

    @property
    def lookback_us(self) -> int:
        """How long before an output instant events can still count, microseconds."""
        return max(plan.lookback_us for plan in self.script.plans)

    def order(self, block_bytes: int) -> OrderedInputs:
        return order_inputs(self.script, self.setup, block_bytes)

    def program(self) -> Program:
        """Return the program, made of code that has never run."""
        script = self.query.bind(self.setup, self.parsed)
        return Program(script.plans, references=self.setup.references, join_pairs_max=self.setup.join_pairs_max)

    def bucket(self, start_us: int | None = None) -> Bucket:
        """Return the bucket of a job whose results begin at *start_us*."""
        read_from_us = None if start_us is None else start_us - self.lookback_us
        names = [scan.input for scan in self.script.scans]
        return new_bucket(self.program(), names, has_over=self.script.has_over, start_us=start_us, read_from_us=read_from_us)


def user_query(
    query: QueryText,
    functions: Mapping[str, UserFunction] | None = None,
    policies: Mapping[str, str] | None = None,
    config: Path | None = None,
    references: Mapping[str, Rows] | None = None,
) -> UserQuery:
    """Return a query in any of the forms that users have; *functions* by the names scripts use. Raises QueryError: it cannot be read."""
    extensions.load()
    query = query.into("output") if isinstance(query, Step) else query
    if isinstance(query, str) and not re.search(r"\s", query):
        query = Path(query)
    sql = query.sql if isinstance(query, Query) else read_script_text(query) if isinstance(query, Path) else query
    script = query.resolve() if isinstance(query, Path) and query.exists() else None
    # The others of a package are not loaded at each restart.
    own = {name: function for name, function in (functions or {}).items() if re.search(rf"\b{re.escape(name)}\b", sql, re.IGNORECASE)}
    known = find_installed(sql) | own
    return UserQuery(sql, pickle_by_value(known), dict(policies or {}), config, dict(references or {}), script)
