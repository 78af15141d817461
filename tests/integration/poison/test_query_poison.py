"""
Poison for queries: an event for each reason to refuse one, or its result, at every size around every limit, compressed and not.

A query without OVER over four formats, one with OVER, and one chained to it read them among good events, with a restart in between. The
jobs live, the results of the rest are those told by hand, and each refused event or result is a dead letter that says why.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet
import pytest
from support.poison import (
    GIANT_BYTES,
    REGISTERED,
    SCHEMA,
    OrderedWriter,
    Row,
    avro,
    by_origin,
    check_letter,
    filler,
    framed,
    padded,
    query_reason,
)
from support.registry_server import RegistryServer
from support.stack.jobs import Job, settings_of, workspace
from support.stack.topics import ANY_TIME, check_promises, create, fresh, header, read_ordered, records

from ordering.ticks import format_tick
from tidegate.basics.dead_letter_reasons import QueryReason

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

RESULT_BYTES_MAX = 1_048_588
LETTER_BYTES_MAX, CHAINED_LETTER_BYTES_MAX = 20_000, 2_000
SIZES = tuple(limit + step for limit in (LETTER_BYTES_MAX - 300, LETTER_BYTES_MAX) for step in (-1, 0, 1))
FUNCTIONS = """
from query.extensions import ScalarFunction

def picky(values):
    if any(value.startswith("bad") for value in values.to_pylist()):
        raise ValueError("a bad one")
    return values

asks = ScalarFunction(picky, ("nvarchar(max)",), "nvarchar(max)")
"""
COLUMNS = """n, CAST(c AS bigint) AS c, ABS(w) AS w, CASE WHEN m = 1 THEN 1 ELSE 0 END AS m, CASE WHEN o = p THEN 1 ELSE 0 END AS o,
CASE WHEN CAST(z AS datetime) IS NULL THEN 0 ELSE 1 END AS z, udf.asks(u) AS u, a AS a, a AS b, e AS e, kk AS k, d AS d,
LEN(REPLACE(v, 'x', v)) AS v"""
FLAT = f"""
SELECT {COLUMNS} INTO flat FROM objects TIMESTAMP BY t;
SELECT CAST(n AS bigint) AS n INTO from_csv FROM texts TIMESTAMP BY t;
SELECT n INTO from_avro FROM binaries TIMESTAMP BY at;
SELECT n INTO from_frames FROM frames TIMESTAMP BY at;
"""
KEYED = f"SELECT {COLUMNS} INTO keyed FROM objects TIMESTAMP BY t OVER k"
CHAINED = "SELECT n, CAST(d AS bigint) AS d INTO chained FROM keyed TIMESTAMP BY System.Timestamp() OVER k"
READS = {"flat": "objects", "from_csv": "texts", "from_avro": "binaries", "from_frames": "frames", "keyed": "objects"}
DEAD_LETTERS_OF = {"from_csv": "flat", "from_avro": "flat", "from_frames": "flat"}
"""The dead letters of a script are with its first output."""
FORMATS = {
    "objects": 'timestamp_by = "t"\nover = "k"\nfields = { u = "nvarchar(max)", k = "nvarchar(max)" }',
    "texts": 'format = "csv"\ncsv_columns = ["t", "n"]\ntimestamp_by = "t"',
    "binaries": 'format = "avro"\navro_schema = "schema.avsc"\ntimestamp_by = "at"',
    "frames": 'format = "avro_registry"\ntimestamp_by = "at"',
}
GOOD = {
    "c": "5",
    "w": -3,
    "m": 1,
    "o": "x",
    "p": "x",
    "z": "2024-03-01T00:00:00Z",
    "u": "fine",
    "a": "",
    "e": "",
    "kk": "a",
    "d": "7",
    "v": "x",
}
RECORD = {"r": 1}
BROKEN: Mapping[QueryReason, Mapping[str, Any]] = {
    QueryReason.CONVERSION: {"c": "x"},
    QueryReason.WRONG_KIND: {"w": RECORD},
    QueryReason.MIXED: {"m": RECORD},
    QueryReason.NOT_COMPARABLE: {"o": RECORD, "p": RECORD},
    QueryReason.NOT_CONVERTIBLE: {"z": RECORD},
    QueryReason.CALL: {"u": "bad"},
    QueryReason.VALUE_TOO_LARGE: {"v": "x" * 2_100},
}
"""The members of an event on which the query fails."""
REFUSED: Mapping[str, Mapping[QueryReason, tuple[bytes, bytes] | None]] = {
    "objects": {
        QueryReason.NO_PAYLOAD: None,
        QueryReason.NOT_UTF8: (b'{"n":1,"a":"\xff', b'"}'),
        # Where DuckDB's message about it is cut, there is half a character.
        QueryReason.NOT_JSON: (b'{"n":' + "\N{NO-BREAK SPACE}".encode() * 40, b""),
        QueryReason.NOT_OBJECT: (b'["', b'"]'),
    },
    "texts": {QueryReason.NOT_CSV: (b'0,"', b""), QueryReason.WRONG_COUNT: (b"0,1,", b"")},
    "binaries": {QueryReason.NOT_AVRO: (avro(1, 1), b"")},
    "frames": {
        QueryReason.NO_FRAME: (b"\1", b""),
        QueryReason.SCHEMA_UNKNOWN: (framed(1, schema=9), b""),
        QueryReason.SCHEMA_UNUSABLE: (framed(1, schema=2), b""),
    },
}
"""What begins and ends a payload that cannot be read; None: there is none."""
OF_RESULTS = {QueryReason.RESULT_TOO_LARGE, QueryReason.FOREIGN_KEY, QueryReason.NO_TIME}
OF_JOINS = {QueryReason.JOIN_TOO_LARGE}
"""No record by itself is one of these: the output ``pairs`` has them."""
OF_PATTERNS = {QueryReason.PATTERN_STEPS}
"""A match has them, not a record (tests/query/operators/patterns)."""
PAIRS = """SELECT x.n AS n, y.n AS m INTO pairs FROM binaries TIMESTAMP BY at x
JOIN binaries TIMESTAMP BY at y ON DATEDIFF(second, x, y) BETWEEN 1 AND 3600"""
PAIRS_MAX = 5


def event(number: int, **own: Any) -> Row:
    """Return an event of ``objects``, with the result that a good one has by docs/queries/queries.md."""
    values = {"t": number, "k": "a", "n": number, **GOOD, **own}
    if any(values[name] != GOOD[name] for name in "cwmopzuv"):
        return Row(written(values))
    texts = {"u": values["u"], "a": values["a"], "b": values["a"], "e": values["e"], "k": values["kk"], "d": values["d"]}
    return Row(written(values), result=written({"n": number, "c": 5, "w": 3, "m": 1, "o": 1, "z": 1, **texts, "v": 1}))


def written(values: Mapping[str, Any]) -> bytes:
    """Return members as JSON."""
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode()


def sized_event(result_bytes: int, number: int) -> Row:
    """Return an event whose result is as large as this."""
    missing = result_bytes - len(event(number).result)
    return event(number, a=filler(missing // 2), e=filler(missing % 2))


def good_row(name: str, number: int) -> Row:
    """Return an event that nothing is wrong with."""
    if name == "objects":
        return event(number)
    payload = {"texts": b"0,%d" % number, "binaries": avro(1, number), "frames": framed(1, number)}[name]
    return Row(payload, result=b'{"n":%d}' % number)


def _same_row(row: Row, _: int) -> Row:
    return row


def _broken(reason: QueryReason, size: int, number: int) -> Row:
    return replace(event(number, a=filler(size), **BROKEN[reason]), reason=reason)


def group(name: str, first: int, sizes: Sequence[int]) -> list[Row]:
    """Return each poison of an input at each size, and good events around each; numbered from *first*."""
    poison: list[Callable[[int], Row]] = []
    for reason, ends in REFUSED[name].items():
        for size in sizes:
            row = Row(None, reason, b"k" * size) if ends is None else Row(padded(*ends, size), reason)
            poison.append(partial(_same_row, row))
    if name == "objects":
        poison += [partial(_broken, reason, size) for reason in BROKEN for size in sizes]
        poison += [partial(sized_event, RESULT_BYTES_MAX + step) for step in (-2, -1, 0, 1)]
        for size in (1, *sizes):
            poison += [partial(event, kk="b", e=filler(size)), partial(event, d="x" * size)]
    rows = [row for at, make in enumerate(poison) for row in (good_row(name, first + 2 * at), make(first + 2 * at + 1))]
    return [*rows, good_row(name, first + len(rows))]


class Result(NamedTuple):
    """A result: its time, key and value."""

    system_us: int
    key: bytes
    value: bytes


@dataclass
class Run:
    """What was written into each ordered topic, and what the queries must make of it."""

    name: str
    stack: Stack
    folder: Path
    writers: dict[str, OrderedWriter] = field(default_factory=dict)
    summaries: dict[str, dict[str, Any]] = field(default_factory=dict)

    def topic(self, name: str) -> str:
        """Return the topic of an input or output."""
        return f"{name}-{self.name}"

    def told(self, output: str) -> tuple[list[Result], dict[str, tuple[QueryReason, bytes | None, bytes | None]]]:
        """Return the results of a query in order; and by origin reason, key and value of its dead letters."""
        if output == "chained":
            return self._told_of_chain()
        results: list[Result] = []
        letters: dict[str, tuple[QueryReason, bytes | None, bytes | None]] = {}
        for seq, row in enumerate(self.writers[READS[output]].rows):
            result = Result(OrderedWriter.system_us(seq), row.key if output == "keyed" else b"", row.result)
            if row.reason is not None:
                letters[f"{self.topic(READS[output])}:0@{seq}"] = row.reason, row.key, row.value
            elif len(result.key + result.value) > RESULT_BYTES_MAX:
                origin = f"a result of {output} at {format_tick(result.system_us)}"
                letters[origin] = QueryReason.RESULT_TOO_LARGE, result.key, result.value
            else:
                results.append(result)
        return results, letters

    def _told_of_chain(self) -> tuple[list[Result], dict[str, tuple[QueryReason, bytes | None, bytes | None]]]:
        results: list[Result] = []
        letters: dict[str, tuple[QueryReason, bytes | None, bytes | None]] = {}
        for seq, read in enumerate(self.told("keyed")[0]):
            said = json.loads(read.value)
            if said["k"] != "a" or not said["d"].isdigit():
                reason = QueryReason.FOREIGN_KEY if said["k"] != "a" else QueryReason.CONVERSION
                letters[f"{self.topic('keyed')}:0@{seq}"] = reason, read.key, read.value
            else:
                results.append(read._replace(value=written({"n": said["n"], "d": int(said["d"])})))
        return results, letters


OUTPUTS = """
[outputs.{name}]
topic = "{name}-{run}"
dead_letter_bytes_max = {letter_bytes_max}
"""
SMALL_BATCH_BYTES = 256 * 2**10
LETTER_LIMITS = {"flat": LETTER_BYTES_MAX, "keyed": 64 * 2**20, "chained": CHAINED_LETTER_BYTES_MAX}


@pytest.fixture(scope="module")
def run(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Three queries over what was written; each was stopped in the middle once."""
    folder = tmp_path_factory.mktemp("poison")
    made = Run(fresh("poison"), stack, folder)
    registry = RegistryServer()
    registry.ids.update(REGISTERED)
    tables = [f'[schema_registry]\nurl = "{registry.url}"\n']
    for name, own in FORMATS.items():
        topic = create(stack.bootstrap, made.topic(name), 1, ANY_TIME)
        made.writers[name] = OrderedWriter(stack.bootstrap, topic, over=name == "objects")
        tables.append(f'[inputs.{name}]\ntopic = "{topic}.raw"\nordered_topic = "{topic}"\n{own}\n')
    for name in (*READS, "chained", "small", "pairs"):
        letter_bytes_max = LETTER_LIMITS.get(name, LETTER_BYTES_MAX)
        tables.append(OUTPUTS.format(name=name, run=made.name, letter_bytes_max=letter_bytes_max))
        if name == "flat":
            tables.append(f'plain_topic = "{made.topic("plain")}"\nfiles = "{folder}/files"\nfile_span = "1h"\n')
        if name == "small":
            tables.append(f'files = "{folder}/parquet"\nfile_format = "parquet"\nfile_folders = "date"\nfile_span = "1h"\n')
    # A dead-letter topic that is there already, and takes little.
    create(stack.bootstrap, f"{made.topic('chained')}.dead", 1, {"max.message.bytes": str(CHAINED_LETTER_BYTES_MAX)})
    environment = offered_function(folder / "site")
    with workspace(folder / "jobs", stack, "\n".join(tables)) as space:
        (space.folder / "schema.avsc").write_text(SCHEMA)
        scripts = [space.script(f"{name}.sql", text) for name, text in (("flat", FLAT), ("keyed", KEYED), ("chained", CHAINED))]
        _write(made, "none")
        jobs = [space.start("query", script, **environment) for script in scripts[:2]]
        for job in jobs:
            job.until(partial(_has_batches, job), "a batch")
        jobs.append(space.start("query", scripts[2]))
        jobs[2].until(partial(_has_batches, jobs[2]), "a batch")
        for job in jobs:
            job.stop()
        _write(made, "gzip")
        made.writers["objects"].write([Row(padded(b'{"n":', b"", GIANT_BYTES), QueryReason.NOT_JSON)], "gzip")
        for name, writer in made.writers.items():
            writer.write([good_row(name, len(writer.rows))])
            writer.end()
        jobs = [space.start("query", script, **environment) for script in scripts[:2]]
        made.summaries = {name: job.finish() for name, job in zip(("flat", "keyed"), jobs, strict=True)}
        made.summaries["chained"] = space.start("query", scripts[2]).finish()
        script = space.script("small.sql", f"SELECT {COLUMNS} INTO small FROM objects TIMESTAMP BY t; {PAIRS}")
        small = settings_of(query__max_bytes_per_batch=SMALL_BATCH_BYTES, query__join_pairs_max=PAIRS_MAX, spark__trigger="0s")
        made.summaries["small"] = space.start("query", script, *small, **environment).finish()
        yield made
    registry.stop()


def _has_batches(job: Job) -> bool:
    return job.batches > 0


def _write(run: Run, codec: str) -> None:
    for name, writer in run.writers.items():
        writer.write(group(name, len(writer.rows), SIZES), codec)


def offered_function(folder: Path) -> dict[str, str]:
    """Make a package that offers the function; return the environment in which it is installed."""
    told_by = folder / "picky-1.0.dist-info"
    told_by.mkdir(parents=True)
    (folder / "picky.py").write_text(FUNCTIONS)
    (told_by / "METADATA").write_text("Metadata-Version: 2.1\nName: picky\nVersion: 1.0\n")
    (told_by / "entry_points.txt").write_text("[tidegate.functions]\nasks = picky:asks\n")
    return {"PYTHONPATH": str(folder)}


def test_there_is_a_recipe_for_each_reason() -> None:
    """A new reason fails here until the suite has an event for it."""
    assert {*BROKEN, *OF_RESULTS, *OF_JOINS, *OF_PATTERNS, *(reason for kinds in REFUSED.values() for reason in kinds)} == set(QueryReason)


@pytest.mark.parametrize("output", [*READS, "chained"])
def test_what_is_no_poison_has_its_result(output: str, run: Run) -> None:
    """Law, level 2: the results of the rest in their order, numbered without gaps; one of exactly the largest size is among them."""
    found = read_ordered(run.stack.bootstrap, run.topic(output), 1)
    check_promises(found)
    assert found.ended
    results = [Result(each.system_us, each.key or b"", each.value or b"") for each in found.all_events()]
    told, _ = run.told(output)
    assert [pair for pair in zip(results, told, strict=False) if pair[0] != pair[1]] == []
    assert len(results) == len(told)
    if output in ("flat", "keyed"):
        assert RESULT_BYTES_MAX in {len(result.key + result.value) for result in results}


def test_files_and_plain_topics_hold_the_same_results(run: Run) -> None:
    """What is too large for the result topic stands nowhere; a plain topic takes what the result topic takes."""
    told = [result.value for result in run.told("flat")[0]]
    assert [message.value() for message in records(run.stack.bootstrap, run.topic("plain"))] == told
    files = sorted((run.folder / "files").rglob("*.ndjson"))
    assert [line for file in files for line in file.read_bytes().splitlines()] == told


@pytest.mark.parametrize("output", LETTER_LIMITS)
def test_each_poison_is_a_dead_letter_that_says_why(output: str, run: Run) -> None:
    """Each refused event or result and no other, whole or cut with its size and hash."""
    letters = by_origin(records(run.stack.bootstrap, f"{run.topic(output)}.dead"))
    told = run.told(output)[1]
    for other in (other for other, first in DEAD_LETTERS_OF.items() if first == output):
        told |= run.told(other)[1]
    assert letters.keys() == told.keys()
    for origin, (reason, key, value) in told.items():
        for letter in letters[origin]:
            assert query_reason(header(letter, "reason").decode()) is reason
            check_letter(letter, key, value, LETTER_LIMITS[output])


def test_oversized_results_are_counted(run: Run) -> None:
    """Apart from the events on which a query failed."""
    for output in ("flat", "keyed"):
        reasons = [reason for reason, _, _ in run.told(output)[1].values()]
        assert run.summaries[output]["results_too_large"] == reasons.count(QueryReason.RESULT_TOO_LARGE) > 0


def test_large_records_are_read_in_several_batches_with_the_same_results(run: Run) -> None:
    """Law, level 3: a batch is bounded by bytes too, and the bytes that come out are those of large batches."""
    assert run.summaries["small"]["batches"] > 5
    results = {
        output: [
            (each.seq, each.system_us, each.key, each.value)
            for each in read_ordered(run.stack.bootstrap, run.topic(output), 1).all_events()
        ]
        for output in ("flat", "small")
    }
    assert results["small"] == results["flat"]


def test_a_join_with_too_many_pairs_of_an_instant_makes_the_first_ones_and_tells_of_the_rest(run: Run) -> None:
    """Each later event meets all earlier ones, of which the first five count; what is left out is a dead letter of its instant."""
    read, unreadable = run.told("from_avro")
    numbers = [json.loads(result.value)["n"] for result in read]
    pairs = [(read[later].system_us, {"n": n, "m": m}) for later, m in enumerate(numbers) for n in numbers[: min(later, PAIRS_MAX)]]
    found = read_ordered(run.stack.bootstrap, run.topic("pairs"), 1)
    assert [(each.system_us, json.loads(each.value or b"")) for each in found.all_events()] == pairs
    letters = records(run.stack.bootstrap, f"{run.topic('small')}.dead")
    texts = [header(letter, "reason").decode() for letter in letters]
    too_large = [text for text in texts if query_reason(text) is QueryReason.JOIN_TOO_LARGE]
    assert too_large == [QueryReason.JOIN_TOO_LARGE.text(PAIRS_MAX, n - PAIRS_MAX) for n in range(PAIRS_MAX + 1, len(numbers))]
    others = [reason for reason, _, _ in run.told("keyed")[1].values() if reason is not QueryReason.RESULT_TOO_LARGE]
    assert run.summaries["small"]["bad_rows"] == len(others) + len(unreadable) + len(too_large)


def test_parquet_files_have_the_columns_of_the_query_and_the_same_results(run: Run) -> None:
    """Types as ``tidegate plan`` tells them; of a field that is not declared each value is JSON."""
    files = sorted((run.folder / "parquet").rglob("*.parquet"))
    assert {file.parent.name.partition("=")[0] for file in files} == {"date"}
    table = pa.concat_tables([pyarrow.parquet.ParquetFile(file).read() for file in files])
    kinds = {name: str(kind) for name, kind in zip(table.schema.names, table.schema.types, strict=True)}
    assert (kinds["n"], kinds["c"], kinds["u"], kinds["d"]) == ("string", "int64", "string", "string")
    fixed = {"c", "m", "o", "z", "u", "v"}
    told = [json.loads(result.value) for result in run.told("flat")[0]]
    for name, column in zip(table.schema.names, table.columns, strict=True):
        assert [value if name in fixed else json.loads(value) for value in column.to_pylist()] == [row[name] for row in told]
