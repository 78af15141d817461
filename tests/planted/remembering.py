"""Planted bugs in what is remembered: forgetting and saved state (spec sections 2 and 6)."""

from __future__ import annotations

from planted.bug import CTIS, LAW, SIMULATION, STATE, Bug

_EVENTS = LAW + "test_events_do_not_depend_on_batches_crashes_or_the_moment_of_estimates"
_RESTORED = STATE + "test_a_state_saved_and_restored_between_any_two_records_tells_no_other_story"
_FORGOTTEN = STATE + "test_what_is_forgotten_is_never_missed"

REMEMBERING = [
    Bug(
        "forgotten-though-held",
        "A timeline with an event held is not forgotten.",
        2,
        "model/state.py",
        "            needed[chunk.held.rows.timeline[chunk.held.is_waiting]] = True",
        "            needed[chunk.held.rows.timeline[chunk.held.is_waiting]] |= False",
        _FORGOTTEN,
    ),
    Bug(
        "forgotten-above-the-floor",
        "A timeline whose own watermark is above the floor is not forgotten.",
        2,
        "model/state.py",
        "needed = table.largest_us - reorder_us > self.floor_us",
        "needed = table.largest_us - reorder_us > 2**63 - 2",
        _FORGOTTEN,
    ),
    Bug(
        "never-forgotten",
        "Timelines that no later event can meet are forgotten.",
        2,
        "model/state.py",
        "        self._renumber(table.forget(needed))",
        "        self.rows_since_forget = 0",
        STATE + "test_forgetting_timelines_changes_nothing_but_the_size_of_the_state",
    ),
    Bug(
        "chunk-deleted-too-early",
        "A saved chunk is deleted only when nothing in it can count any more.",
        6,
        "model/state.py",
        "chunk.needed_until_us = max(int(part.max()) for part in times_us if len(part))",
        "chunk.needed_until_us = min(int(part.min()) for part in times_us if len(part))",
        _RESTORED,
    ),
    Bug(
        "merge-loses-timelines",
        "Chunks merged into one keep the timelines that moved in them.",
        6,
        "model/state.py",
        "merged.timelines = self.timelines.drop_repeats(merged.timelines[newest])",
        "merged.timelines = merged.timelines[:0]",
        _RESTORED,
    ),
    Bug(
        "restored-smallest",
        "Of a timeline in several chunks the largest value counts.",
        6,
        "model/state.py",
        "newer = part.largest_us >= timelines.largest_us[part.timelines]",
        "newer = (timelines.largest_us[part.timelines] == NEVER) | (part.largest_us < timelines.largest_us[part.timelines])",
        _RESTORED,
    ),
    Bug(
        "restored-without-what-is-at-the-watermark",
        "An event at its watermark is held, also after a restore.",
        6,
        "model/state.py",
        "is_waiting = rows.system_us >= watermark_us[rows.timeline]",
        "is_waiting = rows.system_us > watermark_us[rows.timeline]",
        _RESTORED,
    ),
    Bug(
        "restored-without-what-is-ahead",
        "What is ahead of the CTI is still counted after a restore.",
        6,
        "model/state.py",
        "        saved.ahead.pop_below(self.c)",
        "        saved.ahead.pop_below(self.c + 1)",
        CTIS + "test_ctis_are_written_where_they_are_due_and_say_exactly_what_holds_there",
    ),
    Bug(
        "restored-without-the-count",
        "How many events were accepted is saved.",
        6,
        "model/state.py",
        ' "accepted_count",',
        "",
        CTIS + "test_ctis_by_count_or_time_are_a_function_of_the_log",
    ),
    Bug(
        "skipped-though-written",
        "A skip holds only if no event that an earlier attempt has written differs.",
        6,
        "ingest/stage/earlier_attempt.py",
        "if self._headers_by_output[output].get(seq, header) != header:",
        "if not self._headers_by_output[output].get(seq, header):",
        SIMULATION + "test_no_seed_with_skips_diverges",
    ),
    Bug(
        "restored-without-promise",
        "The largest CTI of the source is saved.",
        6,
        "model/state.py",
        ' "promise_us",',
        "",
        _RESTORED,
    ),
]
