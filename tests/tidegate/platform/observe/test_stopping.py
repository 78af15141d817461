"""A signal that asks a job to stop while it starts is never forgotten, wherever its exception is raised."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from py4j.protocol import Py4JError

from ordering.errors import UnreachableError
from tidegate.platform.observe.console import report_errors, run_stoppable
from tidegate.platform.observe.stopping import Stop, StoppedWhileStarting, stop_on_signal, stop_while_starting
from tidegate.platform.spark.driver import DrivenQuery, StreamingQuery, drive


class _SignalsWhenFreed:
    """Python drops what is raised while it frees an object, as in the callbacks of imports."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __del__(self) -> None:
        os.kill(os.getpid(), self._number)
        # The handler runs between two instructions of this method.
        for _ in range(1000):
            pass


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_whose_exception_is_dropped_stops_the_start_all_the_same(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    """No later than where the job's own work would begin; and no traceback is printed for it."""
    hook = sys.unraisablehook

    def start() -> None:
        with stop_while_starting():
            freed = _SignalsWhenFreed(number)
            del freed
            gc.collect()
            with stop_on_signal():
                raise AssertionError("the work must not begin")

    with pytest.raises(StoppedWhileStarting):
        start()
    assert "Traceback" not in capsys.readouterr().err
    assert sys.unraisablehook is hook


@pytest.mark.parametrize("error", [UnreachableError("no broker answers"), Py4JError("the JVM is gone")], ids=["ours", "strange"])
def test_an_error_in_the_place_of_the_stop_is_not_reported(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    """Libraries that clean up by ``except:`` may raise an error of their own."""

    def job() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except BaseException:
            raise error from None

    with pytest.raises(SystemExit) as ended:
        run_stoppable(report_errors(job), is_job=True)
    assert ended.value.code == 0
    assert str(error) not in capsys.readouterr().err


def test_another_start_of_the_process_knows_nothing_of_a_signal_before() -> None:
    """What one start has seen does not stop the next."""
    with pytest.raises(StoppedWhileStarting), stop_while_starting():
        os.kill(os.getpid(), signal.SIGTERM)
    with stop_while_starting(), stop_on_signal() as stop:
        assert not stop.is_asked


ENDED_RUN = """
import signal, sys
# A shell ignores SIGINT for what it runs in the background, and Python then leaves it so.
signal.signal(signal.SIGINT, signal.default_int_handler)
from tidegate.basics.early_stop import end_on_signal
end_on_signal()
from tidegate.platform.observe.console import run_stoppable
from tidegate.platform.observe.stopping import stop_on_signal

def program():
    with stop_on_signal():
        pass
    signal.raise_signal(int(sys.argv[2]))  # by os.kill another thread may get it, and later
    raise SystemExit(3)

run_stoppable(program, is_job=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_after_the_run_is_not_one_of_the_start(number: int) -> None:
    """While Spark is closed, say: a run that has failed would otherwise end with exit code 0, and be told as never begun."""
    ended = subprocess.run(
        [sys.executable, "-c", ENDED_RUN, "ingest", str(int(number))], capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == -number, ended.stderr
    assert "while it was starting" not in ended.stderr


def _start_in_a_jvm_that_ends(number: int) -> Callable[[], StreamingQuery]:
    def start() -> StreamingQuery:
        os.kill(os.getpid(), number)
        raise Py4JError("An error occurred: java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext")

    return start


def test_a_jvm_that_still_answers_that_its_spark_is_stopped_is_no_failure(tmp_path: Path) -> None:
    """The signal of a service manager reaches the JVM too, whose Spark is stopped before the JVM is gone."""
    with pytest.raises(StoppedWhileStarting), stop_on_signal() as stop:
        drive([DrivenQuery("q", _start_in_a_jvm_that_ends(signal.SIGTERM), tmp_path)], stop)
    assert not (tmp_path / "failure.log").exists()
    assert isinstance(stop, Stop)
