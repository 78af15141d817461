"""
Run the simulation over many seeds: ``python tests/simulation/run.py 0-9999``, ``17``, ``5,9,100-200``.

The first failing seed is printed with its minimal story, and the exit code is 1; so it is if some kind of fault never
happened in a run of a thousand seeds or more.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    # Not this folder, which Python puts there: its modules stand in the package `simulation`.
    sys.path[:1] = [str(_ROOT), str(_ROOT / "tests")]

from simulation.faults import BREAKAGES, REQUIRED  # noqa: E402
from simulation.play import play  # noqa: E402
from simulation.scenario import draw  # noqa: E402
from simulation.story import minimal  # noqa: E402

ENOUGH_SEEDS = 1_000
"""From so many seeds on, each kind of fault must have happened."""
_SAY_S = 1.0


def seeds_of(text: str) -> list[int]:
    """Read ``5,9,100-200``."""
    seeds: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    return seeds


def run(seeds: list[int], broken: str | None = None) -> tuple[int | None, Counter[str]]:
    """
    Run seeds in this process; return the first that breaks a law (none after it is run), and what happened how often.

    With *broken* the job breaks that rule (see ``BREAKAGES``).
    """
    happened: Counter[str] = Counter()
    for seed in seeds:
        outcome = play(draw(seed)) if broken is None else play(draw(seed, BREAKAGES[broken]), frozenset({broken}))
        happened += outcome.happened
        if outcome.broken is not None:
            return seed, happened
    return None, happened


def never_happened(happened: Counter[str]) -> list[str]:
    """Return the kinds of fault that have not happened."""
    return [kind for kind in REQUIRED if not happened[kind]]


def _in_parallel(seeds: list[int], processes: int) -> Iterator[tuple[int, int | None, Counter[str]]]:
    """Yield (seeds run, failing seed, what happened) as parts of the seeds are done."""
    parts = [seeds[at : at + 20] for at in range(0, len(seeds), 20)]
    with multiprocessing.Pool(processes) as pool:
        for done, (failing, happened) in enumerate(pool.imap_unordered(run, parts), 1):
            yield min(20 * done, len(seeds)), failing, happened


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(description="Run the simulation over many seeds.")
    parser.add_argument("seeds", help="such as 0-9999, 17 or 5,9,100-200")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    arguments = parser.parse_args()
    seeds = seeds_of(arguments.seeds)
    happened: Counter[str] = Counter()
    begun, said = time.monotonic(), 0.0
    for done, failing, more in _in_parallel(seeds, arguments.processes):
        happened += more
        if failing is not None:
            print(f"\nseed {failing} fails; looking for its minimal story ...", flush=True)
            scenario = draw(failing)
            print(minimal(scenario, play(scenario)))
            return 1
        if time.monotonic() - said > _SAY_S or done == len(seeds):
            said = time.monotonic()
            print(f"\r{done:,} of {len(seeds):,} seeds, {said - begun:.0f} s", end="", file=sys.stderr, flush=True)
    print(f"\n{len(seeds):,} seeds without divergence in {time.monotonic() - begun:.0f} s; what happened:")
    for kind in sorted({*happened, *REQUIRED}):
        print(f"{happened[kind]:12,}  {kind}")
    missing = never_happened(happened) if len(seeds) >= ENOUGH_SEEDS else []
    for kind in missing:
        print(f"never happened: {kind}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
