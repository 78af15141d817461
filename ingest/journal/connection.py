"""
A planner's connection to the journal, which may fail and return without ending the job.
Law: a journal that fails is asked again after a while. Each time it answers again it catches up before any other call.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from structlog.typing import FilteringBoundLogger

from ingest.journal.catch_up import CatchUp
from ingest.journal.redis_journal import RedisJournal, SeenWrites
from ordering.errors import TidegateError
from ordering.protocol.journal import Call, ImpossibleFactError, JournalWipedError
from tidegate.platform.settings.tables.redis import RedisSettings

_RETRY_S = 1.0


class JournalConnection:
    """A connection opened on first use; *consequence* says in the log how the job goes on without it."""

    def __init__(self, settings: RedisSettings, input_name: str, catch_up: CatchUp, consequence: str, log: FilteringBoundLogger) -> None:
        self._settings, self._catch_up, self._consequence, self._log = settings, catch_up, consequence, log
        self._input_name = input_name
        self._journal: RedisJournal | None = None
        self._is_lost = False
        self._retry_s = 0.0
        self._distrusted_because = ""
        # Kept from one connection to the next, so that facts lost between them are noticed.
        self._seen_writes: SeenWrites = {}

    def open(self) -> RedisJournal | None:
        """Return the journal, caught up; None if it does not answer."""
        if self._journal is None and time.monotonic() < self._retry_s:
            return None
        try:
            journal = self._journal or RedisJournal.open(self._settings, self._seen_writes, self._input_name)
            self._catch_up.compare_new(journal)
        except ImpossibleFactError as error:
            self._journal = journal
            self.distrust(error)
            return None
        except TidegateError as error:
            self._lose(error)
            return None
        if self._is_lost:
            self._log.info("the journal answers again", redis=self._settings.address)
        self._journal, self._is_lost = journal, False
        return journal

    def ask(self, calls: Sequence[Call]) -> list[Any] | None:
        """Execute *calls*; None without an answer. A journal that has lost facts gets them back first."""
        journal = self.open() if calls else None
        if journal is None:
            return None
        try:
            try:
                return journal.execute(calls)
            except JournalWipedError as error:
                self._log.warning(error.what, code=error.code)
                self._catch_up.give_back_all(journal, [call.key for call in calls])
                return journal.execute(calls)
        except ImpossibleFactError as error:
            self.distrust(error)
            return None
        except TidegateError as error:
            self._lose(error)
            return None

    def read_fingerprint(self, topic: str, topic_id: str, own: str) -> str | None:
        """Return the fingerprint of an ordered topic; None without an answer. One that cannot be read is replaced by this job's *own*."""
        journal = self.open()
        try:
            return None if journal is None else journal.read_fingerprint(topic, topic_id)
        except ImpossibleFactError as error:
            self._log.error(error.what, code=error.code, where=error.where, fix="nothing: this job has written its own again")
            return journal.read_or_set_fingerprint(topic, topic_id, own, begins_anew=True)[0] if journal is not None and own else None
        except TidegateError as error:
            self._lose(error)
            return None

    def is_answering(self) -> bool:
        """Ask the server, and return whether it answers."""
        journal = self.open()
        if journal is None:
            return False
        try:
            journal.check()
        except TidegateError as error:
            self._lose(error)
            return False
        return True

    def distrust(self, error: ImpossibleFactError) -> None:
        """Use nothing that the journal says until it is mended, which is tried at once; meanwhile it counts as lost."""
        if error.what != self._distrusted_because:
            self._log.error(error.what, code=error.code, where=error.where, fix=error.fix, example=error.example)
            self._distrusted_because = error.what
        journal = self._journal
        try:
            if journal is not None:
                self._catch_up.mend(journal)
        except TidegateError as failure:
            self._log.warning("the journal could not be repaired", reason=failure.what)
        self._lose(error)

    def _lose(self, error: TidegateError) -> None:
        if not self._is_lost:
            fault = "is not believed" if isinstance(error, ImpossibleFactError) else "does not answer"
            event = f"the journal {fault}: {self._consequence} until it {'is mended' if fault == 'is not believed' else 'does'}"
            self._log.warning(event, redis=self._settings.address, reason=error.what)
        self._journal, self._is_lost, self._retry_s = None, True, time.monotonic() + _RETRY_S
        self._catch_up.forget_comparisons()
