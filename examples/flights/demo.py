"""
The demo: a week of real flights, produced in the order of their arrival, put in order, counted and averaged by four
jobs that know of each other only through topics - and checked, byte for byte, against an independent computation.
The jobs are stages of one process, as `tidegate run` runs them, or processes of their own (--apart): the same bytes.

The queries also fill Delta Lake tables, which are folders of Parquet files, and tables of a PostgreSQL if its URL is given.

Usage: make demo [POSTGRES=URL], or tidegate demo [--flights N] [--keep] [--apart] [--postgres URL]
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table

from tidegate.platform.kafka.admin import Admin
from tidegate.platform.stack.embedded import EmbeddedStack, free_port

sys.path.append(str(Path(__file__).parent))  # a command lets no script's folder come before what is installed
from expected import expected_lines, written_lines
from produce import Flight, flights, produce

HERE = Path(__file__).parent
PARTITIONS = 4
PAGE_PORT = 8600
QUERIES = ("departures", "mean_delay", "daily")
READS = {"departures": "flights.ordered", "mean_delay": "flights.ordered", "daily": "departures"}
# The extra delta is installed: the queries can fill a lake.
HAS_LAKE = find_spec("deltalake") is not None
console = Console()


class Job:
    """A stage: the last JSON line that its process printed of it."""

    def __init__(self, name: str, process: Process) -> None:
        self.name, self.process, self.last = name, process, {}  # type: str, Process, dict[str, Any]
        self.before_end: dict[str, Any] = {}

    def take(self, line: dict[str, Any]) -> None:
        """Take a line of the process that is about this stage."""
        # The last line of a stage of `run` says how it ended.
        if line.get("event") == "end" and "stage" in line:
            return
        self.last = line
        if not line.get("finished"):
            self.before_end = line

    @property
    def state(self) -> str:
        """One word for the table."""
        code = self.process.code
        if code is not None:
            return "done" if code == 0 else f"failed ({code})"
        return "running" if self.last else "starting"


class Process:
    """A tidegate command, and the stages that it runs by the ``stage`` in its lines; those of a command with one stage have none."""

    def __init__(self, name: str, work: Path, arguments: list[str], environment: dict[str, str]) -> None:
        self.name, self.stages = name, dict[str | None, Job]()
        self._errors = (work / f"{name}.log").open("wb")
        command = [sys.executable, "-P", "-m", "tidegate", *arguments, "--format", "json"]
        self._process = subprocess.Popen(command, cwd=work, env=environment, stdout=subprocess.PIPE, stderr=self._errors)
        self._reader = threading.Thread(target=self._follow, daemon=True)
        self._reader.start()

    def _follow(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            if text.startswith(b"{"):
                line = json.loads(text)
                if (job := self.stages.get(line.get("stage"))) is not None:
                    job.take(line)

    def add(self, name: str, label: str | None = None) -> Job:
        """Return the stage with the *label*, or the only one, to be called *name*."""
        return self.stages.setdefault(label, Job(name, self))

    @property
    def code(self) -> int | None:
        """The exit code; None: the process runs."""
        return self._process.poll()

    def end(self) -> None:
        """Ask the process to end, unless it has."""
        if self.code is None:
            self._process.terminate()

    def wait(self) -> None:
        """Wait until the process has ended and all that it printed was read."""
        self._process.wait()
        self._reader.join(timeout=10)

    def error(self) -> str:
        """Return the end of what the process wrote to standard error."""
        self._errors.flush()
        return Path(self._errors.name).read_text(errors="replace")[-3000:]


def send(chosen: list[Flight], properties: dict[str, Any]) -> float:
    """Produce the flights under a progress bar; return seconds."""
    Admin(properties).create("flights", PARTITIONS, {"retention.ms": "-1"})
    start = time.monotonic()
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.completed:,}/{task.total:,} flights")
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("producing in arrival order", total=len(chosen))
        produce(properties, "flights", chosen, PARTITIONS, lambda sent: bar.update(task, completed=sent))
    return time.monotonic() - start


def await_topic(admin: Admin, topic: str, maker: Job) -> None:
    """Wait until the job that makes *topic* has done so."""
    while admin.find(topic) is None and maker.process.code is None:
        time.sleep(0.1)


def board(jobs: list[Job]) -> Table:
    """Return the live table."""
    table = Table("job", "state", "events", "out", "watermark", title=None)
    for job in jobs:
        counts = ("events_in", "released") if job.name == "ingest" else ("events", "results")
        events, out = (job.last.get(name, 0) for name in counts)
        table.add_row(
            job.name, job.state, f"{events:,}", f"{out:,}", "ended" if job.last.get("finished") else job.last.get("watermark") or ""
        )
    return table


def run_together(work: Path, environment: dict[str, str]) -> list[Job]:
    """Run all stages in one process, as `tidegate run` does; return when it has ended."""
    jobs: list[Job] = []
    with shown(jobs):
        process = Process("run", work, ["run", "--until-end", "--no-page"], environment)
        jobs += [process.add("ingest", "ingest:flights"), *(process.add(name, f"query:{name}") for name in QUERIES)]
    return jobs


def run_apart(work: Path, environment: dict[str, str], admin: Admin) -> list[Job]:
    """Run ingest and the three queries side by side, each in a process of its own; return when all have ended."""
    jobs: list[Job] = []
    with shown(jobs):
        jobs.append(Process("ingest", work, ["ingest", "flights", "--until-end"], environment).add("ingest"))
        makers = {"flights.ordered": jobs[0]}
        for name in QUERIES:
            await_topic(admin, READS[name], makers[READS[name]])
            jobs.append(Process(name, work, ["query", name], environment).add(name))
            makers[name] = jobs[-1]
    return jobs


@contextmanager
def shown(jobs: list[Job]) -> Iterator[None]:
    """Show the live table of the jobs that are started in the block; then wait until all have ended, or one has failed."""
    try:
        with Live(console=console, refresh_per_second=4, get_renderable=lambda: board(jobs)):
            yield
            while any(job.process.code is None for job in jobs) and all(job.process.code in (None, 0) for job in jobs):
                time.sleep(0.2)
    finally:
        for job in jobs:
            job.process.end()
        for job in jobs:
            job.process.wait()


def report(jobs: list[Job], count: int, produce_s: float, jobs_s: float) -> None:
    """Print what happened."""
    console.print()
    last = jobs[0].last
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_row("flights in", f"{last['events_in']:,}  (produced in {produce_s:.1f} s)")
    table.add_row("early: dropped", f"{last['early']:,}")
    table.add_row("late: lifted to arrival - 3 h", f"{last['late_adjusted']:,}")
    table.add_row("out of order beyond 10 m: moved", f"{last['out_of_order_adjusted']:,}")
    table.add_row("ordered", f"{last['released']:,}")
    table.add_row("windows out", ", ".join(f"{job.last['results']:,} {job.name}" for job in jobs[1:]))
    busy = sum(last["seconds"].values())
    table.add_row(
        "throughput", f"{count / jobs_s:,.0f} flights/s with start-up, all jobs; {count / busy:,.0f} flights/s a core inside ingest"
    )
    table.add_row(
        "watermark delay", f"{jobs[0].before_end.get('watermark_delay', '?')} behind the last arrival, before the end was flushed"
    )
    console.print(table)


def check(chosen: list[Flight], work: Path) -> bool:
    """Compare every result line with the independent computation (the law, level 3); say where they differ."""
    same = True
    for name, expected in expected_lines(chosen, PARTITIONS).items():
        found = written_lines(work / "out", name)
        if found == expected:
            console.print(f"[green]check {name}: {len(found):,} results, byte for byte as computed independently")
            continue
        same = False
        place = next(
            (at for at, pair in enumerate(zip(expected, found, strict=False)) if pair[0] != pair[1]), min(len(expected), len(found))
        )
        console.print(f"[red]check {name}: {len(found):,} results, {len(expected):,} expected; first difference at {place}:")
        for label, lines in (("expected", expected), ("found", found)):
            console.print(f"  {label}: {lines[place].decode() if place < len(lines) else '(nothing)'}", markup=False)
    return same


def store_settings(postgres: str | None) -> dict[str, str]:
    """Return the settings, as environment variables, with which the queries fill a lake beside the demo's files, and tables."""
    settings = {}
    for name in QUERIES:
        output = f"TIDEGATE_OUTPUTS__{name.upper()}"
        if HAS_LAKE:
            settings |= {
                f"{output}__SINK_IN_JOB": "true",
                f"{output}__DELTA__PATH": f"out/lake/{name}",
                f"{output}__DELTA__FLUSH_INTERVAL": "1m",
            }
        if postgres is not None:
            settings |= {
                f"{output}__SINK_IN_JOB": "true",
                f"{output}__POSTGRES__URL": postgres,
                f"{output}__POSTGRES__TABLE": f"flights_demo.{name}",
            }
    return settings


def check_stores(jobs: list[Job], work: Path, postgres: str | None) -> bool:
    """Count the rows of the tables as others find them: DuckDB in the lake's files, PostgreSQL; say how to open them."""
    same = True
    for job in jobs[1:]:
        files = work / "out/lake" / job.name / "*.parquet"
        counts = {}
        if HAS_LAKE:
            counts[f"out/lake/{job.name}"] = duckdb.sql(f"SELECT count(*) FROM read_parquet('{files}')").fetchall()[0][0]
        if postgres is not None:
            import psycopg

            with psycopg.connect(postgres) as connection:
                row = connection.execute(f"SELECT count(*) FROM flights_demo.{job.name}".encode()).fetchone()
                counts[f"flights_demo.{job.name}"] = row[0] if row else 0
        for place, count in counts.items():
            same &= count == job.last["results"]
            console.print(f"[{'green' if count == job.last['results'] else 'red'}]check {place}: {count:,} rows")
    if HAS_LAKE:
        console.print(f"to look into the lake: {look_into(work / 'out/lake/departures')}", markup=False, soft_wrap=True)
    else:
        console.print("without a lake, which needs the package deltalake: pip install 'tidegate[delta]'", markup=False)
    return same


def show_page(work: Path, environment: dict[str, str]) -> subprocess.Popen[bytes] | None:
    """Serve the pipeline as a page on a free port, and print its address; nothing without the extra ui."""
    if find_spec("uvicorn") is None or find_spec("starlette") is None:
        console.print("without a page, which needs the extra ui: pip install 'tidegate[ui]'", markup=False)
        return None
    port = PAGE_PORT if _is_free(PAGE_PORT) else free_port()
    command = [sys.executable, "-P", "-m", "tidegate", "ui", "--port", str(port)]
    with (work / "ui.log").open("wb") as log:
        # A session of its own: Ctrl-C ends the demo, which ends the page, or leaves it with --keep.
        page = subprocess.Popen(command, cwd=work, env=environment, stdout=log, stderr=log, start_new_session=True)
    (work / "page.json").write_text(json.dumps({"address": f"http://127.0.0.1:{port}", "pid": page.pid}))
    console.print(f"the pipeline as a page: http://127.0.0.1:{port}")
    return page


def draw_pictures(work: Path, environment: dict[str, str]) -> None:
    """Leave two pictures beside the results: the watermarks over the events, and delay against events touched."""
    for name, command in (("watermarks", ["watermarks", "flights"]), ("tuning", ["tune", "flights"])):
        picture = work / "out" / f"{name}.svg"
        line = [sys.executable, "-P", "-m", "tidegate", *command, "--plot", str(picture)]
        done = subprocess.run(line, cwd=work, env=environment, capture_output=True, text=True, check=False)
        console.print(f"picture: {picture.relative_to(Path.cwd())}" if done.returncode == 0 else f"[red]no picture: {done.stderr[-300:]}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def look_into(table: Path) -> str:
    """Return a command that shows rows of a table of the lake; it runs where it is printed, and needs no program but this one."""
    rows = f"duckdb.read_parquet('{os.path.relpath(table)}/*.parquet').limit(5)"
    return f'{shlex.quote(os.path.relpath(sys.executable))} -c "import duckdb; print({rows})"'


def empty_schema(postgres: str) -> None:
    """Make the schema that the tables are made in, without what an earlier run has left."""
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS flights_demo CASCADE; CREATE SCHEMA flights_demo")


def main() -> int:
    """Run the demo; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flights", type=int, default=None, help="only the first N flights to arrive")
    parser.add_argument("--keep", action="store_true", help="leave Kafka and Valkey running, to look at the topics")
    parser.add_argument("--apart", action="store_true", help="run each of the four jobs in a process of its own")
    parser.add_argument("--postgres", default=None, help="URL of a database: tables of its schema flights_demo, made anew, get the results")
    arguments = parser.parse_args()
    begun = time.monotonic()
    work = Path(".tidegate/demo").resolve()
    stack = EmbeddedStack(work / "stack", with_password=True)
    stack.stop(wipe=True)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for file in (HERE / "tidegate.toml", *(HERE / f"{name}.sql" for name in QUERIES)):
        shutil.copy(file, work)
    if arguments.postgres is not None:
        empty_schema(arguments.postgres)
    console.rule("Tidegate: a week of real flights, in order")
    stack.start(console.print)
    page = None
    try:
        properties = {"bootstrap.servers": stack.bootstrap}
        addresses = {"TIDEGATE_KAFKA__BOOTSTRAP": stack.bootstrap, "TIDEGATE_REDIS__URL": stack.redis_url}
        environment = {**os.environ, **addresses, **store_settings(arguments.postgres)}
        chosen = flights(HERE / "flights.parquet", arguments.flights)
        page = show_page(work, environment)
        produce_s = send(chosen, properties)
        jobs_begun = time.monotonic()
        jobs = run_apart(work, environment, Admin(properties)) if arguments.apart else run_together(work, environment)
        failed = {job.process.name: job.process for job in jobs if job.process.code != 0}
        for name, process in failed.items():
            console.print(f"[red]{name} failed with exit code {process.code}:")
            console.print(process.error(), markup=False)
        if failed or len(jobs) < 1 + len(QUERIES):
            return 1
        report(jobs, len(chosen), produce_s, time.monotonic() - jobs_begun)
        same = check(chosen, work)
        same &= check_stores(jobs, work, arguments.postgres)
        draw_pictures(work, environment)
    finally:
        if not arguments.keep:
            if page is not None:
                page.terminate()
                page.wait()
            stack.stop()
        elif page is not None:
            console.print(f"the page stays up; to end it: kill {page.pid}; then the servers: tidegate down --dir {stack.directory}")
    console.print(f"results are in {work.relative_to(Path.cwd())}/out; took {time.monotonic() - begun:.0f} s")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
