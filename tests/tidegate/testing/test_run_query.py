"""``run_query``: rows in, results out. Levels 2 and 3: whatever batch boundaries and restarts, the same results in the same order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from ordering.errors import QueryError
from query.testing.input_files import Rows, ndjson_of, read_rows
from query.testing.ordered_inputs import tear_pieces
from query.testing.user_query import user_query
from tidegate.query.api import count, stream, tumbling
from tidegate.query.extending import ScalarFunction
from tidegate.testing import Fate, law_of, ordered_topic, run_query

COUNTS = "SELECT k, COUNT(*) AS n FROM rides TIMESTAMP BY at GROUP BY k, TumblingWindow(second, 10)"
PER_KEY = COUNTS.replace("TIMESTAMP BY at", "TIMESTAMP BY at OVER k")
ROWS: list[dict[str, Any]] = [
    {"at": f"2026-01-01T00:00:{at:02d}Z", "k": "ab"[at % 2], "EventEnqueuedUtcTime": f"2026-01-01T00:00:{came:02d}Z"}
    for at, came in [(1, 3), (5, 6), (4, 7), (14, 14), (2, 15), (11, 16), (25, 26), (24, 26), (31, 33)]
]
POLICIES = {"late": "5s", "late_action": "drop", "reorder": "2s", "out_of_order_action": "drop"}


@pytest.mark.parametrize("sql", [COUNTS, PER_KEY])
def test_cuts_change_nothing(sql: str) -> None:
    """Level 2 with OVER, level 3 without: restarts between any two records."""
    whole = run_query(sql, {"rides": ROWS}, POLICIES, cuts=None)
    assert {row["n"] for row in whole.rows} == {1, 2}
    for cuts in ([1, 2, 3, 4, 5, 6, 7], [4], []):
        assert run_query(sql, {"rides": ROWS}, POLICIES, cuts=cuts) == whole
    for seed in range(5):
        assert run_query(sql, {"rides": ROWS}, POLICIES, seed=seed) == whole


def test_inputs_have_many_forms(tmp_path: Path) -> None:
    """Rows, NDJSON, Arrow and Parquet are the same events, also as examples of ``law_of``; a text without a brace is a path."""
    table = pa.Table.from_pylist(ROWS)
    pq.write_table(table, tmp_path / "rides.parquet")
    (tmp_path / "rides.ndjson").write_bytes(ndjson_of(ROWS))
    files = [tmp_path / "rides.parquet", tmp_path / "rides.ndjson"]
    batch, reader = table.to_batches()[0], pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    forms: list[Rows] = [ROWS, ndjson_of(ROWS), ndjson_of(ROWS).decode(), table, batch, *files, *map(str, files)]
    expected = run_query(COUNTS, {"rides": ROWS}, POLICIES).rows
    assert [run_query(COUNTS, {"rides": form}, POLICIES).rows for form in [*forms, reader]] == [expected] * 10
    assert [read_rows(form) for form in forms] == [ROWS] * 9
    assert run_query(COUNTS, {"rides": ""}, POLICIES).rows == []
    law_of(COUNTS, {"rides": table}, examples=1)


def test_each_event_has_its_fate() -> None:
    """In order, dropped by a policy, or not usable, by its line."""
    fates = run_query(COUNTS, {"rides": [*ROWS, {"at": "soon"}]}, POLICIES).fates
    assert [(fate.line, fate.kind, fate.reason) for fate in fates if fate.kind != "in order"] == [
        (5, "dropped", "late"),
        (6, "dropped", "out_of_order"),
        (10, "bad", "arrival"),
    ]
    assert fates[0] == Fate("rides", 1, "in order", "", 1_767_225_601_000_000)


def test_queries_have_many_forms(tmp_path: Path) -> None:
    """SQL, a script by its path, or Python; functions need not be installed, and scripts do not know them afterwards."""
    script = tmp_path / "counts.sql"
    script.write_text(COUNTS)
    built = stream("rides", timestamp_by="at").group_by("k", tumbling("10s")).select(k="k", n=count())
    expected = run_query(COUNTS, {"rides": ROWS}).rows
    assert [run_query(query, {"rides": ROWS}).rows for query in (script, str(script), built)] == [expected] * 3
    with pytest.raises(QueryError, match="no installed package offers a query of that name"):
        run_query("counts", {"rides": ROWS})
    shout = ScalarFunction(pc.utf8_upper, takes=("nvarchar(max)",), gives="nvarchar(max)")
    sql = "SELECT udf.shout(k) AS k FROM rides TIMESTAMP BY at"
    assert run_query(sql, {"rides": ROWS[:2]}, functions={"shout": shout}).rows == [{"k": "B"}, {"k": "B"}]
    with pytest.raises(QueryError):
        run_query(sql, {"rides": ROWS[:2]})


def test_a_script_finds_its_functions_in_javascript(tmp_path: Path) -> None:
    """Beside its file, or in a configuration."""
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions" / "shout.js").write_text("function main(text) { return text.toUpperCase(); }")
    (tmp_path / "shout.sql").write_text("SELECT udf.shout(k) AS k FROM rides TIMESTAMP BY at")
    assert run_query(tmp_path / "shout.sql", {"rides": ROWS[:2]}).rows == [{"k": "B"}, {"k": "B"}]
    config = tmp_path / "tidegate.toml"
    config.write_text("[functions.whisper]\ncode = \"function main(text) { return text + '.'; }\"\n")
    assert run_query("SELECT udf.whisper(k) AS k FROM rides TIMESTAMP BY at", {"rides": ROWS[:1]}, config=config).rows == [{"k": "b."}]


def test_tables_have_the_forms_of_inputs(tmp_path: Path) -> None:
    """Rows, or a file."""
    names = [{"k": "a", "name": "north"}]
    (tmp_path / "names.csv").write_text("k,name\na,north\n")
    sql = "SELECT r.k AS k, n.name AS name FROM rides r TIMESTAMP BY at JOIN names n ON r.k = n.k"
    forms: list[Rows] = [names, tmp_path / "names.csv"]
    assert [run_query(sql, {"rides": ROWS[3:5]}, references={"names": form}).rows for form in forms] == [
        [{"k": "a", "name": "north"}] * 2
    ] * 2


def test_a_log_that_is_torn_off_is_written_again() -> None:
    """Without the CTIs of what was torn, and without a part of its last events; then all of it (level 1)."""
    with user_query(PER_KEY, policies={"late": "1h", "reorder": "2s"}).open({"rides": ROWS}) as opened:
        whole = opened.order(1).pieces
    torn = tear_pieces(whole, 6, 3)
    assert len(torn) == len(whole) + 3
    assert not any(decoded.log.ctis for _, decoded in torn[3:6])
    seqs = [seq for _, decoded in torn for seq in decoded.log.seq.tolist()]
    assert sorted(set(seqs)) == [seq for _, decoded in whole for seq in decoded.log.seq.tolist()]
    offsets = [offset for _, decoded in torn for offset in decoded.log.log_offset.tolist()]
    assert len(seqs) > len(set(seqs))
    assert offsets == sorted(set(offsets))


def test_a_topic_is_in_order() -> None:
    """Level 1: the events that ingest writes, with their keys."""
    topic = ordered_topic(ROWS, {"reorder": "2s", "late": "1h"}, timestamp_by="at", over="k")
    assert len(topic) == len(ROWS)
    assert {event.key for event in topic} == {b"a", b"b"}
    for key in (b"a", b"b"):
        times = [event.system_us for event in topic if event.key == key]
        assert times == sorted(times)
