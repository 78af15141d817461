"""
A naive evaluator of Prometheus' rules, for what deploy/alerts.yml uses; anything else is an error.

It differs from Prometheus in one thing: increase() and rate() do not extrapolate to the ends of their range, so their values are right
only as to whether they are 0. tests/tidegate/platform/metrics/test_alerts.py compares it with promtool where there is one.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import linear_regression

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
# What one fetch found, by name.
Scrape = Mapping[str, Vector]

_TOKEN = re.compile(r'\s*("[^"]*"|[A-Za-z_]\w*|\d+\.\d+|\d+|==|[^\s\w])')
_COMPARE = {">": operator.gt, "<": operator.lt, "==": operator.eq}
_UNIT_S = {"s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True, slots=True)
class Rule:
    """An alert with its expression, and how long that must hold, seconds."""

    name: str
    expression: str
    for_s: int
    summary: str


def read_rules(text: str) -> list[Rule]:
    """Return the rules of a file whose expressions stand on one line each."""
    pattern = r"- alert: (\w+)\n +expr: (.+)\n(?: +for: (\w+)\n)? +annotations:\n +summary: \"(.+)\"\n"
    rules = [Rule(name, expression, _seconds(for_ or "0s"), summary) for name, expression, for_, summary in re.findall(pattern, text)]
    assert len(rules) == text.count("alert:"), "a rule has another form"
    return rules


def firing(rule: Rule, scrapes: Sequence[Scrape], step_s: int) -> list[set[Labels]]:
    """Return at each scrape, *step_s* seconds apart, the alerts that fire, by their labels."""
    since: dict[Labels, int] = {}
    fired = []
    for now in range(len(scrapes)):
        held = Evaluation(scrapes[: now + 1], step_s).value(rule.expression)
        since = {labels: since.get(labels, now) for labels in held}
        fired.append({labels for labels, first in since.items() if (now - first) * step_s >= rule.for_s})
    return fired


def _seconds(text: str) -> int:
    return int(text[:-1]) * _UNIT_S[text[-1]]


def _kept(labels: Labels, names: Sequence[str], is_without: bool) -> Labels:
    return frozenset(label for label in labels if (label[0] in names) != is_without)


class Evaluation:
    """The value of an expression at the last of *scrapes*."""

    def __init__(self, scrapes: Sequence[Scrape], step_s: int) -> None:
        self._scrapes, self._step_s = scrapes, step_s
        self._tokens: list[str] = []

    def value(self, expression: str) -> Vector:
        self._tokens = _TOKEN.findall(expression)
        found = self._sets()
        assert not self._tokens, self._tokens
        return found

    def _peek(self) -> str:
        return self._tokens[0] if self._tokens else ""

    def _pop(self, expected: str = "") -> str:
        token = self._tokens.pop(0)
        assert not expected or token == expected, (token, expected)
        return token

    def _names(self) -> list[str]:
        self._pop("(")
        names = []
        while (token := self._pop()) != ")":
            names += [token] * (token != ",")
        return names

    def _sets(self) -> Vector:
        left = self._comparison()
        while self._peek() in ("and", "unless"):
            is_and = self._pop() == "and"
            names = self._names() if self._peek() == "on" and self._pop() else None
            right = {labels if names is None else _kept(labels, names, False) for labels in self._comparison()}
            there = {labels: (labels if names is None else _kept(labels, names, False)) in right for labels in left}
            left = {labels: value for labels, value in left.items() if there[labels] == is_and}
        return left

    def _comparison(self) -> Vector:
        left = self._sum()
        if self._peek() not in _COMPARE and self._peek() != "=":
            return left
        compare = _COMPARE[self._pop()]
        right = dict.fromkeys(left, float(self._pop())) if self._peek().isdigit() else self._sum()
        return {labels: value for labels, value in left.items() if labels in right and compare(value, right[labels])}

    def _sum(self) -> Vector:
        left = self._primary()
        while self._peek() == "+":
            self._pop()
            right = self._primary()
            left = {labels: value + right[labels] for labels, value in left.items() if labels in right}
        return left

    def _primary(self) -> Vector:
        name = self._pop()
        if name == "sum":
            is_without = self._pop() == "without"
            names = self._names()
            self._pop("(")
            inner = self._sets()
            self._pop(")")
            total: Vector = {}
            for labels, value in inner.items():
                group = _kept(labels, names, is_without)
                total[group] = total.get(group, 0) + value
            return total
        if name == "histogram_quantile":
            self._pop("(")
            share = float(self._pop())
            self._pop(",")
            inner = self._sets()
            self._pop(")")
            return _quantiles(share, inner)
        if self._peek() == "(":
            self._pop("(")
            series = self._range(self._pop())
            self._pop(")")
            return {labels: value for labels, samples in series.items() if (value := _FUNCTIONS[name](samples)) is not None}
        chosen = self._matchers()
        return {labels: value for labels, value in self._scrapes[-1].get(name, {}).items() if chosen <= labels}

    def _matchers(self) -> Labels:
        found = []
        if self._peek() == "{":
            self._pop("{")
            while (label := self._pop()) != "}":
                if label != ",":
                    self._pop("=")
                    found.append((label, self._pop().strip('"')))
        return frozenset(found)

    def _range(self, name: str) -> dict[Labels, list[tuple[int, float]]]:
        chosen = self._matchers()
        self._pop("[")
        within_s = _seconds(self._pop() + self._pop())
        self._pop("]")
        first = max(len(self._scrapes) - 1 - within_s // self._step_s, 0)
        series: dict[Labels, list[tuple[int, float]]] = {}
        for at, scrape in enumerate(self._scrapes[first:]):
            for labels, value in scrape.get(name, {}).items():
                if chosen <= labels:
                    series.setdefault(labels, []).append((at * self._step_s, value))
        return series


def _quantiles(share: float, counts: Vector) -> Vector:
    """Return for each histogram the least bound that is not below its quantile; Prometheus looks between two bounds."""
    buckets: dict[Labels, list[tuple[float, float]]] = {}
    for labels, count in counts.items():
        buckets.setdefault(_kept(labels, ["le"], True), []).append((float(dict(labels)["le"]), count))
    bounds = {labels: sorted(counted) for labels, counted in buckets.items()}
    return {labels: next(le for le, count in counted if count >= share * counted[-1][1]) for labels, counted in bounds.items()}


def _increase(samples: list[tuple[int, float]]) -> float | None:
    values = [value for _, value in samples]
    # A counter that falls has begun anew.
    return None if len(values) < 2 else sum(after - before if after >= before else after for before, after in pairwise(values))


def _changes(samples: list[tuple[int, float]]) -> float:
    values = [value for _, value in samples]
    return sum(before != after for before, after in pairwise(values))


def _deriv(samples: list[tuple[int, float]]) -> float | None:
    return None if len(samples) < 2 else linear_regression(*zip(*samples, strict=True)).slope


_FUNCTIONS: dict[str, Callable[[list[tuple[int, float]]], float | None]] = {
    "increase": _increase,
    "rate": _increase,
    "changes": _changes,
    "deriv": _deriv,
}
