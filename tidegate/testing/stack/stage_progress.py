"""
What the stages of a folder have written, as it is seen from outside: records of topics, result files, and batches that Spark has committed.

Law: it changes once a stage of this folder has written something that lasts; starting, planning and reading do not change it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tidegate.platform.kafka.admin import Admin
from tidegate.platform.settings.load import DEFAULT_FILE, Settings, load


@dataclass(frozen=True)
class Written:
    """The end of each partition that stages of the folder have written, and how many files there are of them."""

    ends: Mapping[tuple[str, int], int] = field(default_factory=dict)
    files: int = 0


class WatchedFolder:
    """
    The folder of a stage, watched.

    Args:
        stage: The arguments of ``tidegate``; only ``--config`` counts.
        environment: That of the stage.
    """

    def __init__(self, stage: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._settings = load(folder / _config_of(stage), env=environment)
        self._admin = Admin(self._settings.kafka.client_properties())

    def read(self) -> Written:
        """Return what is written by now."""
        counts = self._admin.partition_counts()
        partitions = [(name, number) for name in _topics(self._settings) for number in range(counts.get(name, 0))]
        ends = self._admin.ends(partitions, committed=False)
        # A stage makes its topics when it starts.
        return Written({partition: end for partition, end in ends.items() if end}, sum(1 for _ in self._files()))

    def _files(self) -> Iterator[Path]:
        yield from (self._folder / self._settings.spark.checkpoint_dir).rglob("commits/[0-9]*")
        for output in self._settings.outputs.values():
            if output.files is not None and "://" not in output.files:
                yield from (self._folder / output.files).rglob("*")


def _config_of(stage: Sequence[str]) -> str:
    named = [value for flag, value in pairwise(stage) if flag == "--config"]
    return next(iter(named), DEFAULT_FILE)


def _topics(settings: Settings) -> list[str]:
    """Return the topics that stages write; a letter or a dropped event alone is no progress of a result."""
    written = [each.ordered_topic for each in settings.inputs.values()]
    for output in settings.outputs.values():
        written += [name for name in (output.topic, output.plain_topic) if name is not None]
    return list(dict.fromkeys(written))
