"""Results in a ClickHouse table: what is made, what is taken as it is, what is refused in whose words, and statements that come late."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.certificates import Authority
from support.stores.benches import ClickHouseBench
from support.stores.writers import batch, refusal_of
from support.tls_proxy import TlsFront

from ordering.errors import SettingError, UnreachableError
from sinks.stores.base import Batch, Progress, Rows, RowsRefused, StoreContext, StoreError, Stream
from sinks.stores.clickhouse import store as clickhouse
from sinks.stores.clickhouse.statements import BatchStatements
from sinks.stores.clickhouse.store import ClickHouseStore, typed_columns
from tidegate.platform.settings.load import Settings

pytestmark = pytest.mark.heavy
COLUMNS = (("car", "nvarchar(max)"), ("fixes", "bigint"), ("speed", "float"), ("at", "datetime"), ("is_odd", "bit"), ("more", "record"))
STREAM = Stream("rides", "id-of-rides", 4)
PLACE = "_topic_id String, _partition Int32, _seq Int64"
MADE = "ENGINE = MergeTree ORDER BY _seq"
WINDOW = "SETTINGS non_replicated_deduplication_window = 10000"
KEPT = f"{MADE} {WINDOW}"
_number = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseBench]:
    """One server for this file."""
    made = ClickHouseBench(tmp_path_factory.mktemp("clickhouse"))
    made.execute("CREATE DATABASE kit")
    yield made
    made.close()


@pytest.fixture
def table() -> str:
    """A table that nobody else has."""
    return f"rides{next(_number)}"


def store_of(server: ClickHouseBench, table: str, columns: Any = COLUMNS, **settings: Any) -> ClickHouseStore:
    """Return a store of the output ``rides``."""
    return ClickHouseStore(StoreContext("rides", STREAM, columns), server.settings(table, **settings))


def many(start: int, end: int, partition: int = 0) -> Batch:
    """Return the batch with ``start <= fixes < end``, five to a month."""
    values = (
        {"fixes": number, "at": f"20{number // 60 % 100:02d}-{number // 5 % 12 + 1:02d}-01T00:00:00Z"} for number in range(start, end)
    )
    return batch(start, *values, partition=partition)


def rows_in(server: ClickHouseBench, table: str, what: str = "*", more: str = "") -> list[Any]:
    """Return what the table has, in the order of topic, partition and number."""
    query = (
        f"SELECT {what} FROM kit.{table} {more} ORDER BY ALL SETTINGS output_format_json_quote_64bit_integers = 0 FORMAT JSONCompactEachRow"
    )
    return [json.loads(line) for line in server.execute(query).splitlines()]


def numbers(server: ClickHouseBench, table: str, partition: int = 0) -> list[int]:
    """Return the numbers that stand of a partition."""
    return [number for (number,) in rows_in(server, table, "_seq", f"WHERE _partition = {partition}")]


def test_a_table_is_made_with_the_types_of_the_query(server: ClickHouseBench, table: str) -> None:
    """Every type, NULL in each, names that need quotes; sorted by the result's place, or as asked."""
    columns = (*COLUMNS, ("My `x` \\ 'y'", "any"))
    result = {
        "car": "Zürich\n\0'\\",
        "fixes": 2**63 - 1,
        "speed": 0.1,
        "at": "2299-12-31T23:59:59.999999Z",
        "is_odd": True,
        "more": {"x": [1]},
    }
    for order, sorting in ((), "_topic_id, _partition, _seq"), (("car", "fixes"), "car, fixes"):
        store = store_of(server, name := f"{table}{len(order)}", columns, order_by=order)
        store.prepare()
        store.write(batch(0, {**result, "My `x` \\ 'y'": 7}, {}))
        store.close()
        found = rows_in(server, name)
        assert [*result.values(), "7", "id-of-rides", 0, 0] == [
            *found[0][:3],
            found[0][3].replace(" ", "T") + "Z",
            found[0][4],
            json.loads(found[0][5]),
            *found[0][6:],
        ]
        assert found[1] == [*[None] * 7, "id-of-rides", 0, 1]
        assert server.execute(f"SELECT sorting_key FROM system.tables WHERE name = '{name}'").decode().strip() == sorting
    types = server.execute(f"SELECT type FROM system.columns WHERE table = '{name}' LIMIT 6 FORMAT LineAsString")
    assert types.decode().splitlines() == [
        "Nullable(String)", "Nullable(Int64)", "Nullable(Float64)", "Nullable(DateTime64(6, 'UTC'))", "Nullable(Bool)", "Nullable(String)",
    ]  # fmt: skip


def test_a_table_keeps_its_own_types_and_the_server_says_which_rows_do_not_fit(server: ClickHouseBench, table: str) -> None:
    """Exactly, or not at all: a number that is too large, a text that an Enum lacks, NULL where none may be, a constraint."""
    columns = f"note String DEFAULT 'new', car Enum8('a' = 1, 'b' = 2), fixes UInt8, at DateTime64(9, 'Asia/Tokyo'), {PLACE}"
    server.execute(f"CREATE TABLE kit.{table} ({columns}, CONSTRAINT few CHECK fixes < 200) ENGINE = MergeTree ORDER BY car {WINDOW}")
    store = store_of(server, table, (COLUMNS[0], COLUMNS[1], COLUMNS[3]))
    store.prepare()
    good = {"car": "b", "fixes": 7, "at": "2001-01-02T03:04:05.000006Z"}
    wrong = [{"fixes": 256}, {"fixes": -1}, {"car": "c"}, {"car": None}, {"fixes": 200}, {"at": "2290-01-01T00:00:00Z"}]
    whole = batch(0, good, *({**good, **each} for each in wrong), good)
    with pytest.raises(RowsRefused) as refused:
        store.write(whole)
    found = {refusal.position: refusal.reason for refusal in refused.value.refusals}
    assert sorted(found) == [1, 2, 3, 4, 5, 6]
    for position, words in zip(
        sorted(found), ("cannot be safely converted", "safely", "enum", "NULL", "Constraint `few`", "overflow"), strict=True
    ):
        assert words in found[position], found
    assert numbers(server, table) == [], "the batch does not stand"
    assert server.execute("SELECT count() FROM system.tables WHERE name LIKE 'tidegate_check%'") == b"0\n"
    store.write(whole.without(found))
    assert rows_in(server, table) == [["new", "b", 7, "2001-01-02 12:04:05.000006000", "id-of-rides", 0, place] for place in (0, 7)]
    nothing = batch(8, {**good, "fixes": 300})
    assert store.write(nothing.without({8})) == store.progress([0])[0] == Progress("id-of-rides", 9, 9)
    store.close()


def test_a_time_that_the_server_cannot_show_is_refused(server: ClickHouseBench, table: str) -> None:
    """It would be kept, and told as another one."""
    store = store_of(server, table)
    store.prepare()
    with pytest.raises(RowsRefused) as refused:
        store.write(batch(0, {"at": "9999-12-31T00:00:00Z"}, {"at": "1900-01-01T00:00:00Z"}, {}, {"at": "1899-12-31T23:59:59Z"}))
    assert [refusal.position for refusal in refused.value.refusals] == [0, 3]
    store.close()


@pytest.mark.parametrize(
    ("made", "what", "fix"),
    [
        (f"fixes String, {PLACE}) {KEPT}", "column fixes of type String", "MODIFY COLUMN `fixes` Nullable(Int64)"),
        (f"fixes Float64, {PLACE}) {KEPT}", "column fixes of type Float64", "CAST in the query"),
        (f"fixes Int64 MATERIALIZED 1, {PLACE}) {KEPT}", "computes its column fixes", "another name"),
        (f"other Int64, {PLACE}) {KEPT}", "no column for fixes", "ADD COLUMN `fixes` Nullable(Int64)"),
        (f"fixes Int64) ENGINE = MergeTree ORDER BY fixes {WINDOW}", "no column for _topic_id, _partition, _seq", "`_seq` Int64"),
        (f"fixes Int64, {PLACE.replace('Int64', 'Int8')}) {KEPT}", "column _seq of type Int8", "Int64"),
        (f"fixes Int64, {PLACE}) {MADE}", "remembers 0 inserts", "MODIFY SETTING non_replicated_deduplication_window"),
        (f"fixes Int64, {PLACE}) ENGINE = ReplacingMergeTree ORDER BY _seq {WINDOW}", "engine ReplacingMergeTree", "ENGINE = MergeTree"),
        (f"fixes Int64, {PLACE}) ENGINE = Log", "engine Log", "ENGINE = MergeTree"),
    ],
)  # fmt: skip
def test_a_table_that_does_not_fit_is_refused_with_what_mends_it(
    server: ClickHouseBench, table: str, made: str, what: str, fix: str
) -> None:
    """Before anything starts, with the statement to run."""
    server.execute(f"CREATE TABLE kit.{table} ({made}")
    error = refusal_of(store_of(server, table, COLUMNS[1:2]))
    assert error.code == "TG-STORE-COLUMN"
    assert what in error.what
    assert fix in error.fix
    if error.fix.startswith("ALTER") or ": ALTER" in error.fix:
        server.execute(error.fix[error.fix.index("ALTER") :].partition("; or ")[0])
        store = store_of(server, table, COLUMNS[1:2])
        store.prepare()
        store.write(batch(0, {"fixes": 0}, {"fixes": 1}, {"fixes": 2}))
        assert numbers(server, table) == [0, 1, 2]


def test_names_that_cannot_be(server: ClickHouseBench, table: str) -> None:
    """A column of the query that is called as one of ours, and an order by what the query does not have."""
    assert "_seq" in refusal_of(store_of(server, table, (("_seq", "bigint"),))).what
    assert "order_by" in refusal_of(store_of(server, table, order_by=["train"])).what


def test_columns_are_added_if_the_settings_say_so(server: ClickHouseBench, table: str) -> None:
    """Those that were there keep their rows."""
    first = store_of(server, table, COLUMNS[:1])
    first.prepare()
    first.write(batch(0, {"car": "a"}))
    second = store_of(server, table, COLUMNS[:2], schema_evolution="add")
    second.check()
    assert "column for fixes" in refusal_of(store_of(server, table, COLUMNS[:2])).what
    second.prepare()
    second.write(batch(1, {"car": "b", "fixes": 1}))
    assert rows_in(server, table, "car, fixes") == [["a", None], ["b", 1]]


def test_a_batch_is_one_block_however_large(server: ClickHouseBench, table: str) -> None:
    """So it stands as a whole, and its token is that of all of it."""
    store = store_of(server, table, COLUMNS[1:2])
    store.prepare()
    values = pa.array([b'{"fixes":%d}' % number for number in range(300_000)], pa.binary())
    place = np.arange(len(values))
    store.write(Batch("id-of-rides", 0, 0, len(values), len(values), Rows(place, place, place, pa.nulls(len(values), pa.binary()), values)))
    assert server.execute(f"SELECT count(), sum(rows) FROM system.parts WHERE table = '{table}'") == b"1\t300000\n"


class Killed(Exception):
    """The writer is gone."""


def kill_at(point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the next writer die between two steps."""

    def die(passed: str) -> None:
        if passed == point:
            raise Killed

    monkeypatch.setattr(clickhouse, "pause_at", die)


def test_a_batch_that_stands_in_part_is_completed_after_any_time(
    server: ClickHouseBench, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of months gets a batch as one part for each; some are there, and the server has forgotten the token long ago."""
    columns = f"fixes Int64, at DateTime64(6), {PLACE}"
    server.execute(f"CREATE TABLE kit.{table} ({columns}) ENGINE = MergeTree PARTITION BY toYYYYMM(at) ORDER BY fixes {WINDOW}")
    store = store_of(server, table, (COLUMNS[1], COLUMNS[3]))
    store.prepare()
    server.execute(f"ALTER TABLE kit.{table} MODIFY SETTING non_replicated_deduplication_window = 10")
    kill_at("rows sent", monkeypatch)
    with pytest.raises(Killed):
        store.write(many(0, 20))
    monkeypatch.undo()
    assert store.progress([0]) == {0: Progress("id-of-rides", 0, 0, 20)}, "whoever goes on must repeat just this batch"
    server.execute(f"ALTER TABLE kit.{table} DELETE WHERE fixes >= 5 AND fixes < 15 SETTINGS mutations_sync = 2")
    for number in range(12):
        server.execute(f"INSERT INTO kit.{table} (fixes, at, _seq) SETTINGS async_insert = 0 VALUES ({number}, '2000-01-01', -1)")
    assert store.write(many(0, 7)).end == 20, "another end is not taken"
    assert store.write(many(0, 20)).position == 20
    assert [number for number in numbers(server, table) if number >= 0] == list(range(20))
    assert len(rows_in(server, table, "_seq", "WHERE _topic_id = 'id-of-rides'")) == 20
    store.close()


def test_rows_that_were_deleted_before_their_progress_moved_are_not_passed(
    server: ClickHouseBench, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server drops them as repeated: the job waits and says what brings them back."""
    store, ten = store_of(server, table, COLUMNS[1:2]), batch(0, *({"fixes": number} for number in range(10)))
    store.prepare()
    kill_at("rows sent", monkeypatch)
    with pytest.raises(Killed):
        store.write(ten)
    monkeypatch.undo()
    server.execute(f"ALTER TABLE kit.{table} DELETE WHERE fixes < 3 SETTINGS mutations_sync = 2")
    for _ in range(2):
        with pytest.raises(UnreachableError, match="DROP TABLE"):
            store.write(ten)
        store.close()
    assert store.progress([0]) == {0: Progress("id-of-rides", 0, 0, 10)}
    server.execute(f"DROP TABLE kit.{table}_tidegate_progress")
    store.close()
    assert store.write(ten).position == 10
    assert numbers(server, table) == list(range(10))
    store.close()


def test_statements_that_come_late_change_nothing(server: ClickHouseBench, table: str) -> None:
    """A writer that was held up sends what it had ready, long after others have written on and the server has forgotten the tokens."""
    stores = [store_of(server, table, (COLUMNS[1], COLUMNS[3])) for _ in range(2)]
    for store in stores:
        store.prepare()
    held_up, other = stores
    server.execute(f"ALTER TABLE kit.{table} MODIFY SETTING non_replicated_deduplication_window = 10")
    server.execute(f"ALTER TABLE kit.{table}_tidegate_progress MODIFY SETTING non_replicated_deduplication_window = 10")
    late = [many(0, 10), many(0, 15), many(10, 20)]
    for number in range(12):
        other.write(many(10 * number, 10 * number + 10))
    assert held_up._target is not None
    for each in late:
        statements = BatchStatements(held_up._target, "rides", each)
        rows = typed_columns(each.rows, held_up._context)
        for tried in (statements.note, statements.rows, statements.done):
            held_up._client.insert(tried, f"a new token {next(_number)}", rows if tried == statements.rows else None)
            assert other.progress([0])[0] == Progress("id-of-rides", 120, 120)
        assert held_up.write(each) == Progress("id-of-rides", 120, 120)
    assert numbers(server, table) == list(range(120))
    for store in stores:
        store.close()


def test_two_writers_at_the_same_moment(server: ClickHouseBench, table: str) -> None:
    """They begin at one place with different ends: one of them is written, by either; the other finds that."""
    stores = [store_of(server, table, (COLUMNS[1], COLUMNS[3])) for _ in range(3)]
    for store in stores:
        store.prepare()

    def write(store: ClickHouseStore, length: int) -> None:
        position = 0
        while position < 100:
            known = store.progress([0]).get(0, Progress("id-of-rides", 0, 0))
            position = store.write(many(known.position, known.end or known.position + length)).position

    threads = [threading.Thread(target=write, args=(store, 7 + number)) for number, store in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    standing = stores[0].progress([0])[0].position
    assert numbers(server, table) == list(range(standing))
    for store in stores:
        store.close()


def test_of_notes_that_begin_at_one_place_one_counts(server: ClickHouseBench, table: str) -> None:
    """At the same moment, and long after the server has forgotten the token of the first."""
    stores = [store_of(server, table, COLUMNS[1:2]) for _ in range(2)]
    for store in stores:
        store.prepare()
    target = stores[0]._ready
    for partition in range(15):
        batches = [replace(many(0, 10 + number), partition=partition) for number in range(2)]
        notes = [BatchStatements(target, "rides", each) for each in batches]
        threads = [
            threading.Thread(target=store._client.insert, args=(each.note, each.note_token))
            for store, each in zip(stores, notes, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    query = "SELECT count(), uniqExact(`partition`), max(version) FROM kit.{}_tidegate_progress"
    assert server.execute(query.format(table)) == b"15\t15\t1\n"
    noted = stores[0].progress([0])[0].end
    other = BatchStatements(target, "rides", many(0, 50))
    stores[1]._client.insert(other.note, f"a new token {next(_number)}")
    assert stores[0].progress([0])[0].end == noted
    assert server.execute(query.format(table)) == b"15\t15\t1\n"
    for store in stores:
        store.close()


def test_of_inserts_that_overlap_the_server_keeps_one(server: ClickHouseBench, table: str) -> None:
    """Both find that no row of the batch stands, and both add all of them: the token tells that they are the same."""
    stores = [store_of(server, table, COLUMNS[1:2]) for _ in range(2)]
    for store in stores:
        store.prepare()
    values = pa.array([b'{"fixes":%d}' % number for number in range(20_000)], pa.binary())
    for start in range(0, 200_000, len(values)):
        place = np.arange(start, start + len(values))
        end = start + len(values)
        whole = Batch("id-of-rides", 0, start, end, end, Rows(place, place, place, pa.nulls(len(values), pa.binary()), values))
        writers = [threading.Thread(target=store.write, args=(whole,)) for store in stores]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert stores[0].progress([0])[0].position == end
    assert server.execute(f"SELECT count(), uniqExact(_seq), max(_seq) FROM kit.{table}") == b"200000\t200000\t199999\n"
    for store in stores:
        store.close()


def test_all_is_copied_again_once_the_progress_is_dropped(server: ClickHouseBench, table: str) -> None:
    """Rows that stand are not doubled; those that were deleted come back, though the server remembers their tokens."""
    store, ten = store_of(server, table, COLUMNS[1:2]), batch(0, *({"fixes": number} for number in range(10)))
    store.prepare()
    store.write(ten)
    server.execute(f"DELETE FROM kit.{table} WHERE fixes < 4")
    server.execute(f"DROP TABLE kit.{table}_tidegate_progress")
    store.close()
    assert store.write(ten).position == 10
    assert numbers(server, table) == list(range(10))
    server.execute(f"DELETE FROM kit.{table}_tidegate_progress WHERE 1")
    with pytest.raises(UnreachableError) as waits:
        store.write(ten)
    assert f"DROP TABLE `kit`.`{table}_tidegate_progress`" in waits.value.what
    assert numbers(server, table) == list(range(10)), "rows that are deleted by hand from the progress are no harm"
    server.execute(f"DROP TABLE kit.{table}_tidegate_progress")
    store.close()
    store.write(ten)
    server.execute(f"DROP TABLE kit.{table}")
    error = refusal_of(store_of(server, table, COLUMNS[1:2]))
    assert error.code == "TG-STORE-LOST"
    server.execute(error.fix[error.fix.index("DROP TABLE") :])
    store.close()
    store.prepare()
    assert store.progress([0]) == {}


def test_what_is_wrong_about_the_user_is_said_without_the_password(server: ClickHouseBench, table: str) -> None:
    """In the server's words; no message and no settings that are shown have the password."""
    error = refusal_of(store_of(server, table, password="wrong-password"))
    assert error.code == "TG-STORE-REFUSED"
    assert "Authentication failed" in error.what
    assert "wrong-password" not in repr(error.as_dict()) + repr(store_of(server, table, password="wrong-password")._settings)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"url": "ch:8123"}, "https://host"),
        ({"url": "http://me:hidden-one@ch/"}, "settings of their own"),
        ({"url": "http://ch/", "ca_file": "ca.pem"}, "ca_file means nothing without TLS"),
    ],
)
def test_wrong_settings_are_refused(given: dict[str, str], problem: str) -> None:
    """With what to write, and without a password that was in the wrong place."""
    output = {"topic": "rides", "clickhouse": given}
    with pytest.raises((SettingError, ValueError)) as refused:
        Settings.model_validate({"outputs": {"rides": output}})
    assert problem in str(refused.value)
    assert "hidden-one" not in str(refused.value)


def test_tls_with_certificates_on_both_sides(server: ClickHouseBench, table: str, tmp_path: Path) -> None:
    """The authority must be the one that is named."""
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    shown, client = authority.issue("server"), authority.issue("client")
    front = TlsFront(server.port or 0, shown, authority.ca_file)
    files = {"certificate_file": str(client.certificate_file), "key_file": str(client.key_file)}
    url = f"https://127.0.0.1:{front.port}"
    store = store_of(server, table, url=url, ca_file=str(authority.ca_file), **files)
    store.prepare()
    store.close()
    error = refusal_of(store_of(server, table, url=url, ca_file=str(stranger.ca_file), **files))
    assert (error.code, "ca_file" in error.fix) == ("TG-STORE-REFUSED", True)
    front.close()


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (503, b"upstream is away", UnreachableError),
        (500, b"Code: 241. DB::Exception: Memory limit exceeded (MEMORY_LIMIT_EXCEEDED)", UnreachableError),
        (500, b"Code: 252. DB::Exception: Too many parts (TOO_MANY_PARTS)", UnreachableError),
        (404, b"no such page", StoreError),
        (302, b"", StoreError),
        (400, b"what?", StoreError),
        (500, b"Code: 497. DB::Exception: writer: Not enough privileges. (ACCESS_DENIED)", StoreError),
    ],
)
def test_what_answers_is_a_server_in_trouble_or_none_of_clickhouse(status: int, body: bytes, expected: type[Exception]) -> None:
    """What may last is tried again; what only the user can mend stops the job, with the words."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"] or 0))
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Be silent."""

    answering = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=answering.serve_forever, daemon=True).start()
    context = StoreContext("rides", STREAM, COLUMNS)
    settings = Settings.model_validate(
        {"outputs": {"rides": {"topic": "t", "clickhouse": {"url": f"http://127.0.0.1:{answering.server_port}"}}}}
    )
    store = ClickHouseStore(context, settings.outputs["rides"].clickhouse)
    with pytest.raises(expected) as raised:
        store.prepare()
    assert body.decode().partition("Exception: ")[2][:10] in str(raised.value)
    answering.shutdown()
    answering.server_close()
