"""What a campaign showed: one line for each kind of fault, kills in all, and whether every law held."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from faults.play import Outcome, Struck


def print_report(outcomes: Sequence[Outcome], left_out: Sequence[str], took_s: float) -> int:
    """Print the summary; return the exit code: 1 if a law was broken or nothing was played."""
    kinds: defaultdict[str, list[Struck]] = defaultdict(list)
    for outcome in outcomes:
        for struck in outcome.struck:
            kinds[struck.name].append(struck)
    print(f"\n{'fault':44} {'struck':>6} {'missed':>6} {'checked':>7}   first new CTI: median, 90 %, most")
    for name, all_struck in sorted(kinds.items()):
        missed = sum(struck.hit == "missed" for struck in all_struck)
        print(f"{name:44} {len(all_struck) - missed:6} {missed:6} {len(all_struck):7}   {_times(all_struck)}")
    _print_sums(outcomes)
    for name in left_out:
        print(f"not possible here (only root may mount a small disk): {name}")
    broken = [outcome for outcome in outcomes if outcome.broken]
    for outcome in broken:
        last = outcome.struck[-1].name if outcome.struck else "the start"
        print(f"\nBROKEN after {last}: seed {outcome.seed}: {outcome.variant}\n  {outcome.broken[:1500]}")
    print(f"\n{len(outcomes)} episodes in {took_s:.0f} s: {len(broken)} broke a law" + ("" if broken else "; every check passed"))
    return 1 if broken or not outcomes else 0


def _print_sums(outcomes: Sequence[Outcome]) -> None:
    kills: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    where: Counter[str] = Counter()
    spans: Counter[str] = Counter()
    for outcome in outcomes:
        kills.update(outcome.kills)
        ended.update(outcome.ended)
        spans.update(outcome.spans)
        where.update(struck.hit for struck in outcome.struck if struck.name.startswith("kill "))
    print(f"\nkill -9: {kills.total()} ({', '.join(f'{count} {victim}' for victim, count in kills.most_common())})")
    print(f"where kills struck: {', '.join(f'{count} {point}' for point, count in where.most_common())}")
    print(f"lives by batch_span: {', '.join(f'{count} of {span}' for span, count in sorted(spans.items()))}")
    if ended:
        print(f"lives that ended by themselves after a fault: {', '.join(f'{count} {code}' for code, count in ended.most_common())}")
    names = ("lives", "records", "events", "duplicates", "estimates", "readers")
    sums = {name: sum(getattr(outcome, name) for outcome in outcomes) for name in names}
    print(
        "in all: {lives:,} lives, {records:,} records in, {events:,} events out, {duplicates:,} duplicates, "
        "{estimates:,} estimates, {readers:,} readers from the middle".format(**sums)
    )


def _times(struck: Sequence[Struck]) -> str:
    took = sorted(each.recovered_s for each in struck if each.recovered_s is not None)
    if not took:
        return "not measured: another fault struck in the recovery"
    return f"{took[len(took) // 2]:.1f} s, {took[min(len(took) * 9 // 10, len(took) - 1)]:.1f} s, {took[-1]:.1f} s"
