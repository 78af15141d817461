"""
Fuzz the decoders: ``python tests/fuzz/run.py --minutes 10``, ``--only read_avro``, ``--repeat .fuzz/read_avro-1a2b3c4d``.

Each target (``targets.py``) runs in a process of its own, the parts in C under gcc's address and undefined-behaviour sanitizers.
An input that breaks a law, ends the process, takes more CPU time than ``SECONDS_MAX`` or more memory than ``BYTES_MAX`` is saved in
``.fuzz/``, and the command that repeats it is printed. The exit code is then 1. An input that was mended belongs into
``corpus/TARGET.txt``.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom

if __name__ == "__main__":
    # Not this folder, which Python puts there: its modules stand in the package `fuzz`.
    sys.path[:1] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1])]

from fuzz import sanitizers
from fuzz.hunt import HEAD, SCRATCH_BYTES

ROOT = sanitizers.ROOT
FOUND = ROOT / ".fuzz"
NAMES = ("read_json", "scan_json", "write_json", "read_avro", "read_csv", "read_wire", "read_script", "kafka_pieces")
# Targets of parts in C. The others run without sanitizers, which make them a hundred times slower.
_IN_C = ("scan_json", "write_json", "read_avro")
SECONDS_MAX, BYTES_MAX = 5.0, 2 * 2**30
# A target's longest turn; shorter in a run of few minutes, so that it reaches all.
_TURN_S = 120.0
_LOOK_S = 0.2
_REPORT_CHARACTERS = 6_000


@dataclass(frozen=True, slots=True)
class Turn:
    """One target's turn: the seed that repeats it, how many inputs were tried, and what was found."""

    target: str
    seed: int
    tried: int
    found: Path | None = None


def run(minutes: float, targets: list[str], parts: Path | None) -> list[Turn]:
    """Give the targets turns until the time is over; return all turns. Without *parts* nothing is sanitized, and no piece of Kafka read."""
    turns: list[Turn] = []
    until_s = time.monotonic() + 60 * minutes
    targets = [target for target in targets if parts is not None or target != "kafka_pieces"]
    while (left_s := until_s - time.monotonic()) > 1:
        target, seed = targets[len(turns) % len(targets)], SystemRandom().randrange(2**32)
        turn_s = min(_TURN_S, max(left_s / max(len(targets) - len(turns), 1), 1))
        if target == "kafka_pieces" and parts is not None:
            turns.append(_pieces_turn(seed, turn_s, parts))
        else:
            turns.append(_turn(target, seed, turn_s, parts if target in _IN_C else None))
        print(f"{target:<12} seed {seed:<10} {turns[-1].tried:>9,} inputs", flush=True)
    return turns


def _turn(target: str, seed: int, seconds: float, parts: Path | None) -> Turn:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        scratch, report = Path(folder) / "scratch", Path(folder) / "report"
        scratch.write_bytes(b"\0" * SCRATCH_BYTES)
        command = [sys.executable, str(Path(__file__).with_name("hunt.py")), target, str(seed), str(seconds), str(scratch)]
        with report.open("wb") as output:
            child = subprocess.Popen(
                command, cwd=ROOT, env=sanitizers.environment(parts) if parts else os.environ, stdout=output, stderr=subprocess.STDOUT
            )
            why = _watch(child, scratch)
        tried, _, length = HEAD.unpack(scratch.read_bytes()[: HEAD.size])
        if not why:
            return Turn(target, seed, tried)
        octets = scratch.read_bytes()[HEAD.size : HEAD.size + length]
        return Turn(target, seed, tried, _save(target, octets, f"{why}\n{report.read_text('utf-8', 'replace')[-_REPORT_CHARACTERS:]}"))


def _watch(child: subprocess.Popen[bytes], scratch: Path) -> str:
    """Wait for the end of a hunt; return what it found, in words, or an empty text."""
    tried_before, since_s = -1, 0.0
    while child.poll() is None:
        time.sleep(_LOOK_S)
        tried, _, _ = HEAD.unpack(scratch.read_bytes()[: HEAD.size])
        if tried != tried_before:
            tried_before, since_s = tried, _cpu_seconds(child.pid)
        why = ""
        # The first input waits for imports.
        if _cpu_seconds(child.pid) - since_s > SECONDS_MAX * (1 if tried else 6):
            why = f"it takes more than {SECONDS_MAX} s"
        elif _resident_bytes(child.pid) > BYTES_MAX:
            why = f"it takes more than {BYTES_MAX >> 20} MiB"
        if why:
            child.kill()
            child.wait()
            return why
    return f"the process ended with {child.returncode}" if child.returncode else ""


def _cpu_seconds(process: int) -> float:
    """Return the CPU time of a process: a busy machine makes no input slow."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_bytes(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:")), 0)


def _pieces_turn(seed: int, seconds: float, parts: Path) -> Turn:
    """Run the program that reads pieces out of a librdkafka of its own; it says how many it read."""
    done = subprocess.run([parts / "kafka_pieces", str(seed), str(seconds)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    said = done.stdout.decode("utf-8", "replace")
    tried = int(said.split()[0]) if done.returncode == 0 else 0
    found = _save("kafka_pieces", str(seed).encode(), said[-_REPORT_CHARACTERS:]) if done.returncode else None
    return Turn("kafka_pieces", seed, tried, found)


def _save(target: str, octets: bytes, why: str) -> Path:
    FOUND.mkdir(exist_ok=True)
    file = FOUND / f"{target}-{hashlib.sha256(octets).hexdigest()[:12]}"
    file.write_bytes(octets)
    print(f"{target}: {why}\n\nrepeat it: python tests/fuzz/run.py --repeat {os.path.relpath(file, ROOT)}", flush=True)
    return file


def repeat(file: Path, parts: Path | None) -> int:
    """Try one saved input; return the exit code of the process that tried it."""
    target = file.name.rpartition("-")[0]
    if target == "kafka_pieces":
        assert parts is not None, "only a compiler makes it"
        return subprocess.run([parts / target, file.read_text(), "10"], check=False).returncode
    program = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'tests')!r}]; from fuzz.targets import *; load_sanitized_parts(); "
    program += f"print(TARGETS[{target!r}](Path({str(file.resolve())!r}).read_bytes()))"
    env = sanitizers.environment(parts) if parts else dict(os.environ)
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=env, check=False).returncode


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(description="Fuzz the decoders.")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--only", choices=NAMES, action="append", help="a target; may be given again")
    parser.add_argument("--repeat", type=Path, help="a file of .fuzz/: try its input alone")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fuzz-parts-") as folder:
        parts = Path(folder) if sanitizers.has_compiler() else None
        if parts is None:
            print("no gcc with sanitizers: the parts in C run as they are", file=sys.stderr)
        else:
            sanitizers.compile_parts(parts)
        if arguments.repeat:
            return repeat(arguments.repeat, parts)
        started_s = time.monotonic()
        turns = run(arguments.minutes, arguments.only or list(NAMES), parts)
    found = [turn for turn in turns if turn.found]
    print(f"{sum(turn.tried for turn in turns):,} inputs in {time.monotonic() - started_s:.0f} s, {len(found)} broke a law")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
