"""``tidegate compare`` names the settings under which two topics were made, where the journal knows them."""

from __future__ import annotations

import json
from pathlib import Path

from support.valkey_server import Server

from ingest.journal.redis_journal import RedisJournal
from tidegate.platform.kafka.admin import Topic
from tidegate.tools.commands.compare import differing_settings


def test_the_setting_that_differs_is_named(tmp_path: Path) -> None:
    """Of two topics that the journal knows; of others nothing is said."""
    server = Server(tmp_path)
    topics = [Topic(name, f"id-{name}", 1, {}) for name in ("a", "b", "unknown")]
    try:
        journal = RedisJournal.open(server.settings(journal_durability="memory"))
        for topic, late in zip(topics, ("1m", "2m"), strict=False):
            fingerprint = json.dumps({"settings": {"late": late, "early": "5m"}, "starts": {}, "start": None})
            journal.read_or_set_fingerprint(topic.name, topic.topic_id, fingerprint, begins_anew=True)
        journal.close_connection()
        assert differing_settings(server.settings(), topics[:2]) == ["late: 1m -> 2m"]
        assert differing_settings(server.settings(), topics[1:]) == []
    finally:
        server.kill()
    assert differing_settings(server.settings(), topics[:2]) == []
