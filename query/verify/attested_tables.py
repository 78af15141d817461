"""
Checks whether the tables of stores still hold the results that were attested.

Law: a table must hold every attested result. It may also hold results that came later, and nothing else. The result topic, which the
attestation covers too, shows which rows these are. If no result came later, the table must also have the attested digest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ordering.errors import RefusedError
from query.verify.table_rows import StoreCheck, make_store_check, refused_positions
from sinks.copying.feed import PartitionFeed
from sinks.stores.base import StoreContext, Stream
from sinks.stores.registry import make_store
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.settings.load import Settings
from tidegate.platform.settings.tables.outputs import OutputSettings
from tidegate.records.result_columns import Column


def find_table_changes(
    published: Mapping[str, Any], output: str, settings: Settings, admin: Admin, columns: Callable[[], Sequence[Column]]
) -> Iterator[str]:
    """
    Yield a line for each way in which a table is no longer as attested; *columns* returns the output's columns. Raises RefusedError: the
    output has no such table, or its topic is gone; otherwise like :func:`query.verify.table_rows.make_store_check`.
    """
    output_settings = settings.output(output)
    topic = admin.require(str(output_settings.topic))
    context = StoreContext(output, Stream(topic.name, topic.topic_id, topic.partitions), columns(), settings.redis)
    kafka = settings.kafka.client_properties()
    kind = _find_store_kind(published["name"], output_settings, context)
    attested = {int(partition["partition"]): int(partition["below"]) for partition in published["partitions"]}
    check = make_store_check(kind, output_settings.stores[kind], context, refused_positions(admin, kafka, topic.name), attested)
    assert check is not None, "only stores that can be read are attested"
    try:
        for partition, below in attested.items():
            if check.below.get(partition, 0) < below:
                yield f"{check.name}: partition {partition} is at {check.below.get(partition, 0):,}, attested is {below:,}"
                return
        if not any(admin.starts(topic.all_partitions).values()):
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
        # finish() has kept the digest and deleted the rows.
        sha256 = check.sha256 or check.rows.sha256()
        if check.below == attested and sha256.hex() != published["sha256"]:
            yield f"{check.name}: its rows have the digest {sha256.hex()}, attested is {published['sha256']}"
    finally:
        check.close()


def _find_store_kind(name: str, output: OutputSettings, context: StoreContext) -> str:
    for kind, settings in output.stores.items():
        if make_store(kind, settings, context).name == name:
            return kind
    fix = "check with the configuration that it was signed with"
    raise RefusedError(f"output {context.output} has no {name}", code="TG-STORE-NONE", where=f"outputs.{context.output}", fix=fix)


def _accept_topic(check: StoreCheck, stream: Stream, kafka: Mapping[str, str], admin: Admin) -> None:
    """Give the results of a topic to the check as the computed ones, as far as the table has come."""
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
