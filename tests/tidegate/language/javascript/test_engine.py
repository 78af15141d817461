"""The JavaScript engine: what a call returns follows from the script and the arguments, and nothing runs for ever."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from support.repository import ROOT

from tidegate.language.javascript.engine import Engine, ScriptFailure, ScriptLimits, check_text, failure_of

LIMITS = ScriptLimits(0.3, 32 * 2**20)


def run(source: str, *args: Any, forms: str | None = None) -> Any:
    """Return what main returns, or why it fails."""
    try:
        check_text(source, LIMITS)
        value = Engine(source, "main", LIMITS).function("v" * len(args) if forms is None else forms)(*args)
    except Exception as error:
        return str(failure_of(error, LIMITS))
    return value.json() if hasattr(value, "json") else value


@pytest.mark.parametrize(
    "source",
    [
        "var n = 0; function main() { return ++n; }",
        "function main() { n = typeof n === 'undefined' ? 1 : n + 1; return n; }",
        "function main() { main.n = (main.n || 0) + 1; return main.n; }",
        "function main() { main.prototype.n = (main.prototype.n || 0) + 1; return main.prototype.n; }",
        "function main() { Math.n = (Math.n || 0) + 1; return Math.n || 1; }",
        "function main() { Object.prototype.n = ({}.n || 0) + 1; return ({}).n || 1; }",
        "function main() { globalThis.n = (globalThis.n || 0) + 1; return globalThis.n || 1; }",
        "function main() { var r = /a/g; r.test('aa'); return r.lastIndex; }",
    ],
)
def test_nothing_outlives_a_call(source: str) -> None:
    """Each call sees what the first one saw, whatever a script tries to keep."""
    call = Engine(source, "main", LIMITS).function("")
    first = call()
    assert [call() for _ in range(3)] == [first] * 3


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("function main() { for (;;); }", "it takes more than 0.3 s"),
        ("function main() { return /(a+)+$/.test('a'.repeat(40) + 'b'); }", "it takes more than 0.3 s"),
        ("function main() { return main(); }", "it calls itself too deeply"),
        ("function main() { const a = []; for (;;) a.push('x'.repeat(1000) + a.length); }", "it needs more than 33554432 bytes of memory"),
        ("function main() { return 'x'.repeat(2 ** 29).length; }", "it needs more than 33554432 bytes of memory"),
        ("function main() { return new Array(4294967295).join(''); }", "RangeError: an array of more than 16777216 (line 1)"),
        ("\nfunction main() {\n  throw new Error('boo'); }", "Error: boo (line 3)"),
        ("\nfunction main() { return new Date(); }", "Error: there is no clock: take the time from the event (line 2)"),
        ("function main() { return Date.now(); }", "Error: there is no clock: take the time from the event (line 1)"),
        ("function main() { return Math.random(); }", "Error: there is no chance: equal events must give equal results (line 1)"),
        ("function main() { return main; }", "TypeError: it returned a function"),
        ("function main() { retur 5; }", "SyntaxError: expecting ';' (line 1)"),
        ("}); (function () {", "SyntaxError: unexpected token in expression: '}' (line 1)"),
    ],
)
def test_a_call_that_fails_says_why(source: str, why: str) -> None:
    """With the script's line, unless where a limit is met follows from the machine."""
    assert run(source) == why


@pytest.mark.parametrize(
    ("source", "args", "forms", "value"),
    [
        ("function main(a) { return a + 1; }", (1.5,), "v", 2.5),
        ("function main(a) { return a; }", (None,), "v", None),
        ("function main() { }", (), "", None),
        ("function main(a) { return a; }", ('"a\\u0000b"',), "j", '["s","a\\u0000b"]'),
        ("function main() { return 'x\\ud800'; }", (), "", '["s","x\ufffd"]'),
        ("function main() { return 5n; }", (), "", '["i","5"]'),
        ("function main(d) { return new Date(d.getTime() + 1); }", (5.0,), "d", '["t",6]'),
        ("function main(x) { return {b: x.b, a: 1}; }", ('{"b":[1]}',), "j", '["r","{\\"b\\":[1],\\"a\\":1}"]'),
        ("function main() { var o = {}; o.toString = function () { return 'own'; }; return String(o); }", (), "", "own"),
        ("function main() { var e = new Error('x'); e.name = 'Mine'; return String(e); }", (), "", "Mine: x"),
    ],
)
def test_values_go_in_and_out(source: str, args: tuple[Any, ...], forms: str, value: Any) -> None:
    """By value; what a script inherits from a frozen object it may override in its own."""
    assert run(source, *args, forms=forms) == value


ZONES = """
from tidegate.language.javascript.engine import Engine, ScriptLimits
source = '''function main(d) { return [d.getHours(), d.getTimezoneOffset(), String(d), d.toLocaleString(),
new Date(2020, 6, 1).toISOString(), new Date('2020-07-01T05:00:00').toISOString(), new Date('Jan 2 2020 10:00').toISOString(),
Date.parse('2020-03-01'),
new Date('2020-01-01T00:00:00+02:00').toISOString(), (1234.5).toLocaleString()].join('; '); }'''
print(Engine(source, "main", ScriptLimits()).function("d")(1593600000000.0))
"""
EXPECTED = (
    "10; 0; Wed Jul 01 2020 10:40:00 GMT+0000 (Coordinated Universal Time); 7/1/2020, 10:40:00 AM; 2020-07-01T00:00:00.000Z; "
    "2020-07-01T05:00:00.000Z; 2020-01-02T10:00:00.000Z; 1583020800000; 2019-12-31T22:00:00.000Z; 1234.5"
)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_the_local_zone_is_utc(zone: str) -> None:
    """Whatever zone and language the machine has."""
    environment = {**os.environ, "TZ": zone, "LC_ALL": "C"}
    done = subprocess.run([sys.executable, "-c", ZONES], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == EXPECTED


def test_a_limit_leaves_the_next_call_whole() -> None:
    """After a call that reached a limit the engine begins anew."""
    engine = Engine("function main(n) { while (n > 1); return n; }", "main", LIMITS)
    with pytest.raises(Exception, match="interrupted"):
        engine.function("v")(2.0)
    engine.reset()
    assert engine.function("v")(1.0) == 1.0


def test_a_script_of_the_largest_size_is_the_largest() -> None:
    """One character more is refused before it is read."""
    with pytest.raises(ScriptFailure, match="262145 characters"):
        check_text(" " * 262_145, LIMITS)
