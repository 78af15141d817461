"""Whether a job works, over HTTP: live, ready, and what it waits for."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

import structlog
from prometheus_client.parser import text_string_to_metric_families

from ordering.errors import UnreachableError
from tidegate.platform.metrics.health import LIVE_WITHIN_S, Health
from tidegate.platform.metrics.job_metrics import Metrics
from tidegate.platform.observe.progress_store import ProgressPublisher
from tidegate.platform.observe.recovery_report import POLL_EVERY_S, Recovery, RecoveryKind
from tidegate.platform.observe.recovery_watch import RecoveryWatch
from tidegate.platform.settings.tables.redis import RedisSettings
from tidegate.platform.stack.embedded import free_port

NO_CORES = "waiting for a Spark worker: 0 cores free, 2 wanted"


def fetch(port: int, path: str) -> tuple[int, str]:
    """What a health check sees."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_job_is_ready_while_it_works_and_says_why_not() -> None:
    """Starting, waiting and failed are not ready; a job behind its input works. Metrics say the same."""
    port = free_port()
    metrics = Metrics(port)
    assert fetch(port, "/ready") == (503, "starting\n")
    assert fetch(port, "/live") == (200, "live\n")
    for states, code in (
        ({"ingest a": ("starting", "")}, 503),
        ({"ingest a": ("replaying", "")}, 200),
        ({"ingest a": ("live", ""), "ingest b": ("waiting", NO_CORES)}, 503),
        ({"ingest a": ("live", ""), "ingest b": ("failed", "TG-TOPIC-MISSING")}, 503),
        ({"ingest a": ("live", ""), "ingest b": ("live", "")}, 200),
    ):
        metrics.set_jobs(states)
        found, text = fetch(port, "/ready")
        assert found == code, text
        assert text.splitlines() == [f"{name}: {state}{f': {why}' if why else ''}" for name, (state, why) in states.items()]
    metrics.set_executors(2, 1)
    families = {family.name: family for family in text_string_to_metric_families(fetch(port, "/metrics")[1])}
    states_of_b = {
        each.labels["state"]: each.value for each in families["tidegate_job_state"].samples if each.labels["job_name"] == "ingest b"
    }
    assert states_of_b == {"starting": 0, "replaying": 0, "live": 1, "waiting": 0, "failed": 0}
    assert [families[f"tidegate_executors_{name}"].samples[0].value for name in ("wanted", "held")] == [2, 1]
    assert set(families["tidegate_build_info"].samples[0].labels) == {"version", "spark", "python"}


def test_a_loop_that_hangs_is_not_live_and_not_ready() -> None:
    """A start may take long; once the loop turns, it turns about once a second."""
    now_s = 0.0
    health = Health(lambda: now_s)
    now_s = 10 * LIVE_WITHIN_S
    assert health.live()[0]
    health.turn({"query a": ("live", "")})
    assert health.ready()[0]
    now_s += LIVE_WITHIN_S + 1
    assert health.live() == (False, f"the driver's loop has not turned for {LIVE_WITHIN_S + 1:.0f} s")
    assert not health.ready()[0]


def test_what_a_job_waits_for_is_logged_once_and_published(tmp_path: Path) -> None:
    """Spark's workers and Kafka: a warning when it begins, a line when it is over, and the state of the job meanwhile."""
    workers, answers = [NO_CORES, NO_CORES, "", ""], ["no broker answers", "", "", ""]

    def ask(_: object) -> dict[tuple[str, int], int]:
        raise UnreachableError("no broker answers", code="TG-KAFKA-UNREACHABLE")

    publisher = ProgressPublisher(RedisSettings(), "t")
    with structlog.testing.capture_logs() as logged:
        recovery = Recovery(RecoveryKind.NEW, {("a", 0): 10}, {("a", 0): 10})
        watch = RecoveryWatch(recovery, ask, publisher, structlog.get_logger(), {"Spark": lambda: workers[0]})
        seen, lines = [], []
        while workers:
            watch._poller._failure = answers.pop(0)
            lines.append(watch.poll())
            seen.append((watch.state, watch.waits_for))
            workers.pop(0)
    assert seen == [("waiting", f"{NO_CORES}; waiting for Kafka: no broker answers"), ("waiting", NO_CORES), ("live", ""), ("live", "")]
    assert lines == [seen[0][1], NO_CORES, *["no batch yet, 0 records wait"] * 2]
    said = [(each["log_level"], each["event"]) for each in logged]
    assert said == [
        ("warning", NO_CORES),
        ("warning", "waiting for Kafka: no broker answers"),
        ("info", "waits for Kafka no longer"),
        ("info", "waits for Spark no longer"),
    ]
    assert json.dumps(publisher._pending.job["waits_for"]) == '""'
    watch.advance({("a", 0): 10})
    assert "no batch yet" not in watch.line


def test_only_answers_count_as_time_in_which_brokers_answered() -> None:
    """Each stands for the pause before it: what is missing in a topic cannot come while its brokers are away."""
    recovery = Recovery(RecoveryKind.NEW, {("a", 0): 10}, {("a", 0): 10})
    watch = RecoveryWatch(recovery, lambda _: {}, ProgressPublisher(RedisSettings(), "t"), structlog.get_logger())
    for answers in ([], [{("a", 0): 11}], [], [{("a", 0): 12}]):
        watch._poller._answers.extend(answers)
        watch.poll()
    assert (watch.answered_s, watch.catch_up.ends) == (2 * POLL_EVERY_S, {("a", 0): 12})
