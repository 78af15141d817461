"""
The bucket layout: how a job's work is split into buckets, of all ways that its query allows (:mod:`query.plan.parallelism`). The number of
buckets is the number of partitions of the result topics: as an output requests, else as an existing result topic has, else as the ordered
topics have. It is chosen once: a job that continues keeps its layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ordering.errors import QueryError, RefusedError, SettingError
from query.config import Feed, QueryPlan
from query.plan.nodes import Plan
from query.plan.parallelism import decide_parallelism, keys_text
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.binding.names import InputNames
from tidegate.language.expressions.syntax.errors import Source
from tidegate.language.expressions.tree import Cast, Expr
from tidegate.platform.settings.load import Settings
from tidegate.platform.settings.tables.outputs import OutputSettings

if TYPE_CHECKING:  # who only describes a layout asks no broker
    from query.engine.exchange import Exchange
    from tidegate.platform.kafka.admin import Topic


@dataclass(frozen=True, slots=True)
class BucketLayout:
    """How a job's work is split into *buckets*: one for each ordered partition if *by_partition*, or with an *exchange* of rows."""

    buckets: int
    by_partition: bool = False
    exchange: Exchange | None = None


def plan_buckets(
    settings: Settings, plans: Sequence[Plan], outputs: Sequence[OutputSettings], feeds: Sequence[Feed], results: Mapping[str, Topic]
) -> BucketLayout:
    """Return how the work of a job is split; *results* are the result topics that are there. RefusedError if OVER cannot be split."""
    partitions = {feed.input: feed.partitions for feed in feeds}
    if plans[0].over is not None:
        if len(set(partitions.values())) > 1:
            counts = ", ".join(f"{name} {count}" for name, count in partitions.items())
            reason = f"with OVER all inputs must be spread alike, and their ordered topics have different numbers of partitions: {counts}"
            fix = "give inputs the same output_partitions, outputs the same partitions, and write their topics anew; or leave OVER out"
            raise RefusedError(reason, code="TG-QUERY-OVER", where=", ".join(feed.topic for feed in feeds), fix=fix)
        return BucketLayout(feeds[0].partitions)
    parallelism = decide_parallelism(plans, substream_keys(settings, partitions), partitions)
    partition_counts = [output.partitions for output in outputs if output.partitions]
    partition_counts += [results[output.topic].partitions for output in outputs if output.topic and output.topic in results]
    buckets = partition_counts[0] if partition_counts else feeds[0].partitions if parallelism.is_by_partition else max(partitions.values())
    if buckets == 1:
        return BucketLayout(1)
    if parallelism.is_by_partition and buckets == feeds[0].partitions:
        return BucketLayout(buckets, by_partition=True)
    if parallelism.keys:
        from query.engine.exchange import Exchange

        return BucketLayout(buckets, exchange=Exchange(parallelism.keys, buckets))
    return BucketLayout(feeds[0].partitions, by_partition=True) if parallelism.is_by_partition else BucketLayout(1)


def exchange_tasks(settings: Settings) -> int:
    """Return how many tasks share the buckets of an exchange: as many as the user has set, else one for each two cores."""
    # Each task reads all partitions, and a reader's thread needs a part of a second core: on two cores one task is faster than two.
    tasks = settings.spark.shuffle_partitions
    return tasks if "shuffle_partitions" in settings.spark.model_fields_set else max(tasks // 2, 1)


def check_over(plans: Sequence[Plan], where: str) -> None:
    """Raise QueryError if some inputs of a script (named *where*) are read with OVER and others without."""
    scans = [scan for plan in plans for scan in plan.scans]
    over = next((scan for scan in scans if scan.over is not None), None)
    without = next((scan for scan in scans if scan.over is None), None)
    if over is None or without is None:
        return
    again = "once" if without.input == over.input else "and"
    message = f"{over.input} is read OVER {over.over}, {again} {without.input} without: time advances in one way in a job"
    fix = "write OVER after every input or after none, or run the SELECTs as jobs of their own"
    raise QueryError(message, code="TG-QUERY-OVER", where=where, fix=fix)


def exchange_binding(exchange: Exchange | None) -> str:
    """Return the text of an exchange to which a checkpoint is bound."""
    return "" if exchange is None else f"{keys_text(exchange.keys)} into {exchange.buckets}"


def split_text(plan: QueryPlan, overs: Mapping[str, Expr | None]) -> str:
    """Return what decides, with the number of buckets, in which one a result is computed; *overs*: the substream key of each input."""
    if plan.buckets == 1:
        return "one bucket"
    if plan.over:
        return "by substream"
    keys = {name: (over,) for name, over in overs.items() if over is not None} if plan.exchange is None else plan.exchange.keys
    topics = {feed.input: feed.topic for feed in plan.feeds}
    texts = {
        topics[name]: ", ".join(f"{expr} as {expr.kind.name}" if isinstance(expr, Cast) else str(expr) for expr in exprs)
        for name, exprs in keys.items()
    }
    by_topic = [f"{text} of {topic}" for topic, text in sorted(texts.items())]
    return f"by {'; '.join(by_topic if len(set(texts.values())) > 1 else set(texts.values()))}"


def check_partitions(output: OutputSettings, buckets: int) -> None:
    """Raise SettingError if an output requests another number of partitions than the query has buckets."""
    if output.partitions in (None, buckets):
        return
    why = "as many as it has buckets" if buckets > 1 else "one, as its work is not spread (tidegate plan says why)"
    message, where = f"the result topic of this query has {buckets} partitions: {why}", f"outputs.{output.name}.partitions"
    example = f"partitions = {buckets}"
    raise SettingError(message, code="TG-SETTING-PARTITIONS", where=where, fix="leave partitions out", example=example)


def substream_keys(settings: Settings, names: Iterable[str]) -> dict[str, Expr | None]:
    """Return the substream key of each input as an expression; None if it has none, or is the result of a query."""
    overs: dict[str, Expr | None] = dict.fromkeys(names)
    for name in overs:
        table = settings.inputs.get(name)
        if table is not None and table.over:
            schema = InputSchema(name, table.timestamp_by, table.over, table.fields)
            overs[name] = InputNames(Source("", name), schema).configured_over()
    return overs


def describe_parallelism(settings: Settings, plans: Sequence[Plan]) -> str:
    """Return into how many buckets a query's work is split and why, as far as the settings determine it."""
    if plans[0].over is not None and len({name for plan in plans for name in plan.inputs}) > 1:
        return "one bucket for the same partition of all ordered topics: time advances key by key, as far as each input has come"
    if plans[0].over is not None:
        return "one bucket for each partition of the ordered topic: time advances substream by substream"
    names = dict.fromkeys(name for plan in plans for name in plan.inputs)
    parallelism = decide_parallelism(plans, substream_keys(settings, names), dict.fromkeys(names, 1))
    partitions_asked = next(
        (number for plan in plans if (output := settings.outputs.get(plan.output)) and (number := output.partitions)), None
    )
    if partitions_asked == 1 and (parallelism.is_by_partition or parallelism.keys):
        return f"one bucket, as partitions = 1 of the output asks for; else {parallelism.reason}"
    if parallelism.is_by_partition or not parallelism.keys:
        return parallelism.reason
    count = str(partitions_asked or "as many as the ordered topic has partitions, or as partitions of the output says")
    return f"{parallelism.reason}; buckets: {count}; each reads all partitions and their CTIs, and keeps the rows whose keys fall to it"
