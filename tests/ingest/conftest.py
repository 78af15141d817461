"""What tests of ingest share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.valkey_server import Server

from ingest.journal.redis_journal import RedisJournal


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisJournal]:
    """A journal on a server of its own."""
    server = Server(tmp_path_factory.mktemp("valkey"), "--appendonly", "yes", "--appendfsync", "always")
    opened = RedisJournal.open(server.settings())
    yield opened
    opened.close_connection()
    server.kill()
