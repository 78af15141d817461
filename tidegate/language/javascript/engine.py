"""
The JavaScript engine: one context of QuickJS for each script, kept warm, with limits on every call.

Law: what a call returns, or how it fails, follows from the script and the arguments alone. Therefore each call runs the script from its
first line, so that no variable outlives a call; what all calls share is frozen; and there is no clock, no chance and no local time zone
(``prelude.js``). A call that reaches a limit is repeated in a new context before it counts as failed: what earlier calls left behind in
memory has no say. The limit on time is the exception: a call near it may return on one machine and fail on another. Therefore it is far
above what a call needs that returns at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import _quickjs

# Longest script accepted, in characters.
SOURCE_CHARACTERS_MAX = 262_144
# How deep a script may call itself, as bytes of the engine's stack: some hundreds of calls.
_STACK_BYTES = 2**20
# Code of our own stands on lines behind this one, so that a place in a script is never taken for one in it.
_LINES_MAX = SOURCE_CHARACTERS_MAX + 1
_BEHIND = "\n" * _LINES_MAX
_FRAME = re.compile(r"<input>:(\d+)")
_NAME = r"[A-Za-z_$][\w$]*"
_ASSIGNED = re.compile(
    rf"(?<![\w$.])({_NAME})\s*(?:=(?![=>])|[-+*/%&|^]=|\*\*=|<<=|>>>?=|&&=|\|\|=|\?\?=|\+\+|--)"
    rf"|(?:\+\+|--)\s*({_NAME})|\bfor\s*\(\s*({_NAME})\s+(?:in|of)\b"
)


_LONE = re.compile(r"(?:\s|//[^\n]*\n|/\*.*?\*/)*function\s", re.DOTALL)


class AggregateCalls(NamedTuple):
    """What makes a result of an aggregate."""

    # Begins a result.
    begin: Callable[..., Any]
    # Feeds it rows, as JSON: an array of the arguments' arrays, in which [x] is a Date and [0, x] a record or an array.
    feed: Callable[..., Any]
    # Ends it and returns its value.
    end: Callable[..., Any]


class ScriptFailure(Exception):
    """
    A script cannot be read, or a call of it failed; the message says why, with the script's line if it has one. *is_limit*: it reached a
    limit, and might not have in a new context.
    """

    def __init__(self, what: str, line: int | None = None, *, is_limit: bool = False) -> None:
        super().__init__(what if line is None else f"{what} (line {line})")
        self.what, self.line, self.is_limit = what, line, is_limit


@dataclass(frozen=True, slots=True)
class ScriptLimits:
    """What one call may use: seconds of the processor, and bytes with all that the script keeps."""

    seconds: float = 1.0
    memory_bytes: int = 64 * 2**20


class Engine:
    """
    A script with a warm context.

    Args:
        source: The script's text. It declares the function *name*.
        name: What is called; an aggregate's is the function that ``new`` makes an object of.
    """

    def __init__(self, source: str, name: str, limits: ScriptLimits) -> None:
        self._source, self._name, self._limits = source, name, limits
        # Variables that the script assigns without declaring them would be global; here they belong to the call.
        self._undeclared = sorted({found for match in _ASSIGNED.finditer(source) for found in match.groups() if found} - _known_names())
        self._callables: dict[object, Any] = {}
        self._context: Any = None

    def function(self, forms: str) -> Callable[..., Any]:
        """
        Return the function for arguments of these *forms*, a letter each: v for a value as it is, d for milliseconds since 1970 that become
        a Date, j for JSON. It returns None, a bool, a number, a text, or an object whose ``json()`` is [letter of a kind, value].
        """
        if forms not in self._callables:
            tools = self._tools()
            names = [f"a{number}" for number in range(len(forms))]
            arguments = [f"__{name}" for name in names]
            call = self._lone_function() or self._eval_script(f"return {self._name}({', '.join(arguments)});", arguments)
            values = [{"v": name, "d": f"date({name})", "j": f"json({name})"}[form] for name, form in zip(names, forms, strict=True)]
            # Most results are numbers, which need no look at them.
            body = f"const value = call({', '.join(values)}); return typeof value === 'number' ? value : out(value);"
            code = f"{_BEHIND}((call, out, date, json) => ({', '.join(names)}) => {{ {body} }})"
            self._callables[forms] = self._context.eval(code)(call, tools["out"], tools["date"], tools["json"])
        return self._callables[forms]  # type: ignore[no-any-return]

    def aggregate(self) -> AggregateCalls:
        """Return the calls that make a result of the script's aggregate."""
        if "aggregate" not in self._callables:
            tools = self._tools()
            made = tools["aggregate"](self._eval_script(f"return new {self._name}();", []))
            pick = self._context.eval("((owner, name) => owner[name])")
            self._callables["aggregate"] = AggregateCalls(*(pick(made, name) for name in AggregateCalls._fields))
        return self._callables["aggregate"]  # type: ignore[no-any-return]

    def describe(self) -> dict[str, Any]:
        """Return about the script's function, if there is one: how many arguments it names, and whether it may take more."""
        self._tools()
        found = self._eval_script(f"return typeof {self._name} === 'function' ? {self._name} : null;", [])()
        if found is None:
            return {}
        question = "(f => JSON.stringify({count: f.length, more: /^[^{]*=|\\.\\.\\.|\\barguments\\b/.test(String(f))}))"
        return dict(json.loads(self._context.eval(question)(found)))

    def methods(self, names: Sequence[str]) -> list[str]:
        """Return which of *names* are methods of the object that the script's function makes."""
        self._tools()
        made = self._eval_script(f"return new {self._name}();", [])()
        has = self._context.eval("((owner, name) => typeof owner[name] === 'function')")
        return [name for name in names if has(made, name)]

    def reset(self) -> None:
        """Throw the context away: the next call gets a new one."""
        self._context = None
        self._callables = {}

    def _lone_function(self) -> Any:
        """
        Return the script's function itself if the script is that function and nothing else, else None: without variables around it, and
        frozen, it cannot keep anything, and need not be made anew for each call.
        """
        if self._undeclared or not _LONE.match(self._source):
            return None
        try:
            found = self._context.eval(f"({self._source}\n)")
            return found if self._callables["tools"]["freeze"](found) == self._name else None
        except _quickjs.JSException:
            return None

    def _tools(self) -> Any:
        """Return what the prelude gives, by name; there is a context afterwards."""
        if self._context is None:
            self._context = new_context(self._limits)
            tools = self._context.eval(_BEHIND + _prelude())
            pick = self._context.eval("((owner, name) => owner[name])")
            self._callables = {"tools": {name: pick(tools, name) for name in ("out", "date", "json", "aggregate", "freeze")}}
        return self._callables["tools"]

    def _eval_script(self, closing: str, parameters: Sequence[str]) -> Any:
        """Return a function that runs the script from its first line, then *closing*."""
        # The script begins on the first line, so that lines in errors are its own.
        inner = f"{self._source}\n{closing}\n"
        if not self._undeclared:
            return self._context.eval(f"(function ({', '.join(parameters)}) {{{inner}}})")
        declared = f"var {', '.join(self._undeclared)};"
        return self._context.eval(f"(function ({', '.join(parameters)}) {{{declared} return (function () {{{inner}}})(); }})")


def new_context(limits: ScriptLimits) -> Any:
    """Return an empty context with limits."""
    context = _quickjs.Context()
    context.set_memory_limit(limits.memory_bytes)
    context.set_time_limit(limits.seconds)
    context.set_max_stack_size(_STACK_BYTES)
    return context


def check_text(source: str, limits: ScriptLimits) -> None:
    """Raise ScriptFailure if *source* alone is no script: then it could end the function that it is put into."""
    if len(source) > SOURCE_CHARACTERS_MAX:
        raise ScriptFailure(f"it has {len(source)} characters, more than {SOURCE_CHARACTERS_MAX}")
    if "\0" in source:
        raise ScriptFailure("it has a character 0")
    try:
        new_context(limits).eval(source)
    except Exception as error:
        raise failure_of(error, limits) from None


def failure_of(error: Exception, limits: ScriptLimits) -> ScriptFailure:
    """Return what an error of the engine says, in words that are the same wherever and whenever the call is made."""
    if isinstance(error, ScriptFailure):
        return error
    if isinstance(error, _quickjs.StackOverflow):
        return ScriptFailure("it calls itself too deeply", is_limit=True)
    text, _, trace = str(error).partition("\n")
    if text == "InternalError: interrupted":
        return ScriptFailure(f"it takes more than {limits.seconds:g} s", is_limit=True)
    if text == "InternalError: out of memory" or (text == "null" and "\n" not in trace):
        return ScriptFailure(f"it needs more than {limits.memory_bytes} bytes of memory", is_limit=True)
    if not isinstance(error, _quickjs.JSException):
        return ScriptFailure(f"{type(error).__name__}: {text}")
    lines = [int(number) for number in _FRAME.findall(trace)]
    return ScriptFailure(text, next((line for line in lines if line < _LINES_MAX), None))


@cache
def _prelude() -> str:
    return files(__package__).joinpath("prelude.js").read_text("utf-8")


@cache
def _known_names() -> frozenset[str]:
    """Return the names that mean something without a declaration."""
    names = _quickjs.Context().eval("Object.getOwnPropertyNames(globalThis).join(' ')").split(" ")
    words = "this null true false var let const function class return if else for while do in of new typeof delete void instanceof"
    more = "async await yield break continue switch case default throw try catch finally arguments static get set super import export"
    return frozenset([*names, *words.split(), *more.split(), "enum", "debugger", "with", "extends"])
