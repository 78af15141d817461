"""Planted bugs in the journal: its script, which a real Valkey runs, and what a planner knows of it."""

from __future__ import annotations

from planted.bug import CLIENT, HOSTILE, JOURNAL, Bug

_SCRIPT = "ingest/journal/redis_script.py"
_AS_IN_MEMORY = JOURNAL + "test_it_answers_as_the_journal_in_memory"
_STAMPS = JOURNAL + "test_a_stamp_is_below_no_earlier_one_and_below_no_estimate_that_it_closes"
_CLOSED = JOURNAL + "test_a_closed_position_takes_no_estimate"
_TWO_WRITERS = JOURNAL + "test_of_two_writers_both_go_on_with_the_larger_estimate"
_OLDER_COPY = JOURNAL + "test_an_older_copy_that_came_back_is_noticed"

JOURNALING = [
    Bug(
        "raised-though-closed",
        "A closed position takes no estimate.",
        3,
        _SCRIPT,
        "  if closed and position < closed then return '' end\n  local known",
        "  local known",
        _CLOSED,
    ),
    Bug(
        "opened-again",
        "A closed position stays closed.",
        3,
        _SCRIPT,
        "  if below <= closed then return '' end",
        "  if below == closed then return '' end",
        _CLOSED,
    ),
    Bug(
        "estimate-lowered",
        "At one position the largest estimate is in force, whoever made it.",
        3,
        _SCRIPT,
        "  local known = redis.call('HGET', names(facts, kind), position)\n  if known and known > value then value = known end",
        "",
        _TWO_WRITERS,
    ),
    Bug(
        "last-base-wins",
        "The base of a partition is that of its first writer.",
        3,
        _SCRIPT,
        "redis.call('HSETNX', facts, name, value)",
        "redis.call('HSET', facts, name, value)",
        _TWO_WRITERS,
    ),
    Bug(
        "stamp-falls",
        "Planning times never fall along a partition, even if the clock is set back.",
        1,
        _SCRIPT,
        "if not last or last_value < recent then",
        "if true then",
        _STAMPS,
    ),
    Bug(
        "stamp-below-an-estimate",
        "A stamp is not below an estimate in force at the positions that it closes.",
        3,
        _SCRIPT,
        "        if estimated > planned then planned = estimated end\n",
        "",
        _STAMPS,
    ),
    Bug(
        "read-without-the-one-in-force",
        "A replay reads the planning time in force at its first position too.",
        1,
        _SCRIPT,
        "  if is_planning == '1' then from = last_from(facts, kind, '[' .. from) or from end\n",
        "",
        _AS_IN_MEMORY,
    ),
    Bug(
        "forgotten-though-in-force",
        "The planning time in force at the first position that is left is not forgotten.",
        3,
        _SCRIPT,
        "  if is_planning == '1' then below = last_from(facts, kind, '[' .. below) or '' end\n",
        "",
        _AS_IN_MEMORY,
    ),
    Bug(
        "silence-of-another-boot",
        "A silence measured by the clock of another boot is replaced.",
        3,
        _SCRIPT,
        "(known_position == position and same_boot)",
        "known_position == position",
        _AS_IN_MEMORY,
    ),
    Bug(
        "older-copy-unnoticed",
        "A journal restored from an older copy is noticed before anything is written.",
        3,
        _SCRIPT,
        "tonumber(held[2] or '-1') >= tonumber(writes)",
        "tonumber(held[2] or '-1') >= 0",
        _OLDER_COPY,
    ),
    Bug(
        "older-copy-keeps-its-era",
        "Whoever gives lost facts back begins a new era, so that all others notice the loss.",
        3,
        _SCRIPT,
        "    elseif same then redis.call('HSET', KEYS[key], 'era', new_era) end",
        "    end",
        _OLDER_COPY,
    ),
    Bug(
        "known-closed-falls",
        "While the journal is away, nothing is planned that another may have judged, whatever range was closed last.",
        3,
        "ingest/journal/client.py",
        "known.closed[partition] = max(end, known.closed.get(partition, 0))",
        "known.closed[partition] = end",
        CLIENT + "test_a_replay_waits_and_so_does_all_where_outages_pause_or_ingest_stamps",
    ),
    Bug(
        "closed-given-back-low",
        "A journal that was emptied is given back all positions that were closed, also those ahead of a replay.",
        3,
        "ingest/journal/connection.py",
        "max(known.judged_to(partition), known.closed.get(partition, 0))",
        "known.judged_to(partition)",
        CLIENT + "test_a_replay_gives_back_what_others_have_closed_ahead_of_it",
    ),
    Bug(
        "undone-skip-given-back",
        "A skip that was undone does not come back with a journal that was emptied.",
        6,
        "ingest/journal/known_facts.py",
        "            if not skip.is_undone:\n",
        "            if skip is not None:\n",
        CLIENT + "test_skips_are_given_back_but_for_those_that_were_undone",
    ),
    Bug(
        "old-reading-believed",
        "Records are not judged by a clock reading that is older than they are.",
        3,
        "ingest/journal/impossible_facts.py",
        "if reading_us < absent_us - self._age_us:",
        "if reading_us < NEVER:",
        HOSTILE + "test_positions_closed_by_nobody_are_opened_again",
    ),
    Bug(
        "estimate-from-the-future-believed",
        "A fact ahead of the clock is no premise.",
        3,
        "ingest/journal/impossible_facts.py",
        "self.is_ahead(value, now_us) and value > memory.latest_us()",
        "self.is_ahead(value, now_us) and value < memory.latest_us()",
        HOSTILE + "test_an_estimate_far_ahead_of_the_clock_is_not_used",
    ),
]
