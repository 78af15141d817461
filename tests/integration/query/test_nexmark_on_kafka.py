"""Nexmark through a real Kafka: both jobs, and every row is the judge's."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest
from support.repository import ROOT
from support.stack.servers import SharedStack

sys.path.insert(0, str(ROOT / "benchmarks"))  # its modules import each other by name

from nexmark.generator import Made
from nexmark.on_files import OnFiles
from nexmark.on_kafka import OnKafka
from running import Bench

pytestmark = [pytest.mark.integration, pytest.mark.deep]
PARTITIONS = 4


def test_of_equal_bids_the_first_by_partition_and_offset_counts(stack: SharedStack, tmp_path: Path) -> None:
    """Level 3: the last bid of each bidder, most of them at the same instant as others, spread over all partitions."""
    made = Made(20_000, "ties", rate=400)
    (tmp_path / "job").mkdir()
    bench = Bench(stack, tmp_path / "job", 2)  # type: ignore[arg-type] # it asks for addresses only
    files = OnFiles(made, "one", tmp_path, threads=1, partitions=PARTITIONS)
    jobs = OnKafka(bench, made, "one", files, argparse.Namespace(partitions=PARTITIONS), None)
    _, results = jobs.answer("q18", made)
    found = files.judged("q18", results)
    assert found["due"] > 1_000
    assert (found["rows"], found["equal"], found["missing"]) == (found["due"], found["due"], 0)
