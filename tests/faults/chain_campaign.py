"""The campaign over chains: rounds of all kinds of chain, and what they showed."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from faults.chains import MISSED, ChainOutcome, play_chain
from support.postgres_server import PostgresServer

from tidegate.platform.stack.embedded import EmbeddedStack


def run_chains(folder: Path, seed: int, rounds: int, minutes: float) -> int:
    """Play rounds, as many as asked for and as time allows; return the exit code."""
    dice, outcomes, begun_s = random.Random(seed), list[ChainOutcome](), time.monotonic()
    postgres = PostgresServer()
    try:
        with EmbeddedStack(folder / "stack", heap="512m") as stack, contextlib.suppress(KeyboardInterrupt):
            for number in range(1, rounds + 1):
                if time.monotonic() - begun_s > 60 * minutes:
                    print(f"\nthe time is over: {number - 1} rounds were played")
                    break
                own = dice.randrange(2**32)
                print(f"\nround {number}, seed {own}", flush=True)
                outcomes.append(play_chain(stack, postgres, folder / f"round-{number}", own, tell=_teller(begun_s)))
                last = outcomes[-1]
                print(f"{last.shape}: {f'BROKEN: {last.broken[:3000]}' if last.broken else 'as the quiet replay'}", flush=True)
    finally:
        postgres.stop()
    return _report(outcomes, time.monotonic() - begun_s)


def _teller(begun_s: float):  # type: ignore[no-untyped-def]
    return lambda line: print(f"{time.monotonic() - begun_s:6.0f} s  {line}", flush=True)


def _report(outcomes: Sequence[ChainOutcome], took_s: float) -> int:
    """Print the summary; return the exit code: 1 if a law was broken, or nothing was compared or struck."""
    kills: Counter[str] = sum((each.kills for each in outcomes), Counter())
    struck: Counter[str] = sum((each.struck for each in outcomes), Counter())
    ended = Counter(code for each in outcomes for code in each.ended)
    print(f"\nkill -9: {kills.total()} ({', '.join(f'{count} {victim}' for victim, count in kills.most_common())})")
    print(f"what was struck: {', '.join(f'{count} {what}' for what, count in struck.most_common())}")
    if ended:
        print(f"lives that ended by themselves after a fault: {', '.join(f'{count} {code}' for code, count in ended.most_common())}")
    sums = {name: sum(getattr(each, name) for each in outcomes) for name in ("lives", "compared", "written_twice", "rows", "dead")}
    print(
        "{lives:,} lives; {compared:,} events and results compared, {written_twice:,} written twice; "
        "{rows:,} rows of files, plain topics and tables; {dead:,} dead letters".format(**sums)
    )
    broken = [each for each in outcomes if each.broken]
    for each in broken:
        print(f"\nBROKEN: seed {each.seed}: {each.shape}\n  {each.broken[:1500]}")
    print(f"\n{len(outcomes)} rounds in {took_s:.0f} s: {len(broken)} broke a law" + ("" if broken else "; every check passed"))
    idle = not (sums["compared"] and sums["rows"] and struck.total() > struck[MISSED])
    if idle and not broken:
        print("but nothing was struck or compared: that proves nothing")
    return 1 if broken or idle else 0
