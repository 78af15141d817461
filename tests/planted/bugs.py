"""
All planted bugs: one for each rule that a small change to ``ordering/``, ingest, a decoder or a query can break.

Law: each of them is caught by the test it names, and that test passes without it (``python tests/planted/run.py``).
"""

from __future__ import annotations

from planted.bug import SUBJECTS, Bug
from planted.decoding import DECODING
from planted.journaling import JOURNALING
from planted.judging import JUDGING
from planted.opening import OPENING
from planted.planning import PLANNING
from planted.querying import QUERYING
from planted.reading import READING
from planted.releasing import RELEASING
from planted.remembering import REMEMBERING

BUGS: list[Bug] = [*JUDGING, *RELEASING, *REMEMBERING, *READING, *JOURNALING, *PLANNING, *OPENING, *DECODING, *QUERYING]


def table() -> str:
    """Return all bugs as the Markdown table of ``docs/reference/planted-bugs.md``."""
    rows = ["| rule | about | planted bug | caught by |", "|---|---|---|---|"]
    for bug in sorted(BUGS, key=lambda each: each.spec):
        file, test = bug.test.removeprefix("tests/").removeprefix("ordering/").split("::")
        rows.append(f"| {bug.rule} | {SUBJECTS[bug.spec]} | `{bug.file.removesuffix('.py')}: {bug.name}` | `{file}: {test}` |")
    return "\n".join(rows) + "\n"
