"""Planted bugs in what a planner plans: estimates, imports, partitions that join, the end."""

from __future__ import annotations

from planted.bug import Bug

_PLANNER = "tests/ingest/planner/test_planner.py::"
_IDLE = "ingest/planner/idle_estimates.py"
_JOINING = _PLANNER + "test_partitions_that_join_together_get_numbers_by_name_at_the_largest_promise"

PLANNING = [
    Bug(
        "estimate-over-open-transaction",
        "While an open transaction holds records back no estimate is made.",
        3,
        _IDLE,
        "ends = self._admin.ends(due, committed=False)",
        "ends = self._admin.ends(due)",
        _PLANNER + "test_silence_counts_only_if_nothing_was_written_not_even_in_an_open_transaction",
    ),
    Bug(
        "estimate-over-unread-records",
        "An estimate is made only where everything has been read.",
        3,
        _IDLE,
        "for partition in due if ends[partition] == positions[partition].next_offset}",
        "for partition in due if ends[partition] >= positions[partition].next_offset}",
        _PLANNER + "test_a_record_that_comes_while_ends_are_asked_for_gets_no_estimate",
    ),
    Bug(
        "base-of-the-fastest",
        "A partition without any record begins at the smallest frontier of the others.",
        3,
        _IDLE,
        "self.slowest_us = min(arrivals_us, default=None)",
        "self.slowest_us = max(arrivals_us, default=None)",
        _PLANNER + "test_a_partition_without_records_follows_the_slowest_of_the_others",
    ),
    Bug(
        "import-above-unread-records",
        "An imported CTI counts only where everything has been read.",
        4,
        "ingest/planner/imports.py",
        "if ends[partition] == positions[partition].next_offset]",
        "if ends[partition] >= positions[partition].next_offset]",
        _PLANNER + "test_an_import_counts_only_where_all_has_been_read",
    ),
    Bug(
        "joins-behind-a-channel",
        "A partition joins at a time that no channel has passed.",
        4,
        "ingest/planner/joining_partitions.py",
        "moment_us = self._latest_us(promises)",
        "moment_us = max([TICK_MIN, self._plan.start_us, min(cti.c for channels in promises.values() for cti in channels.values())])",
        _JOINING,
    ),
    Bug(
        "joins-in-any-order",
        "Partitions that join together get roster numbers by topic and partition.",
        4,
        "ingest/planner/joining_partitions.py",
        "self._plan_joins(offset, sorted(new))",
        "self._plan_joins(offset, sorted(new, reverse=True))",
        _JOINING,
    ),
    Bug(
        "ended-though-one-is-behind",
        "A run to the present end ends once every partition is read.",
        6,
        "ingest/planner/planner.py",
        "is_final = all(partition in reached",
        "is_final = any(partition in reached",
        _PLANNER + "test_a_run_to_the_present_end_ends_once_every_partition_is_read",
    ),
]
