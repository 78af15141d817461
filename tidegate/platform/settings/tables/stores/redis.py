"""The table [outputs.NAME.redis]: results as keys of Redis or Valkey."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tidegate.platform.settings.kinds import Duration, Kind, RedisUrl
from tidegate.platform.settings.tables.base import Conflict, Count
from tidegate.platform.settings.tables.redis import RedisConnection
from tidegate.platform.settings.tables.stores.base import FLUSH_INTERVAL, PROMPT_US, StoreSettings


class RedisStoreSettings(StoreSettings, RedisConnection):
    """[outputs.NAME.redis]: results as keys of Redis or Valkey."""

    table: ClassVar[str] = "outputs.NAME.redis"
    named_by: ClassVar[str] = "key_prefix"
    url: RedisUrl = Field(description="Where Redis or Valkey answers; a password in it is never shown.")
    flush_interval_us: Duration = Field(default=PROMPT_US, description=FLUSH_INTERVAL)
    # The server does nothing else while it writes a batch.
    batch_rows: Count = Field(default=5_000, description="Most results of a partition written at once; the server is busy meanwhile.")
    kind: Literal["hash", "string", "stream", "sorted_set"] = Field(
        description="hash: a key for each primary_key, with the columns as fields; string: the same, with the result as JSON; "
        "stream: a stream for each partition, an entry for each result; sorted_set: a member for each primary_key, in one set."
    )
    primary_key: Annotated[tuple[str, ...], Kind("list of columns; default: none")] = Field(
        default=(), description="The columns that make the key, or the member of the sorted set; the last result of each wins."
    )
    score: Annotated[str | None, Kind("column; default: none")] = Field(
        default=None, description="The column that is the score in a sorted set: bigint or float."
    )
    key_prefix: Annotated[str | None, Kind("text; default: the output's name and a colon")] = Field(
        default=None, min_length=1, description="What all keys begin with; in a cluster with a hash tag: {rides}:."
    )
    ttl_us: Annotated[Duration | None, Kind("duration; default: for ever")] = Field(
        default=None, description="A hash or string disappears so long after its last result."
    )
    durability: Literal["memory", "disk"] = Field(
        default="memory",
        description="disk: a batch counts once it is on the disk of Redis; memory: its crash may take rows and progress back.",
    )

    def _conflicts(self) -> list[Conflict]:
        conflicts = super()._conflicts()
        if self.kind == "stream" and self.primary_key:
            conflicts.append(("primary_key", "primary_key means nothing to a stream", "remove it, or set another kind"))
        if self.kind != "stream" and not self.primary_key:
            conflicts.append(("kind", f"{self.kind} needs primary_key", 'name the columns: primary_key = ["car"]'))
        if (self.kind == "sorted_set") != (self.score is not None):
            problem = "a sorted set needs score" if self.score is None else "score is of sorted_set only"
            conflicts.append(("score", problem, 'kind = "sorted_set" goes with score = "COLUMN"'))
        if self.ttl_us is not None and (self.kind not in ("hash", "string") or self.ttl_us < 1_000):
            conflicts.append(("ttl", "ttl is of hash and string only, and at least 1ms", "remove it, or set another kind"))
        return conflicts
