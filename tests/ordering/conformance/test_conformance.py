"""
The conformance kit: our own code passes it, independent code made it, and whoever is wrong is told so.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.make_vectors import FAMILIES, VECTORS, text_of, told_by
from support.naive_reader import Event, Line, NaiveChannel, NaiveReader
from support.repository import ROOT

from ordering.conformance.command import answer_lines, main
from ordering.conformance.kit import Implementation, Json, judge, load, questions, run
from ordering.conformance.own_answers import answer
from ordering.conformance.program import AnsweringProgram, EndedError
from ordering.errors import ProtocolError
from ordering.protocol.foreign import foreign_reason
from ordering.protocol.punctuation import Cti, Roster
from ordering.protocol.wire import CTI_HEADER_BYTES, decode_cti, decode_event_headers

GOLDEN = ROOT / "tests" / "golden"
OPERATIONS = sorted({question.operation for question in questions()})


def test_ours_answers_every_question_rightly() -> None:
    """Level 1: bytes, hashes, keys, reader stories and writer stories, each against what independent code told."""
    report = run(answer)
    assert report.is_ok, str(report)
    assert sorted(report.passed) == OPERATIONS
    assert not report.unsupported


@pytest.mark.parametrize("family", FAMILIES)
def test_the_files_are_what_the_generator_makes(family: str) -> None:
    """``python tests/support/make_vectors.py`` changes nothing: the same bytes on every run."""
    assert (VECTORS / f"{family}.json").read_text("utf-8") == text_of(FAMILIES[family]())


def test_every_file_is_described_and_asked() -> None:
    """The README names each file and each operation."""
    page = (VECTORS / "README.md").read_text("utf-8")
    assert {path.name for path in VECTORS.glob("*.json")} == {f"{family}.json" for family in FAMILIES}
    assert not [name for name in [*(f"{family}.json" for family in FAMILIES), *OPERATIONS] if f"`{name}`" not in page]


def test_the_dialogue_on_the_page_is_the_kits_own() -> None:
    """Level 1: the question that the README shows is one that is asked, and the answer shown is right."""
    page = (VECTORS / "README.md").read_text("utf-8")
    asked, answered = page.split("```text\n")[1].split("\n```")[0].splitlines()
    first = next(question for question in questions() if question.operation == "read")
    assert asked == json.dumps({"operation": first.operation, "given": first.given})
    assert json.loads(answered) == answer("read", first.given) == first.expected
    assert "Flush after each line" in page


def clock(system_us: int) -> str:
    """Return the time of day."""
    minutes, seconds = divmod(system_us // 1_000_000 % 86_400, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"


def policies_of(flags: int) -> str:
    """Return flags as golden files name them."""
    return "+".join(name for bit, name in ((1, "late"), (2, "out_of_order"), (128, "early")) if flags & bit)


@pytest.mark.parametrize(
    ("story", "golden"),
    [
        ("toll: the worked example", "toll.one_timeline"),
        ("toll, early off", "toll.early_off"),
        ("toll, early events moved back", "toll.early_adjust"),
        ("toll, over device, to the end", "toll.over_device"),
        ("toll, late events dropped", "toll.late_drop"),
        ("toll, disorder dropped", "toll.out_of_order_drop"),
        ("toll, no reorder, number 5 of 3 partitions", "toll.reorder_0"),
        ("seconds: late and out of order in one", "seconds.one_timeline"),
    ],
)
def test_the_worked_examples_are_those_written_by_hand(story: str, golden: str) -> None:
    """Level 1: what leaves, when and adjusted by what, is what stands in the golden files; in the end what is held follows."""
    case = next(case for case in load("writer") if case["name"] == story)
    with (GOLDEN / f"{golden}.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    (channel,) = [headers for headers in case["expected"]["channels"].values() if headers]
    events = decode_event_headers([bytes.fromhex(header) for header in channel])
    told = [(str(event["offset"]), clock(int(event["system_us"])), policies_of(int(event["flags"]))) for event in events]
    outcomes = ("released", "held") if case["given"]["finish"] else ("released",)
    by_hand = [
        (row["event_no"], row["system_time"].ljust(8, ":").replace(":::", ":00"), row["policies"])
        for row in rows
        if row["outcome"] in outcomes
    ]
    assert told == by_hand
    assert case["expected"]["dropped"] == [[int(row["event_no"]), row["policies"]] for row in rows if row["outcome"] == "dropped"]


def spoiled(value: Any) -> Any:
    """Return a JSON value with its first leaf changed."""
    if isinstance(value, dict):
        return {name: spoiled(each) if at == 0 else each for at, (name, each) in enumerate(value.items())}
    if isinstance(value, list):
        return [spoiled(value[0]), *value[1:]] if value else [0]
    return f"{value}0" if isinstance(value, str) else value + 1


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_answer_wrong_in_one_place_is_reported(operation: str) -> None:
    """Every question of every operation fails whose answer differs in its first value, and no other."""

    def wrong(asked: str, given: Json) -> Json:
        told = answer(asked, given)
        return spoiled(told) if asked == operation and "refused" not in told else told

    report = run(wrong, operation)
    refused = [question for question in questions() if question.operation == operation and question.expected == {"refused": True}]
    assert report.failures
    assert report.passed[operation] == len(refused)
    assert all(failure.question.where in str(report) for failure in report.failures)


def is_found(operation: str, implementation: Implementation) -> bool:
    """Return whether a mistake in one operation is found; nothing more is asked once it is."""
    return any(wrong for _, wrong in judge(implementation, operation))


def after(operation: str, mistake: Callable[[Json, Json], Json]) -> Implementation:
    """Return ours with a mistake in the answers of one operation: (given, answer) -> another answer."""

    def mistaken(asked: str, given: Json) -> Json:
        told = answer(asked, given)
        return mistake(given, told) if asked == operation else told

    return mistaken


BYTE_MISTAKES: dict[str, tuple[str, Callable[[Json, Json], Json]]] = {
    "the sign of the hash is dropped instead of cleared": (
        "partition",
        lambda given, told: {**told, "partition": [abs(told["murmur2"]) % count for count in given["partitions"]]},
    ),
    "the hash is unsigned": ("partition", lambda given, told: {**told, "murmur2": told["murmur2"] % 2**32}),
    "a key is its JSON text": ("key_bytes", lambda given, told: {"key": given["json"].encode().hex()}),
    "every event is version 1": ("encode_event", lambda given, told: {"header": "01" + told["header"][2:]}),
    "numbers are big-endian": (
        "encode_event",
        lambda given, told: {"header": told["header"][:16] + f"{given['seq']:016x}" + told["header"][32:]},
    ),
    "every CTI is version 2": ("encode_cti", lambda given, told: {**told, "header": "02" + told["header"][2:]}),
    "broken events are guessed at": ("decode_event", lambda given, told: {"number": 0} if "refused" in told else told),
    "broken CTIs are guessed at": ("decode_cti", lambda given, told: {"number": 0} if "refused" in told else told),
    "a list is ignored by a decoder": ("decode_cti", lambda given, told: {**told, "listed": []}),
    "any time of a source is taken": ("decode_source_cti", lambda given, told: {"c": 0} if "refused" in told else told),
}


@pytest.mark.parametrize("mistake", BYTE_MISTAKES)
def test_likely_mistakes_about_bytes_are_found(mistake: str) -> None:
    """What a first attempt at the protocol gets wrong."""
    operation, wrong = BYTE_MISTAKES[mistake]
    assert is_found(operation, after(operation, wrong))


class OverGaps(NaiveReader):
    """Accepts what lies beyond a gap."""

    def _take(self, offset: int, channel: NaiveChannel, record: Event) -> None:
        if record.seq > channel.last:
            channel.last = record.seq
            self.heard.accepted.append((offset, record))


class Twice(NaiveReader):
    """Accepts an event again that was written again."""

    def _take(self, offset: int, channel: NaiveChannel, record: Event) -> None:
        if record.seq <= channel.last + 1:
            channel.last = record.seq
            self.heard.accepted.append((offset, record))


class Believer(NaiveReader):
    """Lets a CTI count that promises events which are missing."""

    def _count_ctis(self, offset: int, number: int, channel: NaiveChannel) -> None:
        last, channel.last = channel.last, 2**62
        super()._count_ctis(offset, number, channel)
        channel.last = last


class Forgetful(NaiveReader):
    """Forgets a CTI that does not count at once."""

    def _count_ctis(self, offset: int, number: int, channel: NaiveChannel) -> None:
        super()._count_ctis(offset, number, channel)
        channel.waiting = []


class LastWord(NaiveReader):
    """Takes the last CTI for the truth, not the largest."""

    def _count_ctis(self, offset: int, number: int, channel: NaiveChannel) -> None:
        if any(cti.n <= channel.last + 1 for cti, _ in channel.waiting):
            channel.valid = None
        super()._count_ctis(offset, number, channel)


class OldRoster(NaiveReader):
    """Keeps to the roster it met first."""

    def _meet(self, offset: int, roster: Roster) -> None:
        if self.roster is None:
            super()._meet(offset, roster)


class Impatient(NaiveReader):
    """Calls time final as far as any channel has come."""

    def _raise_frontier(self, offset: int) -> None:
        most = max(channel.c for channel in self.channels.values())
        if most > self.frontier:
            self.frontier = most
            self.heard.frontier.append((offset, most))


class PartByPart(NaiveReader):
    """Lets each part of a CTI take effect by itself."""

    def _hear_cti(self, offset: int, channel: NaiveChannel, cti: Cti) -> None:
        super()._hear_cti(offset, channel, replace(cti, part=0, parts=1))


class AnyParts(NaiveReader):
    """Puts parts together whatever CTI they belong to."""

    def _hear_cti(self, offset: int, channel: NaiveChannel, cti: Cti) -> None:
        if channel.parts and cti.part == len(channel.parts):
            channel.parts = [replace(cti, part=part) for part in range(cti.part)]
        super()._hear_cti(offset, channel, cti)


class SoonSettled(NaiveReader):
    """Takes the first CTI after a start in the middle for the end of collecting."""

    def _vouch(self, offset: int, channel: NaiveChannel, cti: Cti) -> None:
        super()._vouch(offset, channel, cti)
        channel.settled = True


class FromAnywhere(NaiveReader):
    """Reads from the middle as from the beginning."""

    def __init__(self, partition: int, output_partitions: int, start_us: int | None = None) -> None:
        super().__init__(partition, output_partitions)


def line_of(line: Json) -> Line | None:
    """Return a record of a reader story as the naive reader hears it; None if it is none of the protocol."""
    header, value = (None if line.get(name) is None else bytes.fromhex(line[name]) for name in ("header", "value"))
    if header is None or foreign_reason(header, value):
        return None
    if len(header) == CTI_HEADER_BYTES:
        return line["offset"], decode_cti(header, value or b"", 0)
    row = decode_event_headers([header])[0]
    return line["offset"], Event(int(row["number"]), int(row["seq"]), int(row["system_us"]))


def read_by(kind: type[NaiveReader]) -> Implementation:
    """Return an implementation that reads as a naive reader of some kind does."""

    def read(operation: str, given: Json) -> Json:
        naive = kind(given["partition"], given["output_partitions"], given["start_us"])
        try:
            heard = [line for line in map(line_of, given["log"]) if line is not None]
        except ProtocolError:
            return {"refused": True}
        for line in heard:
            naive.hear(*line)
        return told_by(naive)

    return read


@pytest.mark.parametrize(
    "reader", [OverGaps, Twice, Believer, Forgetful, LastWord, OldRoster, Impatient, PartByPart, AnyParts, SoonSettled, FromAnywhere]
)
def test_likely_mistakes_of_readers_are_found(reader: type[NaiveReader]) -> None:
    """Each rule of a reader has a story that tells whoever breaks it; without the mistake the same code passes."""

    assert is_found("read", read_by(reader)), reader.__doc__
    assert not is_found("read", read_by(NaiveReader))


def test_a_reader_that_moves_time_by_the_key_alone_is_found() -> None:
    """Level 1: results of a key that comes from two input partitions are in the order of time only along each of them."""

    def by_key_alone(operation: str, given: Json) -> Json:
        told, reached = answer(operation, given), dict[tuple[int, str], int]()
        moved = []
        for position, number, origin, key, system_us in told["moved"]:
            if system_us > reached.get((number, key), 0):
                reached[number, key] = system_us
                moved.append([position, number, origin, key, system_us])
        return {**told, "moved": moved}

    report = run(by_key_alone, "substreams")
    assert [failure.question.where for failure in report.failures] == [
        "substreams.json: results of a key from two input partitions: s falls along the key"
    ]


def with_policy(**changed: str | int | None) -> Callable[[Json], Json]:
    """Return what has a writer follow other policies than it was given."""
    return lambda given: {**given, "policies": {**given["policies"], **changed}}


WRITER_MISTAKES: dict[str, Callable[[Json], Json]] = {
    "early is not tested": with_policy(early_us=None),
    "early events are always dropped": with_policy(early_action="drop"),
    "late events are always adjusted": with_policy(late_action="adjust"),
    "disorder is always adjusted": with_policy(out_of_order_action="adjust"),
    "violations are always dropped": with_policy(cti_violation_action="drop"),
    "reorder is ignored": with_policy(reorder_us=0),
    "substreams are ignored": lambda given: {**given, "over": False},
    "one substream is all": lambda given: {**given, "log": [{**line, "key": ""} for line in given["log"]]},
    "the roster number is ignored": lambda given: {**given, "number": 0},
    "joining is ignored": lambda given: {**given, "joined_us": None},
    "the CTIs' delay is ignored": lambda given: {**given, "cti_delay_us": 0},
    "estimates are ignored": lambda given: {**given, "estimates": []},
    "imports are ignored": lambda given: {**given, "imports": []},
    "the end is ignored": lambda given: {**given, "finish": False},
    "CTIs of the source are unreadable": lambda given: {
        **given,
        "log": [{name: value for name, value in line.items() if name != "source_cti_us"} for line in given["log"]],
    },
    "arrivals are as stamped by the last record": lambda given: {**given, "log": given["log"][:-1]},
}


@pytest.mark.parametrize("mistake", WRITER_MISTAKES)
def test_likely_mistakes_of_writers_are_found(mistake: str) -> None:
    """Each setting and each journaled fact decides a story: who ignores it is told so."""

    def mistaken(asked: str, given: Json) -> Json:
        return answer(asked, WRITER_MISTAKES[mistake](given))

    assert is_found("write", mistaken)


CTI_MISTAKES: dict[str, tuple[Callable[[list[list[int]]], list[list[int]]], str]] = {
    "one that says too much": (lambda ctis: [[ctis[0][0], ctis[-1][1], 0, 0], *ctis], "belied"),
    "one with another ahead": (lambda ctis: [[*ctis[0][:3], ctis[0][3] + 1], *ctis], "ahead"),
    "one twice": (lambda ctis: [ctis[0], *ctis], "does not rise"),
    "one of events that are none": (lambda ctis: [[ctis[0][0], ctis[0][1], 10**6, 0], *ctis], "belied"),
    "no last one": (lambda ctis: ctis[:-1], "last"),
    "none at all": (lambda ctis: [], "last"),
}


@pytest.mark.parametrize("mistake", CTI_MISTAKES)
def test_ctis_that_say_what_is_not_so_are_found(mistake: str) -> None:
    """How many CTIs there are is free, what they say is not."""
    change, told = CTI_MISTAKES[mistake]
    report = run(after("write", lambda given, told: {**told, "ctis": change(told["ctis"])} if told["ctis"] else told), "write")
    assert any(told in failure.problem for failure in report.failures)


def test_what_is_not_offered_is_not_passed() -> None:
    """A mere reader is checked as far as it goes, lists and what it waits for left out; who offers nothing has not passed."""

    def reader(operation: str, given: Json) -> Json:
        if operation != "read":
            return {"unsupported": True}
        told = answer(operation, given)
        return told if "refused" in told else {name: told[name] for name in ("accepted", "progress", "frontier")}

    report = run(reader)
    assert report.is_ok
    assert set(report.passed) == {"read"}
    assert sorted(report.unsupported) == [operation for operation in OPERATIONS if operation != "read"]
    assert "not offered" in str(report)
    assert not run(lambda operation, given: {"unsupported": True}).is_ok


def test_an_implementation_that_breaks_down_is_reported() -> None:
    """An exception is a wrong answer, and the other questions are asked all the same."""

    def broken(operation: str, given: Json) -> Json:
        if operation == "key_bytes":
            raise KeyError("no such thing")
        return answer(operation, given)

    report = run(broken, "key_bytes", "partition")
    assert {failure.question.operation for failure in report.failures} == {"key_bytes"}
    assert "KeyError" in str(report)
    assert set(report.passed) == {"partition"}


def test_a_program_in_any_language_is_asked_line_by_line() -> None:
    """Ours as another process passes; one that ends or answers no JSON object is reported."""
    with AnsweringProgram([sys.executable, "-m", "ordering.conformance", "--answer"]) as program:
        assert run(program).is_ok
    with python("while True: input(); print([], flush=True)") as program, pytest.raises(ValueError, match="not a JSON object"):
        program("key_bytes", {"json": "1"})


@pytest.mark.parametrize("ctis", [None, [], 7, [[0]], {"0": 1}, [[0, 1, None, 0]]])
def test_an_answer_of_a_wrong_form_is_a_wrong_answer(ctis: object) -> None:
    """It ends neither the run nor the kit, wherever it stands."""
    report = run(lambda operation, given: {**answer(operation, given), "ctis": ctis}, "write", "key_bytes")
    assert report.passed["key_bytes"] == 29
    assert report.passed["write"] == 0
    assert len(report.failures) == 53


def python(code: str, timeout_s: float = 60.0) -> AnsweringProgram:
    """Return a program under test, in Python."""
    return AnsweringProgram([sys.executable, "-c", code], timeout_s)


ONE_ANSWER = "input(); print('{}', flush=True); "
ENDINGS = {
    "one that dies": (ONE_ANSWER + "input(); raise SystemExit(3)", "ended without an answer, with exit status 3"),
    "one that reads nothing": ("raise SystemExit(0)", "ended without an answer, with exit status 0"),
    "one that closes its output": ("import os, time; input(); os.close(1); time.sleep(60)", "closed its output"),
    "one that hangs": (ONE_ANSWER + "import time; time.sleep(60)", "does it flush each line?"),
    "one that does not flush": ("import sys\nout = open(1, 'w')\nfor line in sys.stdin: out.write('{}\\n')", "does it flush each line?"),
    "one whose helper hangs": ("import subprocess; subprocess.run(['sleep', '60'])", "does it flush each line?"),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_program_that_answers_no_more_is_asked_no_more(ending: str) -> None:
    """It is said once, with what became of it; nothing waits for it for ever, and nothing of it goes on."""
    code, told = ENDINGS[ending]
    with python(code, timeout_s=2.0) as program:
        report = run(program, "key_bytes")
    assert told in report.failures[-1].problem
    assert str(report).count("nothing more was asked") == 1
    assert len(report.failures) == (2 if code.startswith(ONE_ANSWER) else 1)
    assert not report.is_ok


def test_a_question_that_a_program_does_not_take_is_given_up() -> None:
    """Level 1: a line longer than a pipe holds blocks the asker, not only the one who waits for an answer."""
    with python("import time; time.sleep(60)", timeout_s=1.0) as program, pytest.raises(EndedError, match="within 1 s"):
        program("key_bytes", {"json": "1" * 10**6})


def test_a_program_that_does_not_end_with_its_input_is_ended() -> None:
    """The kit comes back although the program would go on; an error of the asker ends it at once."""
    with python("import time; input(); print('{}', flush=True); time.sleep(60)", timeout_s=1.0) as program:
        assert program("key_bytes", {}) == {}
    with pytest.raises(KeyboardInterrupt), python("import time; time.sleep(60)"):
        raise KeyboardInterrupt


def test_the_command_line_lists_and_checks(capsys: pytest.CaptureFixture[str]) -> None:
    """It exits with 0 if all is right, 1 if not; ``--list`` shows each question."""
    assert main([]) == 0
    assert "0 wrong" in capsys.readouterr().out
    assert main(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(list(questions()))
    nothing = "import sys\nfor line in sys.stdin: print('{}', flush=True)"
    assert main([sys.executable, "-c", nothing]) == 1
    assert "0 right" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["./there-is-no-such-program"], "cannot start ./there-is-no-such-program: No such file or directory"),
        (["/"], "cannot start /: Permission denied"),
        (["--timeout", "0", "cat"], "0 is no number of seconds above 0"),
        (["--timeout", "soon", "cat"], "soon"),
    ],
)
def test_a_wrong_command_line_is_refused_in_a_sentence(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 2 and the usage, as for any wrong argument."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert told in capsys.readouterr().err


def test_the_command_line_waits_as_long_as_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """``--timeout`` is of one answer."""
    assert main(["--timeout", "0.5", "sleep", "60"]) == 1
    assert "no answer within 0.5 s: does it flush each line?" in capsys.readouterr().out


def test_answers_are_lines() -> None:
    """A question a line, an answer a line."""
    asked = io.StringIO('{"operation": "key_bytes", "given": {"json": "true"}}\n{"operation": "fly", "given": {}}\n')
    answers = io.StringIO()
    answer_lines(answer, asked, answers)
    assert [json.loads(line) for line in answers.getvalue().splitlines()] == [{"key": b"true".hex()}, {"unsupported": True}]
