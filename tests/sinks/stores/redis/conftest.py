"""The Valkey that the tests of this folder write to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.valkey_server import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for a file of tests, without an append-only file."""
    made = Server(tmp_path_factory.mktemp("valkey"))
    yield made
    made.kill()
