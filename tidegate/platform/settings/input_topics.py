"""
Which topics an input reads, and which ones Tidegate writes itself.

Law: no stage reads what a stage of the same configuration writes, unless it is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Processes that must start fast have their settings read already.
    from tidegate.platform.settings.load import Settings
    from tidegate.platform.settings.tables.inputs import InputSettings


def match_topics(chosen: InputSettings, names: Iterable[str], excluded: frozenset[str]) -> list[str]:
    """Return an input's topics, sorted: those it lists, existing or not, and those among *names* that its pattern matches."""
    pattern = chosen.topic_pattern
    matching = (name for name in names if pattern is not None and name not in excluded and re.fullmatch(pattern, name))
    # Kafka's own topics hold no events.
    return sorted({*chosen.topics, *(name for name in matching if not name.startswith("__"))})


def own_topics(settings: Settings) -> frozenset[str]:
    """Return the topics that Tidegate writes under these settings; no input's pattern may match them."""
    tables = settings.inputs.values()
    inputs = {topic for table in tables for topic in (table.ordered_topic, table.dead_letter_topic, table.dropped_topic) if topic}
    return frozenset(inputs | {topic for output in settings.outputs.values() if (topic := getattr(output, "topic", None)) is not None})
