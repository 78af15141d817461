"""The table [metrics]: where a job publishes its numbers."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tidegate.platform.settings.kinds import Kind
from tidegate.platform.settings.tables.base import Table


class MetricsSettings(Table):
    """[metrics]: the metrics of a job."""

    port: Annotated[int, Field(ge=0, le=65535), Kind("TCP port")] = Field(
        default=0, description="Port at which Prometheus fetches them; 0: off. Each job on a machine needs one of its own."
    )
    host: str = Field(
        default="127.0.0.1", description="Address that the port is opened at; 0.0.0.0: all of this machine's, for anybody who reaches it."
    )
