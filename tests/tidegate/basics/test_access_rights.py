"""The rights listed are those that are used: commands of Redis are looked up in the source."""

from __future__ import annotations

import re

from support.repository import ROOT

from tidegate.basics.access_rights import REDIS_COMMANDS, REDIS_WATCHING, Right, kafka_acl, kafka_principal, redis_acl

CONNECTING = {"select", "ping", "client|setname", "client|setinfo"}
CLIENTS = r"(?:_client|client|pipe|exchange|_connection\(\))"
NAMED_OTHERWISE = {"scan_iter": "scan", "config_get": "config|get", "delete": "del"}
NOT_COMMANDS = {"close", "pipeline", "execute", "from_url"}


def commands_in_source() -> set[str]:
    """Return every command that a script or a Redis client in the source is asked for."""
    found: set[str] = set()
    for path in [*ROOT.glob("ingest/**/*.py"), *ROOT.glob("query/**/*.py"), *ROOT.glob("tidegate/**/*.py")]:
        text = path.read_text()
        found |= {name.lower() for name in re.findall(r"call\('([A-Z]+)'", text)}
        if re.search(r"^ *import redis$", text, re.MULTILINE) and path.parts[-2:] != ("stack", "servers.py"):
            names = set(re.findall(rf"\b{CLIENTS}\.([a-z_]+)\(", text)) - NOT_COMMANDS
            found |= {NAMED_OTHERWISE.get(name, name) for name in names}
    return found


def test_exactly_the_commands_used_are_listed() -> None:
    """One less and a job is denied, one more and its user may do what it need not."""
    assert {*REDIS_COMMANDS, *REDIS_WATCHING} == commands_in_source() | CONNECTING


def test_the_page_shows_what_is_listed() -> None:
    """docs/operate/security.md gives the commands that make both users."""
    page = (ROOT / "docs" / "operate" / "security.md").read_text()
    assert redis_acl() in page
    assert redis_acl("watcher", REDIS_WATCHING) in page


def test_a_denial_shows_the_command_that_mends_it() -> None:
    """With the user's name where the client knows it."""
    line = kafka_acl(Right("Read", "raw"), "broker:9093", kafka_principal({"sasl.username": "me"}))
    assert line == (
        "kafka-acls.sh --bootstrap-server broker:9093 --command-config admin.properties "
        "--add --allow-principal User:me --operation Read --topic raw"
    )
    assert kafka_principal({}) == "User:PRINCIPAL"
