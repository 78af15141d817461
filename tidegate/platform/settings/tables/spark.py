"""The table [spark]: where and how the jobs run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from tidegate.basics.secret_masking import Secrets
from tidegate.platform.settings.available_cores import available_cores
from tidegate.platform.settings.kinds import Duration, Kind, NotAllowed, Properties, peek_secret, reveal_properties
from tidegate.platform.settings.tables.base import Conflict, Table, Tasks


def _check_folder(text: str) -> str:
    if "://" in text:
        raise NotAllowed("the path of a folder, on a cluster one that all machines share; URLs (s3a://, hdfs://) are not supported yet")
    return text


_KILLS = "a task sends Spark nothing until its batch ends, so Spark would kill its worker within a batch that stays open or is large"
# Properties of Spark that have one value, and why no other.
FIXED_PROPERTIES = {
    "spark.python.worker.killOnIdleTimeout": ("false", _KILLS),
    "spark.sql.execution.pyspark.udf.killOnIdleTimeout": ("false", _KILLS),
    "spark.python.udf.pipelined.enabled": (
        "false",
        "Spark would hand over the rows of other keys while a stage still works on the state of one",
    ),
    "spark.sql.streaming.stateStore.checkpointFormatVersion": (
        "2",
        # In format 2 each attempt of a batch has files of its own, and the commit names them.
        "a second driver beside a suspended one would lose its state, since both would save it in files of one name",
    ),
}


class SparkSettings(Table):
    """[spark]: where and how the jobs run."""

    master: str = Field(default="local[*]", description="Spark master: local[N], spark://host:port or yarn.")
    app_name: str = Field(default="tidegate", description="Name of the application in Spark's own tools.")
    shuffle_partitions: Annotated[
        Tasks, Kind("count; default: what the checkpoint has, else the cores of the process, for an exchange half of them")
    ] = Field(default_factory=available_cores, description="Tasks a stateful stage runs in; fixed in a checkpoint at its first start.")
    trigger_us: Duration = Field(
        default=0, description="Least time between the starts of two batches; 0s: as soon as there is something to do."
    )
    driver_memory: Annotated[str, Field(pattern=r"^\d{1,6}[kmgt]$"), Kind("JVM size, such as 512m or 1g")] = Field(
        default="1g", description="Heap of the driver's JVM."
    )
    allocator: Literal["auto", "off"] = Field(
        default="auto",
        description="auto: workers allocate memory by jemalloc where the machine has it, a third less CPU; off: as the machine is set up.",
    )
    conf: Properties = Field(default_factory=dict, description="Any Spark property, passed on as it is; secrets as file:PATH or env:NAME.")
    checkpoint_dir: Annotated[str, AfterValidator(_check_folder), Kind("path")] = Field(
        default=".tidegate/checkpoints",
        description="Folder of the checkpoints, one in it for each job; shared by all machines of a cluster.",
    )

    def _conflicts(self) -> list[Conflict]:
        return [
            ("conf", f"{name} cannot be {given}: {why}", f"remove it: it is {fixed}")
            for name, (fixed, why) in FIXED_PROPERTIES.items()
            if (given := peek_secret(self.conf.get(name))) is not None and given.strip().lower() != fixed
        ]

    def properties(self) -> Secrets:
        """Return [spark.conf] with its secrets, for the session builder."""
        return Secrets(reveal_properties(self.conf))
