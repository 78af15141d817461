"""
The law of a query, tried: the same bytes out, whatever happens to it on the way.

``law_of`` draws events that are late, tied or silent, runs the query over them in one batch, and then again

- cut into batches, with workers that restart or are killed, each with code that is loaded anew (levels 2 and 3),
- over a log that its writer wrote twice in part, and over one that was torn off, without its last CTIs, and begun again (level 3),
- from an output start in the middle: it gives the undisturbed run's results from there on,
- by several workers that share the keys (without OVER), or with the keys on several partitions (with OVER),
- in another interpreter, with another hash seed, time zone and clock.

Law of this module: of what fails, events are taken away until each one that is left is needed to show the difference (for a bounded time).
The draws are the same on every run, so a test is not red by chance.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from query.testing.case_folder import write_case
from query.testing.disorder import draw_events
from query.testing.fewest_events import BrokenRun, shrink
from query.testing.input_files import Row, Rows, read_rows
from query.testing.sink_law import LawBrokenError, SinkUnderTest, law_of_sink
from query.testing.trial import open_trial
from query.testing.user_code import UserFunction
from query.testing.user_query import OpenQuery, QueryText, user_query
from query.testing.walk import Interruption

EXAMPLES = 6
"""How many logs are drawn; each is run about six times."""
POLICIES = {"late": "1h", "reorder": "1s"}
SHRINK_S = 20.0
"""For how long a failure is made smaller at most, seconds."""
_SEED = 44
_INTERRUPTIONS_MAX = 4


def law_of(
    query: QueryText | SinkUnderTest,
    inputs: Mapping[str, Rows] | None = None,
    *,
    policies: Mapping[str, str] | None = None,
    functions: Mapping[str, UserFunction] | None = None,
    references: Mapping[str, Rows] | None = None,
    config: Path | None = None,
    examples: int = EXAMPLES,
    case_folder: Path | None = None,
    shrink_s: float = SHRINK_S,
) -> None:
    """
    Check that a query, or a sink, keeps the law.

    Args:
        query: SQL, a query of ``tidegate.query.api``, a script's path, the name of a query that an installed package offers, or a sink.
        inputs: For each input a few rows as examples of its fields, in the forms of ``run_query``; their times are replaced.
        policies: Time policies, named as the flags of ``tidegate local``; by default :data:`POLICIES`, with *config* those that it says.
        functions: Functions, aggregates and operators that no installed package offers, by their names in scripts.
        references: The tables that JOIN looks up.
        config: The path of a ``tidegate.toml`` that says more about inputs.
        examples: How many logs are drawn.
        shrink_s: For how long a failure is made smaller at most, seconds.
        case_folder: Where the case of a failure is written; by default a new folder for temporary files.

    Raises:
        LawBrokenError: It does not keep the law; the text says what differed, with the fewest events that show it.
        QueryError: The script is wrong.
    """
    if isinstance(query, SinkUnderTest):
        law_of_sink(query)
        return
    given_rows = {name: read_rows(rows) for name, rows in (inputs or {}).items()}
    if policies is None and config is None:
        policies = POLICIES
    tried = user_query(query, functions, policies, config, references)
    chance = random.Random(_SEED)
    with tried.open(given_rows) as opened:
        logs = [_draw_logs(chance, opened, given_rows) for _ in range(examples)]
    for rows in logs:
        interruptions, place = _draw_interruptions(chance), chance.randrange(11)
        with open_trial(tried, rows) as trial:
            found = trial.find_difference(interruptions, place)
            if found is None:
                continue
            failure = BrokenRun(rows, *found)
        fewest = shrink(tried, failure, shrink_s)
        folder = case_folder or Path(mkdtemp(prefix="tidegate-case-"))
        listing = write_case(folder, tried, fewest, functions or {})
        raise LawBrokenError(fewest.sentence, folder, listing)


def _draw_logs(chance: random.Random, opened: OpenQuery, examples: Mapping[str, Sequence[Row]]) -> dict[str, list[dict[str, Any]]]:
    return {scan.input: draw_events(chance, scan, examples[scan.input], opened.lookback_us) for scan in opened.script.scans}


def _draw_interruptions(chance: random.Random) -> list[Interruption]:
    count = chance.randint(1, _INTERRUPTIONS_MAX)
    return [
        Interruption(chance.randint(1, 14), chance.choice(("restart", "restart", "cut", "kill")), chance.randint(1, 3))
        for _ in range(count)
    ]
