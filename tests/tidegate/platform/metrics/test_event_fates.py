"""What a job says of events that it moved, dropped or could not use."""

from __future__ import annotations

from tidegate.platform.metrics.event_fates import count_records, describe_fates, fates_as_dict, format_share

TOTALS = {
    "events_in": 9_997,
    "early": 20,
    "early_adjusted": 0,
    "late_adjusted": 1_500,
    "out_of_order_dropped": 1,
    "unreadable": 4,
    "dead_letter_timestamp": 4,
    "dead_letter_arrival_ahead": 3,
}


def test_moved_dropped_and_dead_letters_are_told_with_their_share_of_all_records() -> None:
    """Records without a plausible arrival never reach the model: they are counted here all the same."""
    assert count_records(TOTALS) == 10_000
    assert describe_fates(TOTALS) == (
        "moved: 1,500 late (15 %); dropped: 20 early (0.2 %), 1 out of order (0.010 %); "
        "dead letters: 4 timestamp (0.040 %), 3 arrival ahead (0.030 %)"
    )
    assert fates_as_dict(TOTALS)["dropped"]["early"] == {"count": 20, "share": 0.002}


def test_nothing_is_said_where_nothing_happened() -> None:
    """An empty text, no share of nothing."""
    assert (describe_fates({"events_in": 5}), fates_as_dict({})) == ("", {})


def test_a_few_of_many_are_never_none() -> None:
    """One in ten million shows."""
    assert [format_share(share) for share in (0.5, 0.0123, 0.00004, 1e-7)] == ["50 %", "1.2 %", "0.004 %", "under 0.001 %"]
