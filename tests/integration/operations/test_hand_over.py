"""A batch's reports from Spark to the driver: each batch once, in order, before Spark commits it; by a real Spark of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

_SCRIPT = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from tidegate.platform.spark import privates

privates._BATCH_WAIT_S = 1
privates._COLLECTION = privates.SilentCollection(after_s=0.5)
folder = Path(sys.argv[1])
(folder / "in").mkdir()
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC").getOrCreate()
lines = spark.readStream.option("maxFilesPerTrigger", "1").text(str(folder / "in"))
hand_over = privates.BatchHandOver(lines)
query = hand_over.writer.option("checkpointLocation", str(folder / "checkpoint")).start()
commits = folder / "checkpoint" / "commits"

def on_batch(texts):
    committed = sum(each.name.isdigit() for each in commits.iterdir()) if commits.exists() else 0
    print("batch", committed, sorted(texts), flush=True)
    if "wrong" in texts:
        raise ValueError("this batch is refused")

def collections():
    beans = spark._jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()
    return sum(bean.getCollectionCount() for bean in beans if bean.getName() == "MarkSweepCompact")

hand_over.follow(query, on_batch)
for number, text in enumerate(("a\\nb", "", "c", "wrong")):
    # Longer than a wait for a batch lasts.
    assert not query.awaitTermination(2)
    (folder / f"{number}").write_text(text)
    (folder / f"{number}").rename(folder / "in" / f"{number}")
    if number == 1:
        before = collections()
        while collections() == before:
            assert not query.awaitTermination(1)
try:
    query.awaitTermination(60)
except Exception as error:
    print("failed", "this batch is refused" in str(error))
"""


def test_each_batch_is_handed_over_once_and_its_refusal_fails_the_query(tmp_path: Path) -> None:
    """Also after waits in which none came, with a collection of the JVM's garbage; Spark commits none that the driver has not worked on."""
    played = subprocess.run([sys.executable, "-c", _SCRIPT, str(tmp_path)], capture_output=True, text=True, timeout=180, check=True)
    expected = ["batch 0 ['a', 'b']", "batch 1 []", "batch 2 ['c']", "batch 3 ['wrong']", "failed True"]
    assert played.stdout.splitlines() == expected, played.stderr[-2_000:]
