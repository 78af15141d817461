"""
Checks an attestation: whether the attested rows and files still have the attested digests.

Law: rows that came later do not count. Of each partition as many rows are read as the statement says, from the same instants.
:mod:`query.verify.attested_tables` checks tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ordering.errors import RefusedError
from ordering.ticks import parse_tick
from query.verify.attested_tables import find_table_changes
from query.verify.file_rows import FileDigest, files_of_partition
from query.verify.rows import RowDigest
from query.verify.topic_rows import rows_between
from sinks.file_places import open_place
from tidegate.ordered_topic.compare.sides import make_side
from tidegate.ordered_topic.walk import PartitionWalk
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.settings.load import Settings
from tidegate.records.result_columns import Column


def find_changes(statement: Mapping[str, Any], admin: Admin, settings: Settings, columns: Callable[[], Sequence[Column]]) -> Iterator[str]:
    """
    Yield a line for each topic partition, folder partition and table that has changed. *columns* returns the output's columns; it is called
    only for tables. Raises RefusedError: a topic is gone, or see :func:`query.verify.attested_tables.find_table_changes`.
    """
    kafka = settings.kafka.client_properties()
    since_us, until_us = (None if statement[name] is None else parse_tick(statement[name]) for name in ("since", "until"))
    for published in statement["published"]:
        name = published["name"]
        if published["kind"] == "table":
            yield from find_table_changes(published, statement["target"], settings, admin, columns)
            continue
        for partition in published["partitions"]:
            if published["kind"] == "topic":
                count, sha256 = _digest_rows(admin, kafka, name, partition, since_us, until_us)
                what, counted = f"{name}-{partition['partition']}", partition["rows"]
            else:
                count, sha256 = _digest_files(name, partition)
                what, counted = f"partition {partition['partition']} of the files in {name}", partition["files"]
            if count < counted:
                yield f"{what}: {count:,} of {counted:,} are left"
            elif sha256.hex() != partition["sha256"]:
                yield f"{what}: the first {counted:,} have the digest {sha256.hex()}, attested is {partition['sha256']}"


def _digest_rows(
    admin: Admin, kafka: Mapping[str, str], name: str, partition: Mapping[str, Any], since_us: int | None, until_us: int | None
) -> tuple[int, bytes]:
    """Return the number and digest of the attested rows that are left in a topic partition."""
    topic = admin.require(name)
    if partition["partition"] >= topic.partitions:
        what = f"topic {name} has {topic.partitions} partitions, the attestation more"
        raise RefusedError(what, code="TG-TOPIC-PARTITIONS", where=name, fix="name the topic that was attested")
    try:
        side = make_side("A", admin, kafka, topic, since_us)
    except RefusedError as error:
        fix = "give an output whose attestations are to be checked a longer retention_time; what is left can be verified and signed again"
        raise RefusedError(error.what, code=error.code, where=error.where, fix=fix) from None
    digest, walk = RowDigest(), PartitionWalk(side, partition["partition"])
    for piece in walk.run(until_us):
        rows = rows_between(piece.events, since_us, until_us)
        digest.add(rows.slice(0, min(len(rows), partition["rows"] - digest.count)))
        if digest.count == partition["rows"]:
            break
    return digest.count, digest.sha256


def _digest_files(folder: str, partition: Mapping[str, Any]) -> tuple[int, bytes]:
    """Return the number and digest of a partition's attested files that are left in a folder."""
    digest, place = FileDigest(), open_place(folder)
    for name in files_of_partition(place, partition["partition"], partition["first"])[: partition["files"]]:
        digest.add(name, place.read(name))
    return digest.files, digest.sha256
