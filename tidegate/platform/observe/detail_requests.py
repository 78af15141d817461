"""
A question of a watching command to a running job: to tell more often how far it is, and for figures that are not in the job's reports.

The command puts the question into Redis (:meth:`~tidegate.platform.observe.progress_store.ProgressStore.ask_details`). The driver, which
talks to Redis anyway, copies it into a small file in the checkpoint folder, which the workers share. Their stages look at that file. So
expensive figures are computed, and reports are written more often, only while questions keep coming.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

QUESTION_FILE = "asked.json"
QUESTION_VALID_S = 10  # how long a question is valid
SUBSTREAMS_MAX = 1_000  # of how many substreams a question may ask for details
NO_DETAILS = -1  # in place of a number of substreams: a client watches, and asks for no more than the reports
WATCHED_EVERY_S = 0.25  # a job and its stages tell how far they are so often while a client watches


def leave_question(folder: Path, text: str) -> None:
    """Write the question *text*, as Redis has it, for the stages of a job; what is no question is passed over."""
    try:
        substreams = json.loads(text)["substreams"]
    except (ValueError, RecursionError, TypeError, KeyError):
        return
    if type(substreams) is not int or not NO_DETAILS <= substreams <= SUBSTREAMS_MAX:
        return
    question = {"substreams": substreams, "until_ms": time.time_ns() // 1_000_000 + QUESTION_VALID_S * 1_000}
    # Written to another file and renamed, so that a stage never reads half a question.
    draft = folder / f"{QUESTION_FILE}.new"
    draft.write_text(json.dumps(question))
    draft.replace(folder / QUESTION_FILE)


class DetailQuestion:
    """A stage's view of the question in *folder*, if there is one that is still valid."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / QUESTION_FILE
        self._seen_ns = 0
        self._question: dict[str, int] = {}

    def substreams(self) -> int | None:
        """Return how many substreams of each partition are asked for; None if there is no valid question for details."""
        substreams = self._read()
        return None if substreams == NO_DETAILS else substreams

    def is_watched(self) -> bool:
        """Return whether a client watches."""
        return self._read() is not None

    def _read(self) -> int | None:
        try:
            changed_ns = self._path.stat().st_mtime_ns
            if changed_ns != self._seen_ns:
                self._question, self._seen_ns = json.loads(self._path.read_text()), changed_ns
        except (OSError, ValueError):
            return None
        return self._question["substreams"] if self._question["until_ms"] > time.time_ns() // 1_000_000 else None
