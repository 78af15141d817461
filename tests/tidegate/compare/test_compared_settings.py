"""``tidegate compare`` names the settings under which two topics were made, where the journal knows them."""

from __future__ import annotations

import json
from pathlib import Path

import redis
from support.valkey_server import Server

from tidegate.cli.compare import differing_settings
from tidegate.kafka.admin import Topic


def test_the_setting_that_differs_is_named(tmp_path: Path) -> None:
    """Of two topics that the journal knows; of others nothing is said."""
    server = Server(tmp_path)
    topics = [Topic(name, f"id-{name}", 1, {}) for name in ("a", "b", "unknown")]
    try:
        client = redis.Redis(port=server.port)
        for topic, late in zip(topics, ("1m", "2m"), strict=False):
            key = f"tidegate:{{{topic.name}}}:fingerprint:{topic.topic_id}"
            client.set(key, json.dumps({"settings": {"late": late, "early": "5m"}, "starts": {}, "start": None}))
        assert differing_settings(server.settings(), topics[:2]) == ["late: 1m -> 2m"]
        assert differing_settings(server.settings(), topics[1:]) == []
    finally:
        server.kill()
    assert differing_settings(server.settings(), topics[:2]) == []
