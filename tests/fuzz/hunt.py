"""
The hunt: one process changes the inputs of one target until its time is over or a law is broken.

The input that is tried stands in a file that the parent process has mapped, so that it is not lost if the process dies of it.
"""

from __future__ import annotations

import ast
import mmap
import struct
import sys
import time
from pathlib import Path
from random import Random

if __name__ == "__main__":
    # Not this folder, which Python puts there: its modules stand in the package `fuzz`.
    sys.path[:1] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1])]

from fuzz.mutations import BYTES_MAX, mutate

CORPUS = Path(__file__).parent / "corpus"
# How many inputs were tried, when the last one was begun (monotonic seconds), its length; then the input.
HEAD = struct.Struct("<QdI")
SCRATCH_BYTES = HEAD.size + BYTES_MAX
# Targets that share a corpus.
_CORPUS_OF = {"scan_json": "read_json", "split_json": "read_json"}
# How often inputs that did something new are preferred to those of the corpus.
_NEW_SHARE = 0.7
_KNOWN_MAX = 4_000


def read_corpus(name: str) -> list[bytes]:
    """
    Return what a file of the corpus holds, one entry a line, written as Python writes bytes: ``TARGET.txt`` has inputs,
    ``TARGET.words.txt`` pieces that the format has.
    """
    lines = (CORPUS / f"{name}.txt").read_text("utf-8").splitlines()
    return [ast.literal_eval(line) for line in lines if line]


def hunt(target: str, seed: int, seconds: float, scratch: Path) -> None:
    """Try inputs of *target* for some seconds; what breaks a law raises, and is the input in *scratch*."""
    from fuzz.targets import TARGETS, load_sanitized_parts

    load_sanitized_parts()
    corpus = _CORPUS_OF.get(target, target)
    run, words, random, known = TARGETS[target], read_corpus(f"{corpus}.words"), Random(seed), read_corpus(corpus)
    outcomes, fresh = set[str](), list[bytes]()
    until_s, tried = time.monotonic() + seconds, 0
    with scratch.open("r+b") as file, mmap.mmap(file.fileno(), SCRATCH_BYTES) as memory:
        while (now_s := time.monotonic()) < until_s:
            parents = fresh if fresh and random.random() < _NEW_SHARE else known
            octets = known[tried] if tried < len(known) else mutate(parents, words, random)
            memory[HEAD.size : HEAD.size + len(octets)] = octets
            HEAD.pack_into(memory, 0, tried, now_s, len(octets))
            outcome = run(octets)
            tried += 1
            if outcome not in outcomes and len(outcomes) < _KNOWN_MAX:
                outcomes.add(outcome)
                fresh.append(octets)
    print(f"{target}: {tried:,} inputs, {len(outcomes):,} outcomes")


if __name__ == "__main__":
    hunt(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4]))
