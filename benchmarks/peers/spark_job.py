"""
The queries in Spark's own streaming: local, state in RocksDB with a change log, results at least once (its Kafka sink knows no more).

Usage: SPARK-PYTHON spark_job.py ASKED, see asked.py. The read is bounded (available now). Spark closes windows by its watermark
only, so those of the end stay open; LAG it does not do over a stream, and says so.
"""

from __future__ import annotations

import sys
import time

from asked import Asked, asked, tell
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

_STATE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_BATCHES, _BATCH_MAX = 10, 500_000
_JOIN_BATCH = 20_000
"""Of each side: in a join all events of a key in a batch meet, so that the work of a batch grows with its square."""


def session(job: Asked) -> SparkSession:
    """Start Spark."""
    conf = {
        "spark.jars": ",".join(job.jars),
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": job.scratch,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(job.cores),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stateStore.providerClass": _STATE,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
    }
    builder = SparkSession.builder.master(f"local[{job.cores}]")
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def events(spark: SparkSession, job: Asked, topic: str) -> DataFrame:
    """Return a topic's events with their watermark."""
    batch = _JOIN_BATCH if job.query == "join" else min(_BATCH_MAX, max(job.events // _BATCHES, 1))
    read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", job.bootstrap).option("subscribe", topic)
    records = read.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(batch)).load()
    parsed = F.from_json(F.col("value").cast("string"), "device string, ts long, value double")
    rows = records.select(F.unix_millis("timestamp").alias("stamped_ms"), parsed.alias("event")).select("stamped_ms", "event.*")
    moment = F.timestamp_millis(F.col("stamped_ms" if job.by_record else "ts") - job.shift_ms)
    return rows.withColumn("happened", moment).withWatermark("happened", f"{job.bound_ms} milliseconds")


def results(spark: SparkSession, job: Asked) -> DataFrame:
    """Return what the query finds."""
    sides = [events(spark, job, topic) for topic in job.topics]
    window_end = F.unix_millis("window.end").alias("window_end")
    if job.query == "tumbling":
        groups = sides[0].groupBy("device", F.window("happened", "10 seconds"))
        return groups.agg(F.count("*").alias("n"), F.sum("value").alias("total")).select("device", window_end, "n", "total")
    if job.query == "hopping":
        groups = sides[0].groupBy("device", F.window("happened", "60 seconds", "1 second"))
        return groups.agg(F.count("*").alias("n")).select("device", window_end, "n")
    if job.query == "join":
        # Whole seconds alone say nothing of how long a row must be kept: the interval that they allow does.
        near = "r.happened BETWEEN l.happened - INTERVAL 999 MILLISECONDS AND l.happened + INTERVAL 1999 MILLISECONDS"
        crossed = "unix_seconds(r.happened) - unix_seconds(l.happened) BETWEEN 0 AND 1"
        joined = sides[0].alias("l").join(sides[1].alias("r"), F.expr(f"l.device = r.device AND {near} AND {crossed}"))
        return joined.selectExpr("l.device", "l.ts AS at", "r.ts AS followed", "l.value", "r.value AS following")
    before = F.lag("value").over(Window.partitionBy("device").orderBy("happened")).alias("before")
    return sides[0].select("device", "ts", "value", before)


def main() -> None:
    """Run one query to the end of its topics."""
    job = asked()
    spark = session(job)
    rows = results(spark, job).select(F.col("device").alias("key"), F.to_json(F.struct("*")).alias("value"))
    writer = rows.writeStream.outputMode("append").format("kafka").trigger(availableNow=True)
    producer = {"bootstrap.servers": job.bootstrap, "compression.type": "lz4", "batch.size": "262144", "linger.ms": "20"}
    for name, value in producer.items():
        writer = writer.option(f"kafka.{name}", value)
    query = writer.option("topic", job.sink).option("checkpointLocation", f"{job.scratch}/checkpoint").start()
    taken = batches = 0
    running = True
    while running:
        running = query.isActive
        for batch in query.recentProgress[batches:]:
            batches += 1
            taken += batch["numInputRows"]
            tell(taken)
        time.sleep(0.1)
    if query.exception() is not None:
        sys.exit(str(query.exception()))
    spark.stop()


if __name__ == "__main__":
    main()
