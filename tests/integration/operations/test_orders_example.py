"""``examples/orders`` with a real PostgreSQL: its own checks and verifications are those of this test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from support.postgres_server import PostgresServer
from support.repository import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.deep]


def test_the_example_runs_and_says_that_it_is_right(tmp_path: Path) -> None:
    """From the raw topics to both tables, which are checked row by row and verified."""
    server = PostgresServer()
    command = [sys.executable, str(ROOT / "examples/orders/demo.py"), "--postgres", server.url(), "--orders", "4000"]
    try:
        done = subprocess.run([*command, "--folder", str(tmp_path / "orders")], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        with psycopg.connect(server.url()) as connection:
            assert connection.execute("SELECT count(*) BETWEEN 3000 AND 4000 FROM orders_demo.paid").fetchone() == (True,)
    finally:
        server.stop()
    assert done.stdout.count(", as computed one by one") == 2
    for name in ("paid", "revenue"):
        assert f"equal: {name} follows from the raw topics, byte for byte" in done.stdout
    assert "table postgres " in done.stdout
    assert "table delta " in done.stdout
