"""What a job leaves outside of its checkpoint: its user's alone, and gone with it, or at the next start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ordering.errors import TidegateError
from tidegate.platform.spark.launch.private_folder import PREFIX, RESULTS_UMASK, make_private_folder

JOB = """
import sys
from pathlib import Path
from tidegate.platform.spark.launch.private_folder import make_private_folder
folder = make_private_folder(Path(sys.argv[1]))
(folder / "inner").mkdir()
(folder / "inner" / "spilled").write_text("a payload")
print(folder, flush=True)
sys.stdin.read()
"""


def start_job(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    """Start a process that has a private folder in *parent*; return both."""
    job = subprocess.Popen([sys.executable, "-c", JOB, str(parent)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert job.stdout is not None
    return job, Path(job.stdout.readline().strip())


def test_a_folder_is_its_user_s_alone_and_goes_with_its_job(tmp_path: Path) -> None:
    """Whatever the umask; at an end of its own everything in it goes too."""
    job, folder = start_job(tmp_path)
    assert folder.stat().st_mode & 0o777 == 0o700
    job.communicate()
    assert not folder.exists()


def test_what_a_killed_job_has_left_the_next_one_removes_and_nothing_else(tmp_path: Path) -> None:
    """A running job's folder stays, and so does what only bears the name: a file, a link, a folder that others can read."""
    killed, left = start_job(tmp_path)
    running, kept = start_job(tmp_path)
    killed.kill()
    killed.wait()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (elsewhere / "data").touch()
    (tmp_path / f"{PREFIX}link").symlink_to(elsewhere)
    (tmp_path / f"{PREFIX}file").touch()
    (tmp_path / f"{PREFIX}open").mkdir(mode=0o755)
    assert (left / "inner" / "spilled").exists()
    next_job, own = start_job(tmp_path)
    assert not left.exists()
    assert {path.name for path in tmp_path.iterdir()} == {
        "elsewhere",
        *(f"{PREFIX}{kind}" for kind in ("link", "file", "open")),
        kept.name,
        own.name,
    }
    assert (elsewhere / "data").exists()
    for job in (running, next_job):
        job.communicate()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_somebody_else_s_folder_is_left_alone(tmp_path: Path) -> None:
    """Even by root: it may be that of a job that this process does not see."""
    other = tmp_path / f"{PREFIX}other"
    other.mkdir(mode=0o700)
    os.chown(other, 12_345, 12_345)
    make_private_folder(tmp_path)
    assert other.exists()


def test_jobs_that_start_at_once_do_not_take_each_other_s_folders(tmp_path: Path) -> None:
    """Each looks for left-overs while the others make their folders."""
    jobs = [start_job(tmp_path) for _ in range(4)]
    assert len({folder for _, folder in jobs}) == 4
    assert all((folder / "inner" / "spilled").exists() for _, folder in jobs)
    for job, _ in jobs:
        job.communicate()


def test_a_place_where_no_folder_can_be_made_is_named(tmp_path: Path) -> None:
    """With the error of a start that fails."""
    with pytest.raises(TidegateError) as refusal:
        make_private_folder(tmp_path / "missing")
    assert refusal.value.code == "TG-SPARK-START"
    assert refusal.value.where == str(tmp_path / "missing")


def test_files_of_a_job_are_private_and_results_as_the_user_wants_them(tmp_path: Path) -> None:
    """The umask of the driver and its children; workers take up the one before."""
    program = (
        "import os, pathlib; from tidegate.platform.spark.launch.private_folder import keep_files_private, share_results\n"
        "os.umask(0o027); keep_files_private(); pathlib.Path('own').touch(); share_results(); pathlib.Path('result').touch()"
    )
    environment = {name: value for name, value in os.environ.items() if name != RESULTS_UMASK}
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "result").stat().st_mode & 0o777 == 0o640
