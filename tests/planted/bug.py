"""
A planted bug: one rule, broken on purpose by a small change to a source file.

Law: the text it replaces occurs exactly once in its file, and the test it names fails once it is replaced.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

LAW = "tests/ordering/model/test_law.py::"
CTIS = "tests/ordering/model/test_law_ctis.py::"
STATE = "tests/ordering/model/test_law_state.py::"
START = "tests/ordering/model/test_law_start.py::"
STEP = "tests/ordering/model/test_step.py::"
TOLL = "tests/ordering/model/test_toll.py::"
SIMULATION = "tests/simulation/test_simulation.py::"
READER = "tests/ordering/protocol/test_reader.py::"
WIRE = "tests/ordering/protocol/test_wire.py::"
FIELDS = "tests/tidegate/language/json_columns/test_json_fields.py::"
PROGRAM = "tests/query/engine/test_program.py::"
JOIN = "tests/query/operators/joins/test_temporal_join.py::"
KEYED = "tests/query/buckets/test_keyed.py::"
JOURNAL = "tests/ingest/journal/test_redis_journal.py::"
CLIENT = "tests/ingest/journal/test_client.py::"
HOSTILE = "tests/ingest/journal/test_hostile_journal.py::"
RESUME = "tests/ingest/start/test_resume.py::"


SUBJECTS = {1: "inputs", 2: "policies", 3: "silence", 4: "ordered topic", 5: "queries", 6: "starting"}


@dataclass(frozen=True, slots=True)
class Bug:
    """
    One mutation.

    Args:
        name: What it is called on the command line and in the table.
        rule: The rule that it breaks, as it should be.
        spec: What the rule is about: a key of :data:`SUBJECTS`.
        file: The file below ``ordering/``, or from the root if it is of ingest, query or tidegate.
        old: What stands there, exactly once.
        new: What stands there in the copy.
        test: Node id of the test that fails then, from the root of the repository.
    """

    name: str
    rule: str
    spec: int
    file: str
    old: str
    new: str
    test: str

    @property
    def path(self) -> str:
        """The file, from the root of the repository."""
        return self.file if self.file.startswith(("ingest/", "query/", "tidegate/")) else f"ordering/{self.file}"

    def plant(self, root: Path) -> None:
        """
        Make the change in the copy of the repository at *root*.

        Raises:
            LookupError: What it replaces does not stand there exactly once.
        """
        source = root / self.path
        text = source.read_text("utf-8")
        if text.count(self.old) != 1:
            raise LookupError(f"{self.name}: the text to replace occurs {text.count(self.old)} times in {self.path}")
        source.write_text(text.replace(self.old, self.new), "utf-8")
