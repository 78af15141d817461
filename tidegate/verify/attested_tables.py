"""
Tables of stores that an attestation was given for: whether what stands in them is still what was attested.

Law: the attested results must stand, and nothing else but results that came later; those may stand or not. Which rows they are is shown by
the result topic, whose rows the attestation covers too. If no result came later, the digest of the table must be the attested one as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ordering.errors import RefusedError
from sinks.copying.feed import PartitionFeed
from sinks.parquet_columns import Column
from sinks.stores.base import StoreContext, Stream
from sinks.stores.registry import make_store
from tidegate.kafka.admin import Admin
from tidegate.settings.load import Settings
from tidegate.settings.tables.outputs import OutputSettings
from tidegate.verify.table_rows import StoreCheck, make_store_check, refused_positions


def find_table_changes(
    published: Mapping[str, Any], output: str, settings: Settings, admin: Admin, columns: Callable[[], Sequence[Column]]
) -> Iterator[str]:
    """
    Yield what is no longer as attested of a table; *columns* says which the output has. Raises RefusedError: the output has no such table,
    or its topic is gone; otherwise like :func:`tidegate.verify.table_rows.make_store_check`.
    """
    table = settings.output(output)
    topic = admin.require(str(table.topic))
    context = StoreContext(output, Stream(topic.name, topic.topic_id, topic.partitions), columns(), settings.redis)
    kafka = settings.kafka.client_properties()
    kind = _kind_of(published["name"], table, context)
    attested = {int(each["partition"]): int(each["below"]) for each in published["partitions"]}
    check = make_store_check(kind, table.stores[kind], context, refused_positions(admin, kafka, topic.name), attested)
    assert check is not None, "what was attested can be read"
    try:
        for partition, below in attested.items():
            if check.below.get(partition, 0) < below:
                yield f"{check.name}: partition {partition} stands at {check.below.get(partition, 0):,}, attested is {below:,}"
                return
        is_whole = not any(admin.starts(topic.all_partitions).values())
        if is_whole:
            _accept_topic(check, context.stream, kafka, admin)
            check.finish()
            for difference in check.differences[:1]:
                row = difference.stands or difference.should
                value = "" if row is None or row.value is None else row.value.decode("utf-8", "replace")
                yield f"{check.name}: {check.differing:,} rows are not as attested, the first is {difference.kind}: {value}"
        elif check.below != attested:
            what = f"results came into {check.name} after it was attested, and retention has deleted the beginning of {topic.name}"
            fix = "nothing tells them from the attested ones: sign again after each verification"
            raise RefusedError(what, code="TG-RETENTION", where=topic.name, fix=fix)
        sha256 = check.rows.sha256().hex() if not check.sha256 else check.sha256.hex()
        if check.below == attested and sha256 != published["sha256"]:
            yield f"{check.name}: its rows have the digest {sha256}, attested is {published['sha256']}"
    finally:
        check.close()


def _kind_of(name: str, table: OutputSettings, context: StoreContext) -> str:
    for kind, settings in table.stores.items():
        if make_store(kind, settings, context).name == name:
            return kind
    fix = "check with the configuration that it was signed with"
    raise RefusedError(f"output {context.output} has no {name}", code="TG-STORE-NONE", where=f"outputs.{context.output}", fix=fix)


def _accept_topic(check: StoreCheck, stream: Stream, kafka: Mapping[str, str], admin: Admin) -> None:
    """Have the results of a topic be what should stand, as far as the table has come."""
    ends = admin.ends([(stream.name, partition) for partition in range(stream.partitions)])
    for (_, partition), end in ends.items():
        feed = PartitionFeed(kafka, stream, partition)
        try:
            for rows in feed.read(end):
                check.accept_rows(rows, partition)
                if feed.position >= check.below.get(partition, 0):
                    break
        finally:
            feed.close()
