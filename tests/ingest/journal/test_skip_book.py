"""Skips in the journal: asked, in force, undone; and what is left of them after the journal was rebuilt."""

from __future__ import annotations

import itertools
import shlex
from dataclasses import replace

import pytest

from ingest.config import own_key
from ingest.journal.redis_journal import RedisJournal, notes_key
from ingest.journal.skip_book import KnownSkips, SkipBook
from ingest.skips import Skip
from ordering.errors import RefusedError

RAW = ("raw", 0)
SKIP = Skip(*RAW, 41, 60, "it stops the job", "ann@host", "2024-03-01T00:00:00Z")
OTHER = Skip("raw", 1, 7, 8, "and this one")
_ids = itertools.count()


def book_of(journal: RedisJournal, topic_id: str, ordered: str = "raw.ordered") -> SkipBook:
    """The skips of one ordered topic."""
    keys = {("raw", number): own_key(ordered, ("raw", number), topic_id) for number in range(2)}
    return SkipBook(journal, ordered, topic_id, keys)


def test_a_request_waits_until_it_is_put_in_force_and_keeps_its_reason(journal: RedisJournal) -> None:
    """Of this ordered topic only; the same again changes nothing."""
    book = book_of(journal, topic_id := f"id{next(_ids)}")
    assert book.read() == KnownSkips()
    for skip in (SKIP, OTHER, SKIP):
        book.write(skip)
    assert book.read() == KnownSkips(asked=(SKIP, OTHER))
    book.put_in_force((SKIP,))
    assert book.read() == KnownSkips((SKIP,), (OTHER,))
    assert book_of(journal, topic_id, "another.ordered").read() == KnownSkips()


def test_what_is_undone_is_remembered_and_may_be_asked_for_again(journal: RedisJournal) -> None:
    """The fact is gone, the note stays: events may have been written under it."""
    book = book_of(journal, f"id{next(_ids)}")
    book.write(SKIP)
    book.put_in_force((SKIP,))
    book.undo(SKIP)
    assert book.read() == KnownSkips(undone=(replace(SKIP, is_undone=True),))
    book.write(replace(SKIP, end=50))
    assert book.read() == KnownSkips(asked=(replace(SKIP, end=50),))


def test_facts_without_notes_are_skips_whose_reason_nobody_knows(journal: RedisJournal) -> None:
    """CTIs carry offsets only."""
    book = book_of(journal, f"id{next(_ids)}")
    book.put_in_force((SKIP, OTHER))
    assert book.read().in_force == (Skip(*RAW, 41, 60), Skip("raw", 1, 7, 8))


@pytest.mark.parametrize(
    "text", ["[", "5", "[1]", '[{"topic": "raw"}]', '[{"topic": "raw", "partition": "0", "start": 1, "end": 2}]', "[" * 10_000]
)
def test_notes_that_others_have_written_are_refused_by_name_until_they_are_deleted(text: str, journal: RedisJournal) -> None:
    """Nobody knows then what is to be skipped. The command that is printed makes the book usable again."""
    book = book_of(journal, topic_id := f"id{next(_ids)}")
    book.write(OTHER)
    journal._client.hset(notes_key("raw.ordered", topic_id), "notes", text)
    for use in (book.read, lambda: book.write(SKIP)):
        with pytest.raises(RefusedError) as refusal:
            use()
        assert refusal.value.code == "TG-REDIS-CONTENT"
        assert topic_id in refusal.value.what
    typed = shlex.split(refusal.value.example)
    assert typed[0] == "redis-cli"
    journal._client.execute_command(*typed[1:])
    book.write(SKIP)
    assert book.read().asked == (SKIP,)
