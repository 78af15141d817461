"""
Event Hubs as Kafka: the settings under which a namespace is read and written.

Each namespace answers at its Kafka endpoint, port 9093, by TLS, with the user ``$ConnectionString`` and the connection string as password.
"""

from __future__ import annotations

from tidegate.tools.convert.draft import Draft, env_name

PAGE = "docs/operate/event-hubs.md"
_DOMAIN = "servicebus.windows.net"


def connect_namespace(draft: Draft, namespace: str, part: str) -> None:
    """Set [kafka] to a namespace; a second one gets a note: a configuration has one cluster."""
    host = namespace if "." in namespace else f"{namespace}.{_DOMAIN}"
    bootstrap = f"{host}:9093"
    kafka = draft.table("kafka")
    if kafka.get("bootstrap", bootstrap) != bootstrap:
        what = f"it is in namespace {namespace}, and a configuration reads one cluster, {kafka['bootstrap']}"
        draft.note(part, "partly", what, "copy it there, for example with MirrorMaker, or make a project of its own for what reads it")
        return
    variable = env_name(namespace.partition(".")[0], "connection_string")
    kafka["bootstrap"] = bootstrap
    draft.table("kafka.client").update(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "$ConnectionString",
            "sasl.password": f"env:{variable}",
        }
    )
    draft.note(
        f"namespace {namespace}",
        "partly",
        "keys and connection strings are never copied",
        f"set the environment variable {variable} to the connection string of the namespace ({PAGE})",
    )
