"""Outputs of Stream Analytics: what takes their place, or why nothing does."""

from __future__ import annotations

from typing import Any

from tidegate.tools.convert.draft import Draft, env_name, items_of, member, text_of
from tidegate.tools.convert.event_hubs import connect_namespace

# By a word of DataSourceType: what may take its place.
_OTHERS = {
    "sql database": ("there is no sink for Azure SQL", "[outputs.NAME.postgres], or a connector of Kafka that reads the topic"),
    "synapse": ("there is no sink for Azure Synapse", "files as Parquet, [outputs.NAME.delta] or [outputs.NAME.iceberg]"),
    "table": ("there is no sink for Table storage", "[outputs.NAME.redis] or [outputs.NAME.postgres]"),
    "documentdb": ("there is no sink for Cosmos DB", "its connector for Kafka, which reads the topic"),
    "cosmos": ("there is no sink for Cosmos DB", "its connector for Kafka, which reads the topic"),
    "service bus": ("there is no sink for Service Bus", "a reader of the topic (docs/learn/reading.md)"),
    "power bi": ("there is no sink for Power BI", "a data flow over files or a table"),
    "function": ("Azure Functions are HTTP receivers", "[outputs.NAME.http] with its url"),
    "kusto": ("there is no sink for Azure Data Explorer", "its connector for Kafka, which reads the topic"),
    "data explorer": ("there is no sink for Azure Data Explorer", "its connector for Kafka, which reads the topic"),
}


def convert_output(draft: Draft, name: str, fields: Any) -> None:
    """Add [outputs.NAME]: every output is a topic, which a store or files may follow."""
    called, plain = f"output {name}", draft.name_of(name)
    settings = draft.table(f"outputs.{plain}")
    settings["topic"] = plain
    kind = text_of(fields, "DataSourceType").lower()
    if hub := member(fields, "EventHubProperties"):
        settings["topic"] = text_of(hub, "EventHubName") or plain
        if namespace := text_of(hub, "ServiceBusNamespace"):
            connect_namespace(draft, namespace, called)
        why = "an event hub is a topic; it holds results and CTIs, which readers tell apart by a header"
        draft.note(called, "converted", why, "readers that know nothing of CTIs: docs/learn/reading.md, or plain_topic")
    elif (blob := member(fields, "BlobStorageProperties", "AzureDataLakeStoreProperties")) or "blob" in kind or "lake" in kind:
        _convert_files(draft, plain, blob or {}, fields, called)
    elif "postgres" in kind:
        _convert_postgres(draft, plain, fields, called)
    else:
        why, fix = next(((why, fix) for word, (why, fix) in _OTHERS.items() if word in kind), (f"there is no sink for {kind or 'it'}", ""))
        draft.note(called, "partly", f"{why}: results go to topic {plain}", fix)


def _convert_files(draft: Draft, name: str, blob: Any, fields: Any, called: str) -> None:
    settings = draft.table(f"outputs.{name}")
    settings["files"] = f"out/{name}"
    kind = text_of(member(fields, "Serialization"), "Type").lower()
    settings["file_format"] = "parquet" if kind == "parquet" else "ndjson"
    settings["query"] = draft.script_name
    pattern = text_of(blob, "BlobPathPattern", "PathPattern", "FilePathPrefix")
    if "{date}" in pattern or "{datetime" in pattern:
        settings["file_folders"] = "date"
    accounts = items_of(member(blob, "StorageAccounts"))
    account = text_of(blob, "AccountName") or next((text_of(each, "AccountName") for each in accounts), "")
    container = text_of(blob, "Container", "ContainerName")
    where = f"abfs://{container}@{account}.dfs.core.windows.net/..." if container and account else "abfs://..."
    why = f"files are written to {settings['files']}, as {settings['file_format']}" + (", not CSV" if kind == "csv" else "")
    draft.note(
        called, "converted" if kind != "csv" else "partly", why, f'to write to the account: files = "{where}" (docs/operate/files.md)'
    )


def _convert_postgres(draft: Draft, name: str, fields: Any, called: str) -> None:
    found = next((value for key, value in fields.items() if "postgres" in key.lower() and isinstance(value, dict)), fields)
    user, server, database = (text_of(found, key) for key in ("User", "Server", "Database"))
    host = server if "." in server else f"{server}.postgres.database.azure.com"
    variable = env_name(name, "password")
    draft.table(f"outputs.{name}.postgres").update(
        {"url": f"postgresql://{user}@{host}:5432/{database}?sslmode=require", "password": f"env:{variable}"}
        | ({"table": table} if (table := text_of(found, "Table")) else {})
    )
    draft.table(f"outputs.{name}")["query"] = draft.script_name
    draft.note(called, "converted", "passwords are never copied", f"set the environment variable {variable}")
