"""What a dead-letter topic may take, down to nothing: writing to it never fails because of a size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.poison import by_origin, check_letter, filler, set_limit
from support.stack.topics import ANY_TIME, create, fresh, records

from ordering.errors import RefusedError, UnreachableError
from tidegate.basics.dead_letter_reasons import LETTER_BYTES_MAX
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.kafka.dead_letters import DeadLetter, DeadLetterWriter, ensure_dead_letter_topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.stack.servers import Stack

pytestmark = pytest.mark.integration


def letters(count: int, size: int) -> list[DeadLetter]:
    """Return letters that cannot be compressed much."""
    return [DeadLetter("malformed", f"a-0@{number}", b"%d" % number, filler(size + number).encode()) for number in range(count)]


def write(stack: Stack, topic: str, sent: Sequence[DeadLetter], bytes_max: int) -> None:
    """Write letters as a job does that was told of *bytes_max* when it started."""
    writer = DeadLetterWriter({"bootstrap.servers": stack.bootstrap}, topic, bytes_max)
    for letter in sent:
        writer.send(letter)
    writer.flush()
    writer.close()


@pytest.mark.parametrize(("limit", "known"), [(2_000, 2_000), (2_000, 1_000_000), (900, 1_000_000)])
def test_many_letters_fit_into_a_topic_that_takes_little(limit: int, known: int, stack: Stack) -> None:
    """The limit is one of batches too; known or lowered while the job runs, all letters stand there, as whole as they fit."""
    topic = create(stack.bootstrap, fresh("dead"), 1, {**ANY_TIME, "max.message.bytes": str(limit)})
    sent = [*letters(300, 300), *letters(300, 5_000)]
    sent = [DeadLetter(letter.reason, f"a-0@{number}", letter.key, letter.value) for number, letter in enumerate(sent)]
    write(stack, topic, sent, known)
    found = by_origin(records(stack.bootstrap, topic))
    assert found.keys() == {letter.origin for letter in sent}
    for letter in sent:
        for message in found[letter.origin]:
            check_letter(message, bytes(letter.key or b""), bytes(letter.value or b""), limit)


def test_a_topic_that_takes_nothing_ends_no_job(stack: Stack) -> None:
    """Not even the headers fit: the letters are given up, and later ones are written once there is room."""
    topic = create(stack.bootstrap, fresh("dead"), 1, {**ANY_TIME, "max.message.bytes": "60"})
    writer = DeadLetterWriter({"bootstrap.servers": stack.bootstrap}, topic, 60)
    writer.send(letters(1, 10)[0])
    writer.flush()
    assert not list(records(stack.bootstrap, topic))
    set_limit(stack.bootstrap, topic, 2_000)
    writer.send(letters(1, 10)[0])
    writer.flush()
    writer.close()
    assert [len(message.value() or b"") for message in records(stack.bootstrap, topic)] == [0], "cut to what the job knows"


def test_a_topic_that_is_gone_or_compacted_is_told(stack: Stack) -> None:
    """One that was deleted is made by nobody who writes into it; one that is compacted takes no letter without a key."""
    properties = {"bootstrap.servers": stack.bootstrap, "topic.metadata.propagation.max.ms": "500"}
    writer = DeadLetterWriter(properties, fresh("gone"), 2_000)
    writer.send(letters(1, 10)[0])
    with pytest.raises(UnreachableError) as missing:
        writer.flush()
    assert missing.value.code == "TG-TOPIC-MISSING"
    topic = create(stack.bootstrap, fresh("dead"), 1, {"cleanup.policy": "compact"})
    with pytest.raises(RefusedError) as refused:
        ensure_dead_letter_topic(Admin(properties), topic, None, 2_000, 1)
    assert (refused.value.code, refused.value.where) == ("TG-TOPIC-CONFIG", topic)


def test_the_largest_letter_is_taken_by_a_broker_as_it_comes(stack: Stack) -> None:
    """Uncompressed as well: one request of this size stays below what brokers read."""
    topic = create(stack.bootstrap, fresh("dead"), 1, {**ANY_TIME, "max.message.bytes": str(LETTER_BYTES_MAX)})
    value = filler(1_000_000).encode() * 70
    write(stack, topic, [DeadLetter("malformed", "a-0@1", None, value)], LETTER_BYTES_MAX)
    (message,) = records(stack.bootstrap, topic)
    check_letter(message, None, value, LETTER_BYTES_MAX)
    assert len(message.value() or b"") > LETTER_BYTES_MAX - 1_000
