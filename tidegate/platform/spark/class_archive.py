"""
A class archive for Spark's JVM: the classes that a start loads, parsed once and then mapped into memory.

Starting the JVM of a job costs about 8 CPU seconds, nearly half of it for reading 12,000 classes from jars. The archive is made once per
installation (``python -m tidegate.platform.spark.class_archive``, which ``make install`` runs) in the user's cache. Without it, or if it
does not fit the installation, jobs only start slower.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import IntegerType, StructField, StructType

from tidegate.platform.observe.terminal import print_text
from tidegate.platform.settings.load import Settings
from tidegate.platform.settings.tables.spark import SparkSettings
from tidegate.platform.spark.data_source import RangePlanner, Ranges, make_source
from tidegate.platform.spark.options import JAVA_OPTIONS, archive_path
from tidegate.platform.spark.privates import stop_jvm
from tidegate.platform.spark.session import StatefulStage, start_session, start_stage
from tidegate.platform.spark.starting import StartingSpark

# A machine may have much else to do.
_SECONDS_MAX = 600
_SCHEMA = StructType([StructField("label", IntegerType())])


class _OneBatchPlanner(RangePlanner):
    def initialOffset(self) -> dict[str, Any]:
        return {"at": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        return

    def plan_end(self, start: dict[str, Any]) -> dict[str, Any]:
        return {"at": 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [Ranges([(0,)])]


class _CountingProcessor(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._head = handle.getValueState("head", "head binary")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        import pandas as pd

        self._head.update((b"seen",))
        yield pd.DataFrame({"report": ["{}" for frame in rows for _ in frame.itertuples()]})

    def close(self) -> None:
        return


def _record_archive(target: Path) -> None:
    """Run one batch of an empty job, in a JVM that writes its archive when it ends."""
    with tempfile.TemporaryDirectory() as work:
        # A setting replaces the job's own options, so these are repeated with the recording added.
        recording = f"-XX:ArchiveClassesAtExit={target} -Xlog:cds=off -Xlog:cds+dynamic=off"
        conf = {"spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} {recording}"}
        settings = Settings(spark=SparkSettings.model_validate({"conf": conf, "master": "local[2]"}))
        spark = start_session(StartingSpark(settings, "class-archive", Path(work)))
        stage = StatefulStage("class-archive", work, 1, until_end=True)
        source = make_source(_OneBatchPlanner, _SCHEMA)
        start_stage(spark, source, _CountingProcessor(), stage, str, lambda reports: None).awaitTermination()
        spark.stop()
        stop_jvm(_SECONDS_MAX)


def make_archive() -> Path | None:
    """Make the archive unless it exists, and delete older ones of this installation. Return it; None if the JVM could not write one."""
    archive = archive_path()
    if archive.exists():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    for older in archive.parent.glob(f"{archive.stem.rpartition('-')[0]}-*"):
        older.unlink(missing_ok=True)
    draft = archive.with_suffix(f".{os.getpid()}")
    try:
        subprocess.run([sys.executable, "-m", __spec__.name, str(draft)], check=True, timeout=_SECONDS_MAX, capture_output=True)
        draft.replace(archive)
    except (OSError, subprocess.SubprocessError):
        return None
    finally:
        draft.unlink(missing_ok=True)
    return archive


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _record_archive(Path(sys.argv[1]))
    else:
        print_text(f"{make_archive() or 'no class archive could be made: jobs will start a few seconds slower'}\n")
