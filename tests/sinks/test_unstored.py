"""For how long the oldest result that a store lacks has been seen."""

from __future__ import annotations

from sinks.copying.unstored import UnstoredAge

PLACE = ("results", 0)


def test_the_age_is_that_of_the_oldest_end_that_is_not_stored() -> None:
    """It rises while nothing is stored, falls to that of the next end, and is 0 once all is there; each store has its own."""
    now = [0.0]
    ages = UnstoredAge(lambda: now[0])
    for end in (10, 20, 20, 30):
        ages.record({PLACE: end}, {"fast": {PLACE: 0}, "slow": {PLACE: 0}})
        now[0] += 5
    assert ages.age_s({PLACE: 0}) == 20
    assert ages.age_s({PLACE: 9}) == 20
    assert ages.age_s({PLACE: 10}) == 15
    assert ages.age_s({PLACE: 20}) == 5
    assert ages.age_s({PLACE: 30}) == 0
    ages.record({PLACE: 30}, {"fast": {PLACE: 30}, "slow": {PLACE: 12}})
    assert ages.age_s({PLACE: 12}) == 15
    ages.record({PLACE: 30}, {"fast": {PLACE: 30}, "slow": {PLACE: 30}})
    assert ages.age_s({PLACE: 30}) == 0


def test_an_outage_of_days_costs_little_memory() -> None:
    """The oldest end stays exact, whatever is forgotten between."""
    now = [0.0]
    ages = UnstoredAge(lambda: now[0])
    for end in range(1, 100_000, 7):
        ages.record({PLACE: end}, {"store": {PLACE: 0}})
        now[0] += 2
    assert ages.age_s({PLACE: 0}) == now[0]
    assert sum(map(len, ages._seen.values())) <= 1_000
