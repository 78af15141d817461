"""
Anomaly detection: scores against an independent, slow reference that follows the formulas one row at a time.

The reference uses the error function of the C library and adds floats, so scores are compared within 1e-9.
"""

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.query_oracle import Event
from support.script_runs import answers_of

from ordering.errors import QueryError
from query.operators.windows import anomalies
from query.operators.windows.anomalies import error_function

SECOND = 1_000_000
CUTS = st.lists(st.integers(1, 45 * SECOND), max_size=4)
# Sequences with a value that repeats, with NULL, with distant values and numbers beyond 2**53.
VALUES = st.lists(st.sampled_from([0, 1, 1.5, 2, 5, -3, 1e6, 1e300, -1e300, 2**60, None]), max_size=40)


def upper(value: float, history: list[float]) -> float:
    """The probability that the kernels of the history give to what is above a value."""
    deviation = spread(history)
    width = max(math.sqrt(2) * (1 if len(history) == 1 else deviation), 1e-6)
    return math.fsum(0.5 - math.erf((value - each) / width) / 2 for each in history) / len(history)


def spread(values: list[float]) -> float:
    """The deviation of values."""
    exact = list(map(Fraction, values))
    mean = sum(exact) / len(exact)
    variance = sum((each - mean) ** 2 for each in exact) / len(exact)
    scale = max(abs(each) for each in exact) or Fraction(1)
    return float(scale) * math.sqrt(variance / scale**2)


def spike(window: list[float], confidence: float, size: int, mode: str) -> tuple[int, float]:
    """Judge the last row of a window."""
    *history, value = window[-size - 1 :]
    p = upper(value, history) if history else 0.5
    p = {"spikes": p, "dips": 1 - p, "spikesanddips": min(p, 1 - p)}[mode]
    p = min(max(p, 1e-8), 1 - 1e-8)
    return int(p <= 1 - confidence / 100 and 2 * len(history) >= size), p


def change(window: list[float], confidence: float, size: int) -> tuple[int, float]:
    """Bet against the rows of a window one by one."""
    values = window[-size - 1 :]
    if len(values) == 1:
        return 0, 1.0
    bets = []
    for n in range(1, len(values)):
        p = upper(values[n], values[:n])
        p = min(max(2 * min(p, 1 - p), 1 / (n + 1)), 1 - 1e-8)
        # The mixture is the integral of e * p ** (e - 1) over e from 0 to 1, by Gauss and Legendre.
        nodes, weights = np.polynomial.legendre.leggauss(40)
        e = (nodes + 1) / 2
        bets.append((0.1 * p**-0.9 + float((weights / 2 * e * p ** (e - 1)).sum())) / 2)
    capital = max([1.0, *(math.prod(bets[start:]) for start in range(len(bets)))])
    return int(capital * (1 - confidence / 100) >= 1 and 2 * len(bets) >= size), capital


def scores_of(function: str, values: list[Any], cuts: list[int], over: str = "LIMIT DURATION(second, 12)", start_us: int = 0) -> list[Any]:
    """The records of a function over rows that are a second apart."""
    events = [Event(0, (number + 1) * SECOND, {"v": value, "w": number % 3}) for number, value in enumerate(values)]
    answers = answers_of(f"SELECT {function} OVER ({over}) AS s INTO out FROM a", {"a": events}, cuts, start_us=start_us)
    assert answers.reasons == []
    return [json.loads(value)["s"] for value in answers.values()]


@settings(max_examples=40, deadline=None)
@given(VALUES, st.sampled_from([2, 4, 20]), st.sampled_from([1, 80, 99.5]), st.sampled_from(["spikes", "dips", "spikesanddips"]), CUTS)
def test_spikes_and_dips_are_those_of_the_formulas(values: list[Any], size: int, confidence: float, mode: str, cuts: list[int]) -> None:
    """Level 3: wherever time is cut, and from the middle on, scores are the same; they are those of the reference."""
    _agree(f"AnomalyDetection_SpikeAndDip(v, {confidence}, {size}, '{mode}')", values, cuts, lambda w: spike(w, confidence, size, mode))


@settings(max_examples=40, deadline=None)
@given(VALUES, st.sampled_from([2, 4, 20]), st.sampled_from([1, 80, 99.5]), CUTS)
def test_change_points_are_those_of_the_formulas(values: list[Any], size: int, confidence: float, cuts: list[int]) -> None:
    """Level 3, as above."""
    values = [value and max(min(value, 1e100), -1e100) for value in values]
    _agree(f"AnomalyDetection_ChangePoint(v, {confidence}, {size})", values, cuts, lambda w: change(w, confidence, size))


def _agree(function: str, values: list[Any], cuts: list[int], reference: Any) -> None:
    found = scores_of(function, values, [])
    assert scores_of(function, values, cuts) == found
    assert scores_of(function, values, cuts, start_us=20 * SECOND) == found[19:]
    for number, (value, score) in enumerate(zip(values, found, strict=True)):
        if value is None:
            assert score is None
            continue
        window = [float(each) for each in values[max(0, number - 12) : number + 1] if each is not None]
        is_anomaly, expected = reference(window)
        assert score["Score"] == pytest.approx(expected, rel=1e-6, abs=1e-9)
        # A score at the very limit may be rounded to either side of it.
        assert score["IsAnomaly"] == is_anomaly or is_near_limit(score["Score"], function)


def test_a_long_history_is_computed_in_portions_that_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """A history of 1,200 rows, as the example of Stream Analytics' page has it, takes a portion for each dozen rows."""
    window = np.random.default_rng(3).normal(20, 3, 1201)
    in_portions = anomalies._capital(window)
    monkeypatch.setattr(anomalies, "_TERMS_MAX", 10**6)
    assert anomalies._capital(window) == in_portions
    monkeypatch.setattr(anomalies, "_TERMS_MAX", 1)
    assert anomalies._capital(window[:40]) == pytest.approx(change(window[:40].tolist(), 80, 1200)[1])


def is_near_limit(score: float, function: str) -> bool:
    """Whether rounding may decide on which side of the limit a score lies."""
    level = 1 - float(function.split(",")[1]) / 100
    return abs(score - level) < 1e-6 or ("ChangePoint" in function and abs(score * level - 1) < 1e-4)


def test_a_spike_is_found_once_and_a_new_level_for_a_while() -> None:
    """By eye: one high value among forty that vary; then twelve on another level."""
    noise = [10, 11, 9, 10.5, 9.5] * 6
    spiked = [*noise, 40, *noise]
    over = "LIMIT DURATION(minute, 5)"
    found = scores_of("AnomalyDetection_SpikeAndDip(v, 95, 30, 'spikes')", spiked, [], over)
    assert [number for number, score in enumerate(found) if score["IsAnomaly"]] == [30]
    assert not any(score["IsAnomaly"] for score in scores_of("AnomalyDetection_SpikeAndDip(v, 95, 30, 'dips')", [*noise, 40], [], over))
    changed = scores_of("AnomalyDetection_ChangePoint(v, 90, 60)", [*noise, *noise, *(each + 30 for each in noise[:12])], [], over)
    found = [number for number, score in enumerate(changed) if score["IsAnomaly"]]
    assert 61 <= found[0] <= 65
    one = scores_of("AnomalyDetection_ChangePoint(v, 90, 40)", spiked, [], over)
    assert not any(score["IsAnomaly"] for score in one)


def test_a_row_that_does_not_meet_when_has_no_score_and_is_no_history() -> None:
    """Else an alert would be repeated by rows that were never judged."""
    found = scores_of(
        "AnomalyDetection_SpikeAndDip(v, 95, 4, 'spikes')", [1, 100, 100, 1, 100, 100, 1], [], "LIMIT DURATION(hour, 1) WHEN w = 0"
    )
    assert [score is None for score in found] == [False, True, True, False, True, True, False]
    assert [score["Score"] for score in found if score] == [0.5, 0.5, 0.5]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("AnomalyDetection_SpikeAndDip(v, 95, 120) OVER (LIMIT DURATION(hour, 1))", "takes 4 argument"),
        ("AnomalyDetection_SpikeAndDip(v, 0, 120, 'dips') OVER (LIMIT DURATION(hour, 1))", "a number from 1 to 100"),
        ("AnomalyDetection_SpikeAndDip(v, 95, 1, 'dips') OVER (LIMIT DURATION(hour, 1))", "from 2 to 10000"),
        ("AnomalyDetection_SpikeAndDip(v, 95, 9, 'up') OVER (LIMIT DURATION(hour, 1))", "no such mode"),
        ("AnomalyDetection_ChangePoint(*, 95, 9) OVER (LIMIT DURATION(hour, 1))", "takes a value"),
        ("AnomalyDetection_ChangePoint(v, 95, 2001) OVER (LIMIT DURATION(hour, 1))", "from 2 to 2000"),
        ("AnomalyDetection_ChangePoint(v, 95, 9)", "how far back"),
    ],
)
def test_a_wrong_call_is_refused_with_an_example_that_works(call: str, message: str) -> None:
    """The example of each error is played."""
    with pytest.raises(QueryError) as caught:
        answers_of(f"SELECT {call} AS s INTO out FROM a", {"a": []})
    assert message in str(caught.value)
    assert caught.value.example
    answers_of(f"SELECT {caught.value.example} AS s INTO out FROM a", {"a": []})


def test_the_error_function_is_that_of_the_c_library() -> None:
    """Off by less than the digits of a score."""
    x = np.linspace(-7, 7, 20_001)
    assert np.abs(error_function(x) - np.array([*map(math.erf, x)])).max() < 1e-13
