"""Files and numbers that a user names have bounds: a file without end, or a number beyond all sense, is an error in words."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path

import pytest
from support.stack.commands import run_command

from ingest.commands.explain import parse_places
from ordering.errors import SettingError
from ordering.ticks import DURATION_US_MAX, TickRangeError, parse_duration
from tidegate.basics.bounded_files import MIB, FileTooLarge, check_regular, read_file_bytes, read_file_text, read_lines
from tidegate.platform.settings.load import load

ENDLESS = Path("/dev/zero")
TABLES = """
[inputs.a]
timestamp_by = "at"
{extra}
"""


def tidegate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program in *folder*."""
    return run_command(folder, *arguments)


def test_reading_ends_at_the_bound(tmp_path: Path) -> None:
    """A file of exactly the bound is read, one byte more is refused; so is what has no end."""
    file = tmp_path / "file"
    file.write_bytes(b"a\r\n" * 10)
    assert read_file_bytes(file, 30) == file.read_bytes()
    assert read_file_text(file, 30) == "a\n" * 10
    for path, bound in ((file, 29), (ENDLESS, MIB)):
        with pytest.raises(FileTooLarge, match="it is larger than"):
            read_file_bytes(path, bound)
    with pytest.raises(FileTooLarge):
        list(read_lines(io.BytesIO(b"short\n" + b"x" * 100), "file", 50))
    check_regular(file, 30)
    with pytest.raises(OSError, match="device or a pipe"):
        check_regular(ENDLESS, MIB)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("lint", "/dev/zero"), "TG-QUERY-FILE"),
        (("plan", "/dev/zero"), "TG-QUERY-FILE"),
        (("local", "/dev/zero", "--input", "a=a.ndjson"), "TG-QUERY-FILE"),
        (("config", "--config", "/dev/zero"), "TG-SETTING-FILE"),
        (("watermarks", "--once", "--set", "redis.password=file:/dev/zero"), "TG-SETTING-UNSET"),
        (("verify", "a", "--check", "/dev/zero"), "TG-VERIFY-KEY"),
        (("plan", "q.sql", "--config", "reference.toml"), "TG-REFERENCE-FILE"),
        (("test", "cases"), "larger than"),
        (("produce", "/dev/zero", "t"), "larger than"),
    ],
)
def test_no_command_reads_without_end(arguments: tuple[str, ...], code: str, tmp_path: Path) -> None:
    """Scripts, settings, secrets, references, attestations, cases: each is refused in words."""
    (tmp_path / "q.sql").write_text("SELECT a.k, z.x INTO o FROM a TIMESTAMP BY at JOIN zones z ON a.k = z.k")
    (tmp_path / "a.ndjson").write_text("{}\n")
    (tmp_path / "reference.toml").write_text(TABLES.format(extra='[references.zones]\npath = "/dev/zero"\nformat = "ndjson"'))
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "query.sql").symlink_to("/dev/zero")
    (tmp_path / "cases" / "expected.error").symlink_to("/dev/zero")
    told = tidegate(tmp_path, *arguments)
    assert told.returncode not in (0, -9)
    assert code in told.stdout + told.stderr
    assert "Traceback" not in told.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("topic", "create", "t", "--partitions", "999999999999"),
        ("topic", "create", "t", "--partitions", "9" * 5_000),
        ("topic", "create", "t", "--replication-factor", "999999999999"),
        ("skip", "a", "a-0@5", "--until", "9" * 25, "--why", "x"),
        ("explain", "a", f"a-0@{'9' * 5_000}"),
        ("verify", "a", "--sample", "9" * 30),
        ("up", "--heap", "much"),
        ("up", "--kafka-port", "65536"),
        ("produce", "--sample", "t", "--for", "9" * 5_000 + "s"),
        ("config", "--config", "digits.toml"),
        ("config", "--config", "deep.toml"),
        ("config", "--set", "kafka.bootstrap=h:99999"),
        ("config", "--set", "redis.url=redis://h:99999/0"),
        ("config", "--set", "inputs.a.output_partitions=999999999999"),
        ("config", "--set", f"inputs.a.max_events_per_batch={'9' * 40}"),
        ("config", "--set", f"inputs.a.max_bytes_per_batch={'9' * 5_000}"),
        ("config", "--set", "inputs.a.prefetch_bytes=999999999999GiB"),
        ("config", "--set", "spark.shuffle_partitions=999999999999"),
        ("config", "--set", f"inputs.a.late={'9' * 5_000}s"),
    ],
    ids=lambda arguments: " ".join(arguments)[:50],
)
def test_every_number_has_bounds(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """Beyond them is a usage error or one of settings, with the bound; no server is asked first."""
    (tmp_path / "tidegate.toml").write_text(TABLES.format(extra=""))
    (tmp_path / "digits.toml").write_text(f"[metrics]\nport = {'9' * 5_000}\n")
    (tmp_path / "deep.toml").write_text(f"a = {'[' * 5_000}{']' * 5_000}\n")
    told = tidegate(tmp_path, *arguments)
    assert told.returncode == 2, told.stderr
    assert "Traceback" not in told.stderr


def test_what_is_within_the_bounds_is_read() -> None:
    """Also at the bound itself."""
    assert parse_duration("3652059d") == DURATION_US_MAX
    with pytest.raises(TickRangeError):
        parse_duration("1" * 30 + "s")
    assert parse_places([f"a-b-{7}@{10**17}"]) == {("a-b", 7): [10**17]}
    with pytest.raises(SettingError):
        parse_places([f"a-0@{10**19}"])
    settings = load(None, {"inputs.a.topic": "a", "inputs.a.output_partitions": "100000", "inputs.a.prefetch_bytes": "1048576GiB"}, env={})
    assert settings.input("a").output_partitions == 100_000
