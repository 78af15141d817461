"""The query campaign: rounds in which all kinds of query are dealt out again and again, and what they showed."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from faults.queries import ASKED, LONG, SHORT, Round, play_round
from support.query_kinds import KINDS

from tidegate.platform.stack.embedded import EmbeddedStack

KINDS_A_ROUND = 8


def dealt(dice: random.Random) -> Iterator[tuple[str, ...]]:
    """Deal the kinds out again and again, each once before any comes twice."""
    while True:
        kinds = sorted(KINDS)
        dice.shuffle(kinds)
        rounds = -(-len(kinds) // KINDS_A_ROUND)
        yield from (tuple(kinds[at::rounds]) for at in range(rounds))


def size_of(number: int) -> int:
    """Return how many records each raw log of a round has: every third is long."""
    return LONG if number % 3 == 0 else SHORT


def run_queries(folder: Path, seed: int, rounds: int, minutes: float) -> int:
    """Play rounds, as many as asked for and as time allows; return the exit code."""
    dice, outcomes, begun_s = random.Random(seed), list[Round](), time.monotonic()
    with EmbeddedStack(folder / "stack", heap="512m") as stack, contextlib.suppress(KeyboardInterrupt):
        for number, kinds in zip(range(1, rounds + 1), dealt(dice), strict=False):
            if time.monotonic() - begun_s > 60 * minutes:
                print(f"\nthe time is over: {number - 1} rounds were played")
                break
            own, size = dice.randrange(2**32), size_of(number)
            print(f"\nround {number}, seed {own}, {size} records a log: {', '.join(kinds)}", flush=True)
            tell: Callable[[str], None] = lambda line: print(f"{time.monotonic() - begun_s:6.0f} s  {line}", flush=True)  # noqa: E731
            outcomes.append(play_round(stack, folder / f"round-{number}", own, kinds, size=size, tell=tell))
            print(f"BROKEN: {outcomes[-1].broken[:3000]}" if outcomes[-1].broken else "     all as told", flush=True)
    return _report(outcomes, time.monotonic() - begun_s)


def _report(outcomes: Sequence[Round], took_s: float) -> int:
    """Print the summary; return the exit code: 1 if a law was broken, or nothing was compared or killed midway."""
    kills: Counter[str] = sum((each.kills for each in outcomes), Counter())
    struck: Counter[str] = sum((each.struck for each in outcomes), Counter())
    cores: Counter[int] = sum((each.cores for each in outcomes), Counter())
    spans: Counter[str] = sum((each.spans for each in outcomes), Counter())
    ended = Counter(code for each in outcomes for code in each.ended)
    kinds = {kind for each in outcomes if not each.broken for kind in each.kinds}
    names = (
        "lives",
        "compared",
        "compared_after_kills",
        "midway",
        "suffixes",
        "from_middle",
        "rewritten",
        "jumps",
        "written_twice",
        "dead",
    )
    sums = {name: sum(getattr(each, name) for each in outcomes) for name in names}
    print(f"\nkill -9: {kills.total()} ({', '.join(f'{count} {victim}' for victim, count in kills.most_common())})")
    print(f"where kills struck: {', '.join(f'{count} {point}' for point, count in struck.most_common())}")
    print(f"lives by cores: {', '.join(f'{count} with {number}' for number, count in sorted(cores.items()))}")
    print(f"lives by batch_span: {', '.join(f'{count} of {span}' for span, count in sorted(spans.items()))}")
    if ended:
        print(f"lives that ended by themselves after a fault: {', '.join(f'{count} {code}' for code, count in ended.most_common())}")
    print(
        "{lives:,} lives; ordered topics with {rewritten:,} events written again and {jumps:,} jumps in their numbers; "
        "{compared:,} results compared in the end, {compared_after_kills:,} after kills, {midway:,} of which found a job midway, "
        "{written_twice:,} written twice; "
        "{suffixes:,} starts at a time, {from_middle:,} of them read from the middle; {dead:,} dead letters".format(**sums)
    )
    print(f"kinds covered: {len(kinds)} of {len(KINDS)}, and {len(ASKED)} questions")
    broken = [each for each in outcomes if each.broken]
    for each in broken:
        print(f"\nBROKEN: seed {each.seed}: {', '.join(each.kinds)}\n  {each.broken[:1500]}")
    print(f"\n{len(outcomes)} rounds in {took_s:.0f} s: {len(broken)} broke a law" + ("" if broken else "; every check passed"))
    idle = not (sums["midway"] and sums["compared"] and sums["rewritten"])
    if idle and not broken:
        print("but no job was killed midway, or nothing was compared: that proves nothing")
    return 1 if broken or idle else 0
