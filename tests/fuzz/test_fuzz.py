"""The fuzzing itself: the corpus breaks no law, what breaks one is found, saved and repeated, and the sanitizers see what they should."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from fuzz import hunt, run, sanitizers, targets
from fuzz.hunt import read_corpus
from fuzz.mutations import BYTES_MAX, mutate
from fuzz.sanitizers import hatch_build

from tidegate.basics import native_parts
from tidegate.language.json_columns import json_fields, json_rows
from tidegate.records.payloads import avro_layout


@pytest.mark.parametrize("target", targets.TARGETS)
def test_the_corpus_and_some_inputs_made_of_it_break_no_law(target: str) -> None:
    """Without sanitizers; inputs that were found and mended are in the corpus."""
    corpus = hunt._CORPUS_OF.get(target, target)
    known, words, random = read_corpus(corpus), read_corpus(f"{corpus}.words"), Random(1)
    for octets in [*known, *(mutate(known, words, random) for _ in range(20))]:
        targets.TARGETS[target](octets)


def test_mutations_follow_from_the_seed_and_stay_short() -> None:
    """A seed repeats its inputs."""
    known = read_corpus("read_json")
    first, again = ([mutate(known, [b"[" * 600], Random(seed)) for seed in range(200)] for _ in range(2))
    assert first == again
    assert max(map(len, first)) <= BYTES_MAX
    assert len(set(first)) > 150


def test_what_breaks_a_law_is_saved_and_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The process that dies of an input leaves it behind, and the printed command runs it alone."""
    monkeypatch.setattr(run, "FOUND", tmp_path)
    child = subprocess.Popen([sys.executable, "-c", "import os; os.abort()"])
    scratch = tmp_path / "scratch"
    scratch.write_bytes(hunt.HEAD.pack(5, 0.0, 3) + b"abc" + b"\0" * 100)
    assert run._watch(child, scratch) == "the process ended with -6"
    saved = run._save("read_wire", b"abc", "it ended")
    assert "repeat it: python tests/fuzz/run.py --repeat " in capfd.readouterr().out
    assert run.repeat(saved, None) == 0, "nothing is wrong with it"
    assert saved.read_bytes() == b"abc"


class CalledPart:
    """A compiled part that notes which of its functions are called."""

    called: ClassVar[set[str]] = set()

    def __init__(self, path: str) -> None:
        self._part = ctypes.CDLL(path)

    def __getattr__(self, name: str) -> CalledFunction:
        self.__dict__[name] = CalledFunction(getattr(self._part, name))
        return self.__dict__[name]


class CalledFunction:
    """One of its functions."""

    def __init__(self, function: Any) -> None:
        self.__dict__["_function"] = function

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._function, name, value)

    def __call__(self, *arguments: Any) -> Any:
        CalledPart.called.add(self._function.__name__)
        return self._function(*arguments)


def test_every_function_in_c_is_fuzzed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new function that Python calls with payloads fails here until a target calls it."""
    exported = {
        name
        for part in sanitizers.PARTS
        for name in re.findall(r"^\w[\w ]* \**(tg_\w+)\(", (sanitizers.ROOT / part).read_text(), re.MULTILINE)
    }
    libraries = [json_rows.library, json_fields.library, avro_layout.library]
    monkeypatch.setattr(native_parts, "ctypes", SimpleNamespace(CDLL=CalledPart))
    for library in libraries:
        library.cache_clear()
    for target in targets.TARGETS:
        for octets in read_corpus(hunt._CORPUS_OF.get(target, target)):
            targets.TARGETS[target](octets)
    for library in libraries:
        library.cache_clear()
    assert exported
    assert exported == CalledPart.called


@pytest.mark.deep
@pytest.mark.heavy
def test_a_hunt_loads_the_sanitized_parts_and_no_others(tmp_path: Path) -> None:
    """Whatever way a module has imported what opens them."""
    sanitizers.compile_parts(tmp_path)
    program = (
        "import sys; sys.path[:0] = sys.argv[1:3]\n"
        "from fuzz import run, targets; from fuzz.hunt import _CORPUS_OF, read_corpus\n"
        "targets.load_sanitized_parts()\n"
        "for name in run._IN_C:\n"
        "    for octets in read_corpus(_CORPUS_OF.get(name, name)): targets.TARGETS[name](octets)\n"
        "print(*{line.split()[-1] for line in open('/proc/self/maps') if line.rstrip().endswith('.so')}, sep='\\n')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(sanitizers.ROOT), str(sanitizers.ROOT / "tests")],
        env=sanitizers.environment(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    names = {target.name for source, target in hatch_build.PARTS.items() if source in sanitizers.PARTS}
    loaded = {Path(line) for line in done.stdout.splitlines() if Path(line).name in names}
    assert loaded == {tmp_path / name for name in names}


@pytest.mark.deep
@pytest.mark.heavy
def test_the_sanitizers_see_a_read_beside_a_payload(tmp_path: Path) -> None:
    """The parts are loaded in place of the others, and one that reads a byte too many ends the process with a report."""
    assert sanitizers.has_compiler(), "make install needs gcc as well"
    sanitizers.compile_parts(tmp_path)
    program = (
        "import sys; sys.path[:0] = sys.argv[1:3]\n"
        "import numpy as np\n"
        "from fuzz import targets; targets.load_sanitized_parts()\n"
        "from tidegate.records.payloads import avro_layout as a\n"
        "octets, ends = np.zeros(4, np.uint8), np.array([0, int(sys.argv[3])], np.int32)\n"
        "limits, out, layout = np.array([9, 9, 9]), np.zeros(1, np.int64), np.array([a.LONG], np.int32)\n"
        "octets[:] = 0x80\n"
        "a.library().tg_avro_weights(layout.ctypes.data, octets.ctypes.data, ends.ctypes.data, 0, None, 0, 1, 0,"
        " limits.ctypes.data, out.ctypes.data)\n"
    )
    for end, is_seen in ((4, False), (5, True)):
        done = subprocess.run(
            [sys.executable, "-c", program, str(sanitizers.ROOT), str(sanitizers.ROOT / "tests"), str(end)],
            env=sanitizers.environment(tmp_path),
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert (done.returncode != 0, "heap-buffer-overflow" in done.stderr) == (is_seen, is_seen)
    assert subprocess.run([tmp_path / "kafka_pieces", "1", "0"], check=False).returncode == 0
