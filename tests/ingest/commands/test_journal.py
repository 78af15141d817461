"""What ``tidegate journal`` prints: every fact in words, and what a rebuild gave back."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from support.ingest_plans import ingest_plan, input_settings
from support.valkey_server import Server

from ingest.commands.journal import Format, print_facts, print_rebuilt
from ingest.config import IngestPlan
from ingest.cti_imports import ImportedInput
from ingest.journal.rebuild import RebuildReport, journal_keys
from ingest.journal.redis_journal import RedisJournal
from ordering.protocol.facts import Fact, FactKind
from ordering.protocol.journal import RecordSilence, Silence
from ordering.ticks import parse_tick

RAW = ("rides", 0)
NOON_US = parse_tick("2001-01-01T12:00:00Z")


def plan_of(server: Server) -> IngestPlan:
    """The plan of a job over one partition that imports CTIs."""
    return ingest_plan(
        settings=input_settings(__name__="rides"),
        redis=server.settings(),
        partitions=(RAW,),
        topic_ids={"rides": "id"},
        starts={},
        imported=ImportedInput("fast", "fast.ordered", 1),
    )


def test_every_fact_is_shown_in_words_and_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line a fact, times as times; of an input that the journal does not know that is said, and no trace is left."""
    monkeypatch.setenv("COLUMNS", "200")
    server = Server(tmp_path, "--appendonly", "yes", "--appendfsync", "always")
    try:
        plan, journal = plan_of(server), RedisJournal.open(server.settings())
        print_facts(plan, journal, Format.TEXT)
        assert "holds nothing of rides" in capsys.readouterr().out
        assert not journal.has_facts(plan.journal_key(RAW))
        given = [Fact(kind, 0 if kind == FactKind.BASE else 3, NOON_US + kind) for kind in FactKind if kind != FactKind.CLOSED]
        for key, kinds in journal_keys(plan, RAW).items():
            journal.restore(key, [fact for fact in given if fact.kind in kinds] + [Fact(FactKind.CLOSED, 9, 0)])
        journal.execute([RecordSilence(plan.journal_key(RAW), Silence(9, "boot", 60_000_000, NOON_US))])
        print_facts(plan, journal, Format.TEXT)
        text = capsys.readouterr().out
        print_facts(plan, journal, Format.JSON)
        told = json.loads(capsys.readouterr().out)
    finally:
        server.kill()
    words = ("silence", "imported CTI", "arrival of", "absurd", "counts from", "joined at", "all below is judged", "silent")
    assert all(word in text for word in (*words, "not read from here to"))
    assert "2001-01-01T12:00:00.000006Z, number 3" in text
    shown = {(fact["kind"], fact["position"], fact.get("value_us")) for fact in told["facts"]}
    assert shown >= {("clock", 3, NOON_US + 4), ("closed", 9, 0)}
    assert {"kind": "skip", "position": 3, "until": NOON_US + FactKind.SKIP} in told["facts"], "an offset is no time"
    assert told["silence"] == {"position": 9, "boot_id": "boot", "since_us": 60_000_000, "arrival_us": NOON_US}


def test_what_was_given_back_is_counted_by_kind(capsys: pytest.CaptureFixture[str]) -> None:
    """What stands otherwise is said too, and a dry run speaks of what would be."""
    rebuilt = RebuildReport({RAW: Counter(estimate=1_200, closed=1), ("rides", 1): Counter()}, {RAW: 2, ("rides", 1): 0})
    print_rebuilt(rebuilt, True, Format.TEXT)
    first, second = capsys.readouterr().out.split("rides-1: ")
    summary = "rides-0: would give back 1 closed, 1,200 estimate; 2 stand otherwise in the journal and stay so: another job was faster"
    assert " ".join(first.split()) == summary
    assert second.strip() == "nothing was missing"
    print_rebuilt(rebuilt, False, Format.JSON)
    assert [json.loads(line)["given_back"] for line in capsys.readouterr().out.splitlines()] == [{"closed": 1, "estimate": 1200}, {}]
