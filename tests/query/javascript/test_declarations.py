"""Functions in JavaScript of a script: where they are found, what they bind, and their values under any cut."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from support.query_oracle import Event
from support.script_runs import answers_of

from ordering.errors import QueryError
from query.javascript import functions
from query.javascript.declarations import declare_recorded, functions_binding, functions_of, record_functions
from query.script import read_script
from query.sql.bind import bind_outputs
from query.start.binding import query_text
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script
from tidegate.platform.settings.tables.functions import FunctionSettings
from tidegate.testing import law_of

SCHEMAS = [InputSchema("arrivals", is_free=True)]
GROUPED = "SELECT uda.twice(v) AS v INTO out FROM arrivals GROUP BY TumblingWindow(second, 1)"
SQL = "SELECT udf.twice(v) AS v INTO out FROM arrivals"


def project(folder: Path, sql: str = SQL, **texts: str) -> Path:
    """Write a script and its functions; return the script."""
    (folder / "functions").mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / "functions" / f"{name}.js").write_text(text)
    (folder / "q.sql").write_text(sql)
    return folder / "q.sql"


def test_a_changed_text_is_another_query(tmp_path: Path) -> None:
    """Plans print alike, but checkpoints and histories are bound to the text."""
    found = []
    for text in ("function main(v) { return v * 2; }", "function main(v) { return v + v; }"):
        plans = bind_outputs(read_script(project(tmp_path, twice=text)), SCHEMAS)
        found.append((plans[0].explain(), functions_binding(plans)["functions"], query_text(plans, ["t"])))
    assert found[0][0] == found[1][0]
    assert found[0][1] != found[1][1]
    assert found[0][2] != found[1][2]


def test_a_worker_and_a_verification_know_the_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan carries its functions; a history writes them down."""
    plans = bind_outputs(read_script(project(tmp_path, twice="function main(v) { return v * 2; }")), SCHEMAS)
    carried = pickle.loads(pickle.dumps(functions_of(plans)))
    recorded = record_functions(plans)
    monkeypatch.setattr(functions, "_KNOWN", {})
    for function in carried:
        functions.register(function)
    assert functions_of(plans) == carried
    again = bind_outputs(declare_recorded(parse_script(SQL, "q.sql"), recorded), SCHEMAS)
    assert query_text(again, ["t"]) == query_text(plans, ["t"])


def test_the_configuration_comes_before_the_file(tmp_path: Path) -> None:
    """And says types: the number of arguments is that of its types."""
    script = project(tmp_path, twice="function main(v) { return v; }")
    table = FunctionSettings.model_validate({"__name__": "Twice", "code": "function Twice(v) { return 2 * v; }", "takes": ["float"]})
    plans = bind_outputs(read_script(script, functions={"Twice": table}), SCHEMAS)
    assert functions_of(plans)[0].takes == ("float",)
    with pytest.raises(QueryError) as caught:
        bind_outputs(read_script(project(tmp_path, "SELECT udf.twice(v, v) AS v INTO out FROM arrivals")), SCHEMAS)
    assert caught.value.code == "TG-QUERY-FUNCTION"


@pytest.mark.parametrize(
    ("sql", "text", "what"),
    [
        (SQL, "var x = 1;", "udf.twice has no function main"),
        (GROUPED, "function main() { }", "uda.twice has no accumulate and no computeResult"),
        (SQL, "for (;;);", "udf.twice cannot be used: it takes more than 1 s"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused(tmp_path: Path, sql: str, text: str, what: str) -> None:
    """Before anything runs."""
    with pytest.raises(QueryError) as caught:
        read_script(project(tmp_path, sql, twice=text))
    assert (caught.value.code, caught.value.what) == ("TG-QUERY-JAVASCRIPT", what)


HOSTILE = """function main(v) { if (v === 1) for (;;); if (v === 2) return main(v);
if (v === 3) { const a = []; for (;;) a.push('x'.repeat(1000) + a.length); } return v; }"""


def test_a_row_that_loops_recurses_or_eats_memory_is_a_dead_letter_and_the_others_go_on(tmp_path: Path) -> None:
    """Each with its reason; of a script of 100 kB too."""
    text = HOSTILE + "//" + "x" * 100_000
    table = FunctionSettings.model_validate({"__name__": "hostile", "code": text, "time_max": "100ms", "memory_max": "4MiB"})
    script = read_script(project(tmp_path, "SELECT udf.hostile(v) AS v INTO out FROM arrivals"), functions={"hostile": table})
    answers = answers_of(script, {"arrivals": [Event(0, at * 1_000_000, {"v": at}) for at in range(5)]})
    assert answers.values() == ['{"v":0}', '{"v":4}']
    said = {reason.removeprefix("udf.hostile failed: ").removesuffix(": UDF.HOSTILE(v)") for reason in answers.reasons}
    assert said == {"it takes more than 0.1 s", "it calls itself too deeply", "it needs more than 4194304 bytes of memory"}
    assert len(answers.reasons) == 3


NAMES = "function main(v) { if (v === 13) throw new Error('unlucky'); return v === null ? 'none' : typeof v === 'number' ? v / 2 : [v]; }"
LAST = """function main() { this.init = function () { this.seen = []; };
this.accumulate = function (v, at) { if (v === 13) throw new Error('unlucky');
this.seen.push(v === null ? 'none' : String(v), at.getTime() / 1000); };
this.computeResult = function () { return this.seen.join(' '); }; }"""
VALUES = [None, 0, 1, 13, 15, "a", "b\0c", True, 0.5]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT udf.names(v) AS v INTO out FROM arrivals",
        "SELECT uda.seen(v) AS v INTO out FROM arrivals GROUP BY HoppingWindow(second, 4, 2)",
    ],
)
def test_values_keep_the_law(sql: str, tmp_path: Path) -> None:
    """Level 3: rows of any kinds, each by a call of its own; and an aggregate from its rows alone."""
    law_of(project(tmp_path, sql, names=NAMES, seen=LAST), {"arrivals": [{"v": value} for value in VALUES]})
