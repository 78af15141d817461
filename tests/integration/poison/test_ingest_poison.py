"""
Poison for ingest: a record for each reason to refuse one, at every size around every limit, compressed in every way.

Three inputs of one process get them among good events, with a restart in between, while the limit of a dead-letter topic is lowered. The
process lives, the good events come out as the oracle tells, and each refused record is a dead letter that says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]
from support.poison import (
    CODECS,
    GIANT_BYTES,
    INGEST_RECIPES,
    REGISTERED,
    by_origin,
    check_letter,
    event,
    framed,
    ingest_poison,
    keyed_event,
    send,
    set_limit,
    span,
)
from support.registry_server import RegistryServer
from support.stack.drawn_logs import START_MS, Raw, draw, expected
from support.stack.jobs import workspace
from support.stack.topics import check_promises, create, fresh, header, read_ordered, records

from ordering.policies import Action, Policies, Shape
from ordering.ticks import SECOND_US
from tidegate.basics.dead_letter_reasons import IngestReason

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

RECORD_BYTES_MAX, LETTER_BYTES_MAX, LOWERED_BYTES_MAX = 30_000, 20_000, 2_000
KEY_BYTES_MAX = 4_096
KAFKA_BYTES_MAX = 1_048_588
"""Kafka's default: the limit of the inputs that set none."""
SIZES = tuple(limit + step for limit in (LETTER_BYTES_MAX - 300, LETTER_BYTES_MAX, RECORD_BYTES_MAX) for step in (-1, 0, 1))
POLICIES = Policies(20 * SECOND_US, 30 * SECOND_US, Action.ADJUST, 3 * SECOND_US, Action.DROP)
INPUT = """
[inputs.{name}]
topic = "{name}-{run}"
timestamp_by = "at"
early = "20s"
late = "30s"
reorder = "3s"
out_of_order_action = "drop"
dead_letter_bytes_max = {letter_bytes_max}
dead_letter_retention = "30d"
"""
OWN = {
    "plain": f'over = "k"\nrecord_bytes_max = {RECORD_BYTES_MAX}\n',
    "spans": 'shape = "interval"\nend = "end"\nsource_ctis = true\n',
    "framed": 'format = "avro_registry"\n',
}


@dataclass
class Run:
    """What was sent into each input, and how the last job ended."""

    name: str
    logs: dict[str, list[Raw]] = field(default_factory=lambda: {name: [] for name in OWN})
    summary: dict[str, Any] = field(default_factory=dict)

    def topic(self, name: str) -> str:
        """Return the raw topic of an input."""
        return f"{name}-{self.name}"

    def poison(self, name: str) -> dict[str, Raw]:
        """Return what must be refused, by origin."""
        return {f"{self.topic(name)}-0@{offset}": raw for offset, raw in enumerate(self.logs[name]) if raw.reason}


def good_events(name: str, seed: int, count: int) -> list[Raw]:
    """Return events of an input, in disorder."""
    start_ms = START_MS + 60_000 * seed
    if name == "framed":
        stamps_ms = [start_ms + 10 * number for number in range(count)]
        return [Raw(0, b"%d" % at, framed(at), at, event_time_us=at * 1000) for at in stamps_ms]
    shape = Shape.INTERVAL if name == "spans" else Shape.POINT
    return draw(seed, count, 1, shape=shape, source_ctis=0.05 if name == "spans" else 0.0, start_ms=start_ms)


def group(name: str, seed: int, sizes: Sequence[int]) -> list[Raw]:
    """Return each poison of an input at each size, and good events around each."""
    reasons = [reason for reason, (at, _) in INGEST_RECIPES.items() if at == name]
    bytes_max = RECORD_BYTES_MAX if name == "plain" else KAFKA_BYTES_MAX
    poison: list[Callable[[int], Raw]] = [
        partial(ingest_poison, reason, size, record_bytes_max=bytes_max) for reason in reasons for size in sizes
    ]
    if name == "plain":
        poison += [partial(keyed_event, KEY_BYTES_MAX + step, KEY_BYTES_MAX) for step in (-1, 0, 1)]
    goods = good_events(name, seed, len(poison))
    return [raw for make, good in zip(poison, goods, strict=True) for raw in (good, make(good.stamp_ms))]


@pytest.fixture(scope="module")
def run(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """All inputs, ordered to the end by three jobs one after the other."""
    made = Run(fresh("poison"))
    registry = RegistryServer()
    registry.ids.update(REGISTERED)
    tables = [f'[schema_registry]\nurl = "{registry.url}"\n']
    for name, own in OWN.items():
        create(stack.bootstrap, made.topic(name), 1)
        tables.append(INPUT.format(name=name, run=made.name, letter_bytes_max=LETTER_BYTES_MAX) + own)

    def write(seed: int, codec: str, sizes: Sequence[int] = SIZES) -> None:
        for name, log in made.logs.items():
            records_sent = group(name, seed, sizes)
            log += records_sent
            send(stack.bootstrap, made.topic(name), records_sent, codec)

    with workspace(tmp_path_factory.mktemp("poison"), stack, "\n".join(tables)) as space:
        write(1, "none")
        job = space.start("ingest", *OWN)
        job.until(lambda: job.batches > 0, "a batch")
        job.stop()
        write(2, "gzip")
        job = space.start("ingest", *OWN)
        job.until(lambda: job.batches > 2, "batches")
        set_limit(stack.bootstrap, f"{made.topic('plain')}.ordered.dead", LOWERED_BYTES_MAX)
        for seed, codec in enumerate(CODECS[2:], 3):
            write(seed, codec)
        for codec in ("gzip", "zstd"):
            giant = refused(event(GIANT_BYTES, START_MS + 350_000))
            made.logs["plain"].append(giant)
            send(stack.bootstrap, made.topic("plain"), [giant], codec)
        for size in (KAFKA_BYTES_MAX - 1, KAFKA_BYTES_MAX, KAFKA_BYTES_MAX + 1):
            # Compressed it fits into the raw topic; in the ordered topic nothing makes it smaller.
            raw = span(size, START_MS + 350_000)
            made.logs["spans"].append(raw if size <= KAFKA_BYTES_MAX else refused(raw))
            send(stack.bootstrap, made.topic("spans"), [raw], "gzip")
        write(6, "none", SIZES[:1])
        last = f"{made.topic('plain')}-0@{len(made.logs['plain']) - 1}"
        job.until(lambda: last in by_origin(records(stack.bootstrap, f"{made.topic('plain')}.ordered.dead")), "the last dead letter")
        job.stop()
        made.summary = space.start("ingest", *OWN, "--until-end").finish()
        yield made
    registry.stop()


def refused(raw: Raw) -> Raw:
    """Return an event as the oracle must take it if it is too large."""
    return replace(raw, event_time_us=None, end_us=None, reason=IngestReason.OVERSIZED)


def test_there_is_a_recipe_for_each_reason() -> None:
    """A new reason fails here until the suite has a record for it."""
    assert set(INGEST_RECIPES) == set(IngestReason)


@pytest.mark.parametrize("name", OWN)
def test_what_is_no_poison_comes_out_as_the_oracle_tells(name: str, run: Run, stack: Stack) -> None:
    """Law, level 1: each event with all that the law fixes, whatever stood beside it in the topic; one at the limit is ordered."""
    found = read_ordered(stack.bootstrap, f"{run.topic(name)}.ordered", 1)
    told = expected([run.logs[name]], POLICIES, 1, over=name == "plain")
    assert found.events.keys() == told.keys()
    assert [event for event in zip(found.events[0, 0], told[0, 0], strict=False) if event[0] != event[1]] == []
    assert found.events == told
    assert found.ended
    check_promises(found)
    sizes = [len(each.key or b"") + len(each.value or b"") for each in found.all_events()]
    assert name == "framed" or max(sizes) == {"plain": RECORD_BYTES_MAX, "spans": KAFKA_BYTES_MAX}[name]


@pytest.mark.parametrize("name", OWN)
def test_each_poison_is_a_dead_letter_that_says_why(name: str, run: Run, stack: Stack) -> None:
    """Each refused record and no other, whole or cut with its size and hash; after a lowered limit all of them still fit."""
    letters, poison = by_origin(records(stack.bootstrap, f"{run.topic(name)}.ordered.dead")), run.poison(name)
    assert letters.keys() == poison.keys()
    lowered = False
    for origin, raw in poison.items():
        for letter in letters[origin]:
            assert header(letter, "reason").decode() == raw.reason
            lowered |= 0 < len(letter.value() or b"") < LOWERED_BYTES_MAX < len(raw.value or b"")
            check_letter(letter, raw.key, raw.value, LOWERED_BYTES_MAX if name == "plain" else LETTER_BYTES_MAX)
    assert lowered == (name == "plain")


def test_a_dead_letter_topic_is_as_the_settings_say(run: Run, stack: Stack) -> None:
    """Its retention and its limit."""
    client = AdminClient({"bootstrap.servers": stack.bootstrap})
    found = client.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, f"{run.topic('spans')}.ordered.dead")])
    (config,) = (future.result(30) for future in found.values())
    assert (config["max.message.bytes"].value, config["retention.ms"].value) == (str(LETTER_BYTES_MAX), str(30 * 86_400_000))


def test_each_reason_was_met_and_counted(run: Run, stack: Stack) -> None:
    """The suite sends nothing that is refused for another reason than it thinks."""
    sent = Counter(raw.reason for log in run.logs.values() for raw in log if raw.reason)
    assert set(sent) == set(IngestReason)
