"""
Each query in ``tidegate local`` over files, judged by DuckDB, with what it costs: CPU seconds and the most memory of its process.

What a start costs is measured once, over 50 events, and taken off: CPU seconds per million events are those of the events.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from nexmark.generator import Made, write_files, write_side
from nexmark.judge import Judge
from nexmark.queries import reads_arrivals, script
from nexmark.spent import Spent, spent
from running import FailedRun, Figures, progress

_STARTS = 3


def run(name: str, command: list[str], log: Path) -> Spent:
    """
    Run a command to its end; return what it has spent.

    Raises:
        FailedRun: It ended with an error; *log* has all that it said.
    """
    figures = spent(command, log)
    if figures.code:
        raise FailedRun(name, figures.code, log.read_text(errors="replace"))
    return figures


def local_arguments(name: str, layout: str, made: Made, files: dict[str, Path], side: Path, folder: Path) -> list[str]:
    """Return how ``tidegate local`` is called for a query; its results are to go into *folder*, the script beside it."""
    text = script(name, layout)
    file = folder.parent / f"{name}.sql"
    file.write_text(text)
    read = [f"{source}={path}" for source, path in files.items() if re.search(rf"(FROM|JOIN) {source}\b", text)]
    looked_up = [f"side_input={side}"] if "side_input" in text else []
    # Files without arrivals have no late events. Those with them have some, which are no later than they are out of order.
    bound, reorder = (f"{bound_ms}ms" for bound_ms in (made.bound_ms, made.bound_ms if made.order == "disordered" else 0))
    flags = ["--late", bound, "--reorder", reorder, "--strict", "--output-dir", str(folder)]
    return [str(file), *_each("--input", read), *_each("--reference", looked_up), *flags]


class OnFiles:
    """All that the queries share: the files, and a judge for those with arrivals and those without."""

    def __init__(self, made: Made, layout: str, work: Path, threads: int, partitions: int = 1) -> None:
        self._made, self._layout, self._work, self._threads, self._partitions = made, layout, work, threads, partitions
        self.side = write_side(work)
        self._answered = ""
        self._judges: dict[bool, Judge] = {}
        self._files: dict[tuple[Made, bool], dict[str, Path]] = {}

    def rows(self, names: list[str], has_batch: bool) -> Iterator[Figures]:
        """Yield what each query showed; *has_batch*: with what it costs in DuckDB."""
        starts = Made(50)
        start = min((self._tidegate("q0", starts)[0] for _ in range(_STARTS)), key=lambda one: one.cpu_s)
        batch_start = self.batch("q0", starts) if has_batch else start
        for name in names:
            progress(f"{name}: {self._made.events:,} events in tidegate local")
            cost, results = self._tidegate(name, self._made)
            row: Figures = {
                "name": name,
                "cpu_s_per_million": cost.per_million(start, self._made.events),
                "memory_mb": cost.memory_mb,
            }
            if has_batch:
                progress(f"{name}: {self._made.events:,} events in DuckDB")
                batch = self.batch(name, self._made)
                row |= {"duckdb_cpu_s_per_million": batch.per_million(batch_start, self._made.events), "duckdb_memory_mb": batch.memory_mb}
            progress(f"{name}: judging")
            yield row | self.judged(name, results / f"{name}.ndjson") | {"start_cpu_s": round(start.cpu_s, 2)}

    def _inputs(self, made: Made, has_arrivals: bool) -> dict[str, Path]:
        if (made, has_arrivals) not in self._files:
            progress(f"making {made.events:,} events")
            self._files[made, has_arrivals] = write_files(made, self._layout, self._work / "events", has_arrivals)
        return self._files[made, has_arrivals]

    def _tidegate(self, name: str, made: Made) -> tuple[Spent, Path]:
        """Run a query; return what it spent, and the folder with its results."""
        folder = self._work / "results"
        shutil.rmtree(folder, ignore_errors=True)
        arguments = local_arguments(name, self._layout, made, self._inputs(made, reads_arrivals(name)), self.side, folder)
        return run(name, [sys.executable, "-m", "tidegate", "local", *arguments], self._work / "tidegate.log"), folder

    def batch(self, name: str, made: Made) -> Spent:
        """Run a query in DuckDB from files to results; return what it spent."""
        inputs = [f"{source}={file}" for source, file in self._inputs(made, reads_arrivals(name)).items()]
        command = [sys.executable, "-m", "nexmark.batch", name, str(self._work / "batch.ndjson"), str(self._threads), str(self.side)]
        return run(f"{name} in DuckDB", [*command, *inputs], self._work / "duckdb.log")

    def judged(self, name: str, results: Path, *, changes: bool = False, same: str | None = None) -> Figures:
        """Compare results in a file with the judge's, see :meth:`nexmark.judge.Judge.compare`; ``due`` is how many there must be."""
        has_arrivals = reads_arrivals(name)
        if has_arrivals not in self._judges:
            files = self._inputs(self._made, has_arrivals)
            database = self._work / f"judge{'-arrivals' * has_arrivals}.duckdb"
            database.unlink(missing_ok=True)
            self._judges[has_arrivals] = Judge(files, self.side, self._partitions, self._threads, database)
        judge = self._judges[has_arrivals]
        if self._answered != name:
            judge.answer(name)
            self._answered = name
        return judge.compare([results], changes=changes, same=same)


def _each(option: str, values: list[str]) -> list[str]:
    return [part for value in values for part in (option, value)]
