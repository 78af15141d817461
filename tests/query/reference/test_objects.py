"""Reference data on an object store: read like files of a folder, taken up while a job runs, and bound to its checkpoint like them."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from structlog.testing import capture_logs
from support.object_server import ObjectServer, run_object_server
from typer.testing import CliRunner

from ordering.errors import RefusedError, TidegateError, UnreachableError
from ordering.ticks import parse_tick
from query.commands.local import local
from query.reference.files import load_reference
from query.reference.objects import _errors_translated
from query.reference.tables import ReferenceTable
from query.reference.watch import LOOK_AT_STORE_S, ReferenceWatch, TakenVersions, check_unchanged, take_up_versions
from tidegate.platform.settings.tables.references import ReferenceSettings
from tidegate.platform.stack.embedded import free_port

pytestmark = pytest.mark.heavy
_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
_app.command()(local)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    """A server, and credentials for it in the environment."""
    with run_object_server(tmp_path_factory.mktemp("objects") / "log") as made:
        yield made


@pytest.fixture
def bucket(server: ObjectServer) -> str:
    """A bucket of this test."""
    return server.new_bucket()


def settings(**given: object) -> ReferenceSettings:
    """Return the table ``r``."""
    return ReferenceSettings.model_validate({"__name__": "r", **given})


def parquet_of(**columns: list[object]) -> bytes:
    """Return a Parquet file."""
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


FILES = {
    "a.csv": b'\xef\xbb\xbfk,n\r\n1,x\r\n2,"y\nz"\r\n',
    "2001/01/02/a.csv": b"k,n\n3,x\n",
    "2001/01/03/a.csv": b"k,n\n4,x\n",
    "r-2001-01-02T03-04.ndjson": b'{"k":1}\r\n\n{"k":2}',
    "r-2001-01-02T03-05.ndjson": b'{"k":5}\n',
    "a.parquet": parquet_of(k=[1, 2], n=["x", None]),
}
GIVEN: list[dict[str, object]] = [
    {"path": "{}a.csv"},
    {"path": "{}a.parquet"},
    {"path": "{}{{date}}/a.csv"},
    {"path": "{}r-{{date}}T{{time}}.ndjson", "fields": {"k": "bigint"}},
    {"effective": {"2001-01-02T00:00:00Z": "{}a.csv", "2001-01-03T00:00:00Z": "{}a.parquet"}},
]


def placed(given: object, prefix: str, options: str) -> object:
    """Return settings with every path below a folder or URL."""
    if isinstance(given, dict):
        return {name: placed(value, prefix, options) for name, value in given.items()}
    return f"{given.format(prefix)}{options}" if isinstance(given, str) and given.startswith("{}") else given


def content_of(table: ReferenceTable) -> object:
    """Return what a table says."""
    return table.schema.fields, [(version.effective_us, version.values.to_pylist()) for version in table.versions]


@pytest.mark.parametrize("given", GIVEN)
def test_objects_are_read_like_the_files_of_a_folder(server: ObjectServer, bucket: str, tmp_path: Path, given: dict[str, object]) -> None:
    """Each format, one object or a version for each name of a pattern, also below folders."""
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
        server.put(f"{bucket}/deep/{name}", content)
    url, _, options = server.url(f"{bucket}/deep/").partition("?")
    on_store, in_folder = (
        load_reference(ReferenceSettings.model_validate({"__name__": "r", **given_here}))
        for given_here in (placed(given, url, f"?{options}"), placed(given, f"{tmp_path}/", ""))
        if isinstance(given_here, dict)
    )
    assert content_of(on_store) == content_of(in_folder)
    assert sum(len(version.values) for version in on_store.versions) >= 2


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (b"k,n\n1\n", "r.csv", "1 values for 2 columns"),
        (b"\xff\xfe", "r.csv", "cannot be read"),
        (None, "r.csv", "cannot be read"),
        (b"x", "r.txt", "stands for no format"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_url(
    server: ObjectServer, bucket: str, content: bytes | None, name: str, message: str
) -> None:
    """Without the options behind it."""
    if content is not None:
        server.put(f"{bucket}/{name}", content)
    with pytest.raises(RefusedError, match=message) as refused:
        load_reference(settings(path=server.url(f"{bucket}/{name}")))
    assert refused.value.where.startswith(f"s3://{bucket}/{name}")
    assert "endpoint" not in str(refused.value)


def test_a_bucket_that_is_not_there_and_a_store_that_is_away_differ(server: ObjectServer) -> None:
    """The one is the user's to mend, the other may pass."""
    with pytest.raises(RefusedError) as refused:
        load_reference(settings(path=server.url("absent/r-{date}.csv")))
    assert refused.value.code == "TG-REFERENCE-FILE"
    for name in ("r-{date}.csv", "r.csv"):
        with pytest.raises(UnreachableError) as unreachable:
            load_reference(settings(path=server.url(f"bucket/{name}", free_port())))
        assert unreachable.value.code == "TG-REFERENCE-UNREACHABLE"


def test_credentials_that_are_not_there_are_told_by_the_url() -> None:
    """The client of Azure asks for them when it is first used, and has an error of its own for it."""
    with pytest.raises(RefusedError) as refused, _errors_translated("abfs://c@account.dfs.core.windows.net/rates"):
        raise pa.ArrowException("Failed to get token from DefaultAzureCredential")
    assert (refused.value.code, refused.value.where) == ("TG-REFERENCE-FILE", "abfs://c@account.dfs.core.windows.net/rates")
    assert "from the environment of the job" in str(refused.value.fix)


class Watched:
    """A run with a table on the store, and its watch, looked through at instants of the test's own."""

    def __init__(self, checkpoint: Path, url: str) -> None:
        self.checkpoint, self.now_s = checkpoint, 0.0
        self.settings = {"r": settings(path=url)}
        take_up_versions(checkpoint, self.settings)
        self.watch = ReferenceWatch(checkpoint, self.settings, lambda: self.now_s)

    def look(self) -> int:
        """Look, wait until the thread is done, and return what is known then."""
        self.now_s += LOOK_AT_STORE_S
        self.watch.look()
        until(lambda: not self.watch.is_looking)
        return self.watch.look()

    def begins(self, added: int) -> list[int]:
        """From when on the versions are valid that a batch knows."""
        taken = TakenVersions.read(self.checkpoint)
        assert taken is not None
        return [each.effective_us for each in taken.tables(self.settings, added)["r"].versions]


def until(holds: Callable[[], bool], seconds: float = 60) -> None:
    """Return once it holds."""
    deadline_s = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline_s, "it takes too long"
        time.sleep(0.02)


def days(*numbers: int) -> list[int]:
    """The instants at which days begin."""
    return [parse_tick(f"2001-01-0{number}") for number in numbers]


def test_a_new_object_is_taken_up_and_its_copy_counts_for_ever(server: ObjectServer, bucket: str, tmp_path: Path) -> None:
    """Whatever becomes of the object: what was found is found again. One that cannot be read is told, and waited for."""
    server.put(f"{bucket}/r-2001-01-01.csv", b"k\n1\n")
    run = Watched(tmp_path / "checkpoint", server.url(f"{bucket}/r-{{date}}.csv"))
    assert run.look() == 0
    server.put(f"{bucket}/r-2001-01-02.csv", b"k\n2\n")
    assert run.look() == 1
    server.put(f"{bucket}/r-2001-01-03.csv", b"k,n\n3\n")
    with capture_logs() as logs:
        assert [run.look(), run.look()] == [1, 1]
    assert [(each["code"], each["file"]) for each in logs] == [("TG-REFERENCE-RECORD", f"s3://{bucket}/r-2001-01-03.csv")]
    server.put(f"{bucket}/r-2001-01-03.csv", b"k\n3\n")
    assert run.look() == 2
    server.delete(f"{bucket}/r-2001-01-02.csv")
    assert run.look() == 2
    check_unchanged(run.checkpoint, run.settings)
    assert take_up_versions(run.checkpoint, run.settings) == TakenVersions.read(run.checkpoint)
    assert (run.begins(0), run.begins(1), run.begins(2)) == (days(1), days(1, 2), days(1, 2, 3))


def test_an_object_that_was_replaced_is_told_and_refused_at_the_next_start(server: ObjectServer, bucket: str, tmp_path: Path) -> None:
    """By its bytes: the same ones written again change nothing."""
    server.put(f"{bucket}/r-2001-01-01.csv", b"k\n1\n")
    run = Watched(tmp_path / "checkpoint", server.url(f"{bucket}/r-{{date}}.csv"))
    run.look()
    server.put(f"{bucket}/r-2001-01-01.csv", b"k\n1\n")
    with capture_logs() as logs:
        run.look()
        assert logs == []
        check_unchanged(run.checkpoint, run.settings)
        server.put(f"{bucket}/r-2001-01-01.csv", b"k\n17\n")
        run.look()
        run.look()
    assert [(each["code"], each["file"]) for each in logs] == [("TG-REFERENCE-CHANGED", f"s3://{bucket}/r-2001-01-01.csv")]
    with pytest.raises(TidegateError) as changed:
        check_unchanged(run.checkpoint, run.settings)
    assert (changed.value.code, changed.value.where) == ("TG-REFERENCE-CHANGED", f"s3://{bucket}/r-2001-01-01.csv")


def test_a_store_that_is_away_holds_up_nobody(server: ObjectServer, tmp_path: Path) -> None:
    """A look returns at once and says why nothing new is found; when the store answers again, what came meanwhile is taken up."""
    own = ObjectServer(tmp_path / "log")
    own.make_bucket("own")
    own.put("own/r-2001-01-01.csv", b"k\n1\n")
    run = Watched(tmp_path / "checkpoint", own.url("own/r-{date}.csv"))
    own.stop()
    with capture_logs() as logs:
        run.now_s += LOOK_AT_STORE_S
        began_s = time.monotonic()
        assert run.watch.look() == 0
        assert time.monotonic() - began_s < 0.5
        until(lambda: not run.watch.is_looking)
        assert [each["code"] for each in logs] == ["TG-REFERENCE-UNREACHABLE"]
        # It has forgotten its objects: as they were, and one more.
        own.start()
        own.make_bucket("own")
        own.put("own/r-2001-01-01.csv", b"k\n1\n")
        own.put("own/r-2001-01-02.csv", b"k\n2\n")
        assert run.look() == 1
    own.stop()
    assert run.begins(1) == days(1, 2)


def test_a_script_on_files_looks_up_in_an_object(server: ObjectServer, bucket: str, tmp_path: Path) -> None:
    """``tidegate local --reference NAME=s3://...``."""
    server.put(f"{bucket}/r.csv", b"k,name\n1,one\n")
    (tmp_path / "q.sql").write_text("SELECT e.k AS k, r.name AS name INTO o FROM e TIMESTAMP BY at JOIN r ON e.k = r.k")
    (tmp_path / "e.ndjson").write_text('{"at":"2001-01-01T00:00:00Z","k":1}\n')
    told = CliRunner().invoke(
        _app, [str(tmp_path / "q.sql"), "--input", f"e={tmp_path / 'e.ndjson'}", "--reference", f"r={server.url(f'{bucket}/r.csv')}"]
    )
    assert told.exit_code == 0, (told.output, told.exception)
    assert '"name":"one"' in told.stdout
