"""``tidegate.read`` without servers: types that nothing declares, files of spans, the order of results, wrong arguments."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate
from ordering.errors import SettingError, TidegateError
from ordering.ticks import MINUTE_US, parse_tick
from query.start.survey import configured_output
from sinks.file_places import open_place
from sinks.files import FileSink
from sinks.results.columns import infer_table
from sinks.results.file_rows import list_files
from sinks.results.topic_rows import Waiting
from tidegate.ordered_topic.events import OrderedEvents
from tidegate.platform.settings.load import load

NOON = parse_tick("2026-01-05T12:00:00Z")
ROWS = [(NOON + number * 15_000_000, b"ab"[number % 2 :][:1], b'{"n":%d,"at":"x"}' % number) for number in range(12)]


def test_importing_the_package_loads_nothing() -> None:
    """``import tidegate`` stays free; the name is there all the same."""
    program = (
        "import sys, tidegate; print('pyarrow' in sys.modules, 'read' in dir(tidegate)); tidegate.read; print(tidegate.Results.__name__)"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60).stdout
    assert shown.split() == ["False", "True", "Results"]
    with pytest.raises(AttributeError):
        _ = tidegate.nothing  # type: ignore[attr-defined]


def test_types_that_nothing_declares_follow_from_all_values() -> None:
    """In the order of their first occurrence; what has no common type is JSON text; what is missing is null."""
    table = infer_table([b'{"a":1,"b":true,"c":"x"}', b'{"a":2.5,"c":null,"d":{"e":[1]}}', b'{"d":"t","f":9223372036854775808}'])
    assert table.to_pylist() == [
        {"a": 1.0, "b": True, "c": "x", "d": None, "f": None},
        {"a": 2.5, "b": None, "c": None, "d": '{"e":[1]}', "f": None},
        {"a": None, "b": None, "c": None, "d": '"t"', "f": 9223372036854775808.0},
    ]
    assert [str(kind) for kind in table.schema.types] == ["double", "bool", "string", "string", "double"]
    assert infer_table([]).num_columns == 0


@pytest.mark.parametrize("by_date", [False, True])
@pytest.mark.parametrize("file_format", ["ndjson", "parquet", "parquet_json"])
def test_results_are_read_from_every_format_of_files(tmp_path: Path, file_format: str, by_date: bool) -> None:
    """Each once, in the order of the spans; unfinished files and those of others are passed over; a span is chosen by whole files."""
    columns = [("n", "bigint"), ("at", "nvarchar(max)")]
    sink = FileSink(tmp_path / "out", file_format, MINUTE_US, columns, by_date=by_date)
    for minute in (2, 0, 1):
        first_us = NOON + minute * MINUTE_US
        sink.publish(first_us, 0, [row for row in ROWS if first_us <= row[0] < first_us + MINUTE_US])
    (tmp_path / "out" / ".2026-01-05T12-00-00Z.p00000.ndjson.tmp").write_text("{")
    (tmp_path / "out" / "notes.txt").write_text("of somebody else")
    folders = "date" if by_date else "none"
    table = f'[outputs.rides]\nfiles = "out"\nfile_span = "1m"\nfile_format = "{file_format}"\nfile_folders = "{folders}"\n'
    (tmp_path / "tidegate.toml").write_text(f'{table}columns = {{ n = "bigint", at = "nvarchar(max)" }}\n')
    (tmp_path / "plain.toml").write_text(table)
    for config in ("tidegate.toml", "plain.toml"):
        found = tidegate.read("rides", config=tmp_path / config).to_arrow()
        assert found["n"].to_pylist() == list(range(12))
        assert found.schema == pa.schema([("n", pa.int64()), ("at", pa.string())])
    part = tidegate.read("rides", config=tmp_path / "tidegate.toml", since="2026-01-05T12:01:00Z", until="2026-01-05T12:02:00Z")
    assert part.to_arrow()["n"].to_pylist() == [4, 5, 6, 7]
    assert [piece.num_rows for piece in tidegate.read("rides", config=tmp_path / "tidegate.toml")] == [4, 4, 4]
    cut = tidegate.read("rides", config=tmp_path / "tidegate.toml", since="2026-01-05T12:00:20Z")
    if file_format == "parquet_json":
        assert cut.to_arrow()["n"].to_pylist() == list(range(2, 12))
    else:
        with pytest.raises(SettingError) as refused:
            cut.to_arrow()
        assert refused.value.code == "TG-READ-TIME"


def test_a_job_writes_files_where_readers_look_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From whichever folder each of the two runs, and whoever names the configuration: the folder begins at tidegate.toml."""
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    for folder in (project, elsewhere):
        folder.mkdir()
    (project / "tidegate.toml").write_text('[outputs.rides]\nfiles = "out"\nfile_span = "1m"\n')
    for number, folder in enumerate((project, elsewhere, tmp_path)):
        monkeypatch.chdir(folder)
        monkeypatch.setenv("TIDEGATE_CONFIG", str(project / "tidegate.toml"))
        written = configured_output(load(None), "rides").files
        assert written == str(project / "out")
        FileSink(written, "ndjson", MINUTE_US, [("n", "bigint")]).publish(NOON + number * MINUTE_US, 0, [ROWS[number * 4]])
        assert len(tidegate.read("rides").to_arrow()) == number + 1
        monkeypatch.delenv("TIDEGATE_CONFIG")
        assert len(tidegate.read("rides", config=project / "tidegate.toml").to_arrow()) == number + 1
    assert not (elsewhere / "out").exists()


def test_files_of_the_first_span_are_found(tmp_path: Path) -> None:
    """That of 1970 too, and spans of milliseconds by their fractions."""
    (tmp_path / "1970-01-01T00-00-00Z.p00000.ndjson").touch()
    (tmp_path / "2026-01-05T12-00-00.500Z.p00001.ndjson").touch()
    place = open_place(str(tmp_path))
    assert list_files(place, MINUTE_US, None, None, set()) == sorted(path.name for path in tmp_path.iterdir())
    assert list_files(place, 500_000, NOON + 500_000, None, set()) == ["2026-01-05T12-00-00.500Z.p00001.ndjson"]
    assert list_files(place, 500_000, NOON + 1_000_000, None, set()) == []


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"source": "topic"}, "TG-READ-SOURCE"),
        ({"source": "files", "with_time": "at"}, "TG-READ-TIME"),
        ({"until": "soon"}, "TG-TICK-RANGE"),
    ],
)
def test_wrong_arguments_are_told_at_once(tmp_path: Path, arguments: dict[str, str], code: str) -> None:
    """Before anything is read."""
    (tmp_path / "tidegate.toml").write_text('[outputs.rides]\nfiles = "out"\n')
    with pytest.raises(TidegateError) as refused:
        tidegate.read("rides", config=tmp_path / "tidegate.toml", **arguments)  # type: ignore[arg-type]
    assert refused.value.code == code


@given(
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from([b"a", b"b", None]), st.integers(0, 1), st.integers(0, 2)), max_size=30),
    st.integers(0, 2**32),
)
def test_results_come_in_one_order_however_the_partitions_are_read(drawn: list[tuple[int, bytes | None, int, int]], seed: int) -> None:
    """Level 3: the pieces in which partitions are walked do not show; nothing before an instant that all have promised is held."""
    rows = [(s, partition, key, number, seq) for seq, (s, key, number, partition) in enumerate(drawn)]
    waiting, found, left = Waiting(), list[int](), list(rows)
    chance = random.Random(seed)
    while left:
        count = chance.randint(1, len(left))
        for partition in chance.sample(range(3), 3):
            piece = [row for row in left[:count] if row[1] == partition]
            waiting.add(partition, columns_of(piece))
        del left[:count]
        frontier = min((row[0] for row in left), default=10)
        taken = waiting.take_below(frontier)
        found += [] if taken is None else taken.position.tolist()
    assert len(waiting) == 0
    assert found == [row[4] for row in sorted(rows, key=lambda row: (row[0], row[1], row[2] or b"", row[3], row[4]))]


def columns_of(rows: list[tuple[int, int, bytes | None, int, int]]) -> OrderedEvents:
    """Return results as they are read."""
    system_us, number, seq = (np.array([row[place] for row in rows], dtype=np.int64) for place in (0, 3, 4))
    header = pa.array([bytes(48)] * len(rows), pa.binary(48))
    key = pa.array([row[2] for row in rows], pa.binary())
    return OrderedEvents(seq, number, seq, system_us, system_us, header, key, key)
