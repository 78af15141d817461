"""
The skips in the journal: a fact for each skip that has taken effect, and notes that say who asked for which skip, and why.
Law: a request becomes a fact at a start of the job, only if no offset at or after its first one has been judged for good. Skips belong to
one ordered topic: other jobs over the same raw topic read the records.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from ingest.config import IngestPlan, Partition
from ingest.journal.redis_journal import RedisJournal, notes_key
from ingest.skips import Skip
from ordering.errors import RefusedError
from ordering.protocol.facts import FactKind
from ordering.protocol.journal import JournalKey, Raise
from tidegate.ordered_topic.promises import last_promises
from tidegate.platform.kafka.admin import Admin


@dataclass(frozen=True, slots=True)
class KnownSkips:
    """The skips of one ordered topic."""

    # Skips that every replay repeats.
    in_force: tuple[Skip, ...] = ()
    # Skips that wait for the next start.
    asked: tuple[Skip, ...] = ()
    undone: tuple[Skip, ...] = ()

    @property
    def all(self) -> tuple[Skip, ...]:
        return *self.in_force, *self.asked, *self.undone


class SkipBook:
    """The skips of one ordered topic in the journal; *keys*: where the facts of each input partition are."""

    def __init__(self, journal: RedisJournal, ordered_topic: str, topic_id: str, keys: Mapping[Partition, JournalKey]) -> None:
        self._journal, self._topic, self._keys = journal, (ordered_topic, topic_id), keys

    @classmethod
    def of(cls, plan: IngestPlan, journal: RedisJournal) -> SkipBook:
        keys = {partition: plan.own_key(partition) for partition in plan.partitions}
        return cls(journal, plan.settings.ordered_topic, plan.ordered_topic_id, keys)

    def read(self) -> KnownSkips:
        notes = self._parse(self._journal.read_notes(*self._topic))
        facts = [
            Skip(*partition, fact.position, fact.value)
            for partition, key in self._keys.items()
            if self._journal.has_facts(key)
            for fact in self._journal.dump(key)
            if fact.kind == FactKind.SKIP
        ]
        in_force = tuple(replace(notes.get(skip.place, skip), end=skip.end, is_undone=False) for skip in facts)
        others = [note for place, note in sorted(notes.items()) if place not in {skip.place for skip in in_force}]
        return KnownSkips(
            in_force,
            tuple(note for note in others if not note.is_undone),
            tuple(note for note in others if note.is_undone),
        )

    def _parse(self, text: str) -> dict[str, Skip]:
        """Return notes by place. Raises RefusedError: others have written there, so that it is not known what was asked for."""
        try:
            notes = [Skip(**fields) for fields in json.loads(text or "[]")]
        except (ValueError, TypeError, RecursionError):
            notes = None
        if notes is None or not all(note.is_valid for note in notes):
            key = notes_key(*self._topic)
            what = f"the notes of skips in Redis, field notes of {key}, are not as Tidegate writes them"
            fix = "see who else writes into this Redis; delete the field, and ask again for the skips that were not in force yet"
            raise RefusedError(what, code="TG-REDIS-CONTENT", where=key, fix=fix, example=f"redis-cli HDEL '{key}' notes")
        return {note.place: note for note in notes}

    def write(self, skip: Skip) -> None:
        """Write the note of a request, or of its undoing; it replaces an earlier note at the same place."""
        while True:
            known = self._journal.read_notes(*self._topic)
            notes = {**self._parse(known), skip.place: skip}
            if self._journal.replace_notes(*self._topic, known, json.dumps([asdict(note) for _, note in sorted(notes.items())])):
                return

    def put_in_force(self, skips: tuple[Skip, ...]) -> None:
        self._journal.execute([Raise(FactKind.SKIP, self._keys[skip.input_partition], skip.start, skip.end) for skip in skips])

    def undo(self, skip: Skip) -> None:
        """Undo a skip; no job may be running if it is in force."""
        self.write(replace(skip, is_undone=True))
        self._journal.withdraw(self._keys[skip.input_partition], skip.fact)


def passed_positions(plan: IngestPlan, admin: Admin, judged: Mapping[Partition, int]) -> dict[Partition, int]:
    """
    Return the offset up to which each partition has been judged for good: by the checkpoint (*judged*), or by a CTI of the ordered topic.
    Raises RefusedError: the ordered topic has ended, or has lost its last CTIs.
    """
    passed = {partition: judged.get(partition, 0) for partition in plan.partitions}
    for number, channels in last_promises(plan.kafka, admin.starts(plan.outputs), admin.ends(plan.outputs)).items():
        partition = plan.partitions[number]
        passed[partition] = max(passed[partition], *(cti.next_offset for cti in channels.values()))
    return passed


def passed_error(skip: Skip, passed: int, name: str) -> RefusedError:
    """Return the error for a skip of offsets that the input *name* has judged for good."""
    return RefusedError(
        f"{skip.place} has been judged: the ordered topic stands at offset {passed}, and readers may have seen its events",
        code="TG-SKIP-PASSED",
        where=skip.place,
        fix=f"skip from offset {passed} on, or leave it as it is: tidegate explain tells what became of the record",
        example=f'tidegate skip {name} {skip.topic}-{skip.partition}@{passed} --why "..."',
    )
