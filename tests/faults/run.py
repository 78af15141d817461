"""
Run the fault campaign on the real stack: ``make faults``, ``KILLS=200``, ``SEED=7``, ``ONLY=zombie``, ``MINUTES=30``.
``ONLY=queries`` plays rounds of the query campaign (:mod:`faults.queries`), ``ONLY=chains`` of that over chains of stages
(:mod:`faults.chains`), ``ONLY=run`` of all stages in one process (:mod:`faults.pipelines`); ``--rounds`` says how many.

Every fault is told as soon as it was got over and checked; in the end there is a table of all kinds. The exit code is 1 if a
law was broken. The seed draws data, variants and faults; the moments at which they strike are the machine's.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    # Not this folder, which Python puts there: its modules stand in the package `faults`.
    sys.path[:1] = [str(_ROOT), str(_ROOT / "tests")]

from faults.chain_campaign import run_chains  # noqa: E402
from faults.kills import draw_kill  # noqa: E402
from faults.lives import STALL_S  # noqa: E402
from faults.matrix import run_matrix  # noqa: E402
from faults.pipelines import run_pipelines  # noqa: E402
from faults.play import Episode, Fault, Outcome, Struck, can_fill_disks, play  # noqa: E402
from faults.query_campaign import run_queries  # noqa: E402
from faults.report import print_report  # noqa: E402
from faults.troubles import TROUBLES, Trouble  # noqa: E402
from faults.variants import Variant, draw_variant  # noqa: E402

from ordering.policies import Shape  # noqa: E402
from tidegate.platform.stack.embedded import EmbeddedStack  # noqa: E402

FAULTS_AN_EPISODE = 8


def episodes(kills: int, troubles: list[Trouble], seed: int, per_s: int) -> Iterator[Episode]:
    """Yield episodes with so many kills among them; troubles stand between kills, those with needs in episodes of their own."""
    dice = random.Random(seed)
    plain = [trouble for trouble in troubles if not trouble.needs]
    for trouble in troubles:
        if trouble.needs:
            faults = (trouble, draw_kill(dice), trouble) if kills else (trouble,)
            yield Episode(_fitting(trouble, draw_variant(dice, per_s)), dice.randrange(2**32), faults, trouble.needs)
    left = kills
    while left > 0 or plain:
        mixed: list[Fault] = [draw_kill(dice) for _ in range(min(FAULTS_AN_EPISODE, left))]
        left -= len(mixed)
        variant = draw_variant(dice, per_s)
        for trouble in [plain.pop(0) for _ in range(min(2 if mixed else 4, len(plain)))]:
            mixed.insert(dice.randint(0, len(mixed)), trouble)
            variant = _fitting(trouble, variant)
        yield Episode(variant, dice.randrange(2**32), tuple(mixed))


def _fitting(trouble: Trouble, variant: Variant) -> Variant:
    """Return the variant made such that the trouble has something to strike."""
    if "estimate" in trouble.name or "Redis" in trouble.name or "clock of the broker" in trouble.name:
        silent = replace(variant.manner, ahead=False, all_silent=True)
        return replace(variant, log_append=True, stamped=False, estimates=True, manner=silent)
    if trouble.name == "record refused":
        # Edges would be padded at their end alone; points and spans can be as big as one likes.
        shape = Shape.POINT if variant.manner.shape is Shape.EDGE else variant.manner.shape
        return replace(variant, manner=replace(variant.manner, shape=shape))
    return variant


class Teller:
    """Tells each fault as it is got over."""

    def __init__(self) -> None:
        self._begun_s = time.monotonic()
        self._before, self._kills = 0, 0

    def episode(self, number: int, episode: Episode) -> None:
        """Say what is played next."""
        self._before = self._kills
        print(f"\nepisode {number}, seed {episode.seed}: {episode.variant}", flush=True)

    def struck(self, struck: Struck) -> None:
        """Say what came of one fault."""
        self._kills = self._before + struck.kills
        took = "held in recovery" if struck.recovered_s is None else f"new CTI after {struck.recovered_s:.1f} s"
        hit = f" ({struck.hit})" if struck.hit and struck.hit not in struck.name else ""
        saw = f"{struck.events:,} events, {struck.duplicates:,} duplicates"
        print(f"{time.monotonic() - self._begun_s:6.0f} s{self._kills:5} kills  {struck.name}{hit}: {took}; {saw}, ok", flush=True)


def campaign(kills: int, troubles: list[Trouble], seed: int, arguments: argparse.Namespace, folder: Path) -> list[Outcome]:
    """Play all episodes, as long as ``--minutes`` allow; return what came of them."""
    teller, outcomes = Teller(), []
    deadline_s = time.monotonic() + 60 * arguments.minutes
    with EmbeddedStack(folder / "stack", heap="512m") as stack:
        for number, episode in enumerate(episodes(kills, troubles, seed, arguments.per_s), 1):
            if time.monotonic() > deadline_s:
                print(f"\nthe time is over: {number - 1} episodes were played")
                break
            teller.episode(number, episode)
            outcome = play(stack, folder / f"episode-{number}", episode, teller.struck, arguments.bound_s)
            outcomes.append(outcome)
            _tell_end(outcome)
    return outcomes


def _tell_end(outcome: Outcome) -> None:
    if outcome.broken:
        print(f"BROKEN: {outcome.broken[:3000]}", flush=True)
        return
    print(
        f"     ended: {outcome.records:,} records in, {outcome.events:,} events out, {outcome.duplicates:,} duplicates, "
        f"{outcome.estimates:,} estimates, {outcome.lives} lives, {outcome.readers} readers from the middle: all as the oracle tells",
        flush=True,
    )


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(description="Run the fault campaign on the real stack.")
    parser.add_argument("--kills", type=int, default=200, help="how many kill -9")
    parser.add_argument("--seed", type=int, default=None, help="draws data, variants and faults; default: another each time")
    parser.add_argument("--only", default="", help="kills, matrix, queries, chains, run, or part of a trouble's name")
    parser.add_argument(
        "--rounds", type=int, default=8, help="how many rounds of --only queries (four have every kind of query), chains or run"
    )
    parser.add_argument("--per-s", type=int, default=150, help="records a second")
    parser.add_argument("--bound-s", type=float, default=STALL_S, help="no new CTI for so many seconds after a fault is a stall")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no further episode after so many minutes")
    parser.add_argument("--keep", type=Path, default=None, help="folder to work in; kept in the end")
    arguments = parser.parse_args()
    seed = random.randrange(2**32) if arguments.seed is None else arguments.seed
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="faults-"))
    print(f"seed {seed}; working in {folder}")
    if arguments.only == "matrix":
        return run_matrix(folder, seed)
    if arguments.only == "queries":
        return run_queries(folder, seed, arguments.rounds, arguments.minutes)
    if arguments.only == "chains":
        return run_chains(folder, seed, arguments.rounds, arguments.minutes)
    if arguments.only == "run":
        return run_pipelines(folder, seed, arguments.rounds, arguments.minutes)
    wanted = [trouble for trouble in TROUBLES if arguments.only.lower() in trouble.name.lower()] if arguments.only != "kills" else []
    if arguments.only not in ("", "kills") and not wanted:
        parser.error(f"no trouble is named {arguments.only}: " + ", ".join(trouble.name for trouble in TROUBLES))
    possible = [trouble for trouble in wanted if "disk" not in trouble.needs or can_fill_disks()]
    kills = arguments.kills if arguments.only in ("", "kills") else 0
    begun_s = time.monotonic()
    outcomes = campaign(kills, possible, seed, arguments, folder)
    left_out = Counter(trouble.name for trouble in wanted if trouble not in possible)
    return print_report(outcomes, sorted(left_out), time.monotonic() - begun_s)


if __name__ == "__main__":
    sys.exit(main())
