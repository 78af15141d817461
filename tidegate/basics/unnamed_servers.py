"""
Warns of servers that nobody has named: without a stack in this folder and without a setting, commands talk to whatever listens at the usual
port, which may be the server of somebody else.

Law: the warning comes once in a process for each kind of server, and only when such a server has answered.
"""

from __future__ import annotations

import logging

from pydantic import BaseModel

_warned: set[str] = set()


def warn_of_unnamed(table: BaseModel, setting: str, server: str, address: str) -> None:
    """Warn if the *setting* of *table* that names the *server* (Kafka, Redis) was not given; it has answered at *address*."""
    if setting in table.model_fields_set or server in _warned:
        return
    _warned.add(server)
    name = {"Kafka": "kafka.bootstrap", "Redis": "redis.url"}[server]
    # Not by the logs of tidegate.platform.observe, which write to standard output before they are configured.
    logging.getLogger("tidegate").warning(
        "no stack of this folder is up, and %s is not set: the server that listens at %s is used. "
        "tidegate up starts a stack of this folder; %s names another server",
        name,
        address,
        name,
    )
