"""The delay of an output by cause: the parts are never negative and add up to it, whatever the reports say, through any chain."""

from __future__ import annotations

from random import Random

from support.chance import dice_of

from ordering.ticks import INFINITY, NEVER, SECOND_US
from tidegate.platform.observe.reports import IngestReport, Watermark
from tidegate.tools.why.delay import CAUSES, split_delay
from tidegate.tools.why.facts import InputFacts, OutputFacts, PartitionFacts, StageFacts

NOW_US = 1_767_600_000 * SECOND_US


def partition(behind_s: float, *, arrived_s: float, lag: int = 0, cause: str = "event", batch_s: float = 0.0) -> PartitionFacts:
    """Return a partition whose watermark is so far behind, and whose newest record came so long ago."""
    us = NOW_US - round(behind_s * SECOND_US)
    report = IngestReport(
        "cars",
        0,
        arrival_us=NOW_US - round(arrived_s * SECOND_US),
        complete_us=us,
        watermark=Watermark(us, us, cause),
        seconds={"read": batch_s},
    )
    return PartitionFacts.of(report, lag)


def read(*partitions: PartitionFacts, late_s: int | None = 60, reorder_s: int = 5) -> InputFacts:
    """Return an input."""
    late_us = None if late_s is None else late_s * SECOND_US
    return InputFacts("cars", StageFacts("ingest cars", "live"), partitions, late_us, reorder_s * SECOND_US, has_substreams=False)


def output(behind_s: float, *sources: InputFacts | OutputFacts) -> OutputFacts:
    """Return an output whose results are so far behind."""
    complete_us = NOW_US - round(behind_s * SECOND_US)
    return OutputFacts("counts", StageFacts("query counts", "live"), complete_us, 0, sources)


def test_each_cause_has_its_part() -> None:
    """The furthest partition counts; what the chain adds after it is that of its queries."""
    following = partition(7.0, arrived_s=2.0, batch_s=0.5)
    split = split_delay(output(8.0, read(following, partition(6.0, arrived_s=1.0))), NOW_US)
    assert split == {"source": 0.0, "reorder": 5.0, "late": 0.0, "silence": 1.5, "lag": 0.0, "batch": 0.5, "query": 1.0}
    floor = partition(70.0, arrived_s=4.0, lag=9, cause="late floor")
    split = split_delay(output(90.0, output(75.0, read(floor))), NOW_US)
    assert split == {"source": 6.0, "reorder": 0.0, "late": 60.0, "silence": 0.0, "lag": 4.0, "batch": 0.0, "query": 20.0}


def test_nothing_is_divided_before_the_first_result_and_after_the_last() -> None:
    """Neither has a distance from the clock."""
    for complete_us in (NEVER, INFINITY):
        assert split_delay(OutputFacts("counts", StageFacts("query counts", "live"), complete_us, 0), NOW_US) is None


def test_the_parts_add_up() -> None:
    """Of drawn pipelines, also where a source was asked later than what reads it."""
    dice = dice_of("the parts add up")
    for _ in range(500):
        facts = draw(dice)
        split = split_delay(facts, NOW_US)
        assert split is not None
        assert list(split) == list(CAUSES)
        assert min(split.values()) >= 0
        assert abs(sum(split.values()) - max(NOW_US - facts.complete_us, 0) / SECOND_US) < 0.01, facts


def draw(dice: Random, depth: int = 0) -> OutputFacts:
    """Return a chain of queries over inputs."""
    sources: list[InputFacts | OutputFacts] = []
    for _ in range(dice.randrange(0, 3)):
        if depth < 2 and dice.random() < 0.4:
            sources.append(draw(dice, depth + 1))
            continue
        partitions = [
            partition(
                dice.uniform(-5, 200),
                arrived_s=dice.uniform(-1, 100),
                lag=dice.choice([0, 7]),
                cause=dice.choice(["event", "estimate", "late floor"]),
                batch_s=dice.uniform(0, 9),
            )
            for _ in range(dice.randrange(0, 3))
        ]
        sources.append(read(*partitions, late_s=dice.choice([None, 0, 60]), reorder_s=dice.randrange(0, 9)))
    return output(dice.uniform(-5, 300), *sources)
