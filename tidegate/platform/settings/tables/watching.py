"""The tables [metrics] and [logging]: where a job publishes its numbers, and level and form of its log."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tidegate.platform.settings.kinds import Kind
from tidegate.platform.settings.tables.base import Table
from tidegate.platform.settings.tables.http_server import HttpUrl


class MetricsSettings(Table):
    """[metrics]: the metrics of a job."""

    port: Annotated[int, Field(ge=0, le=65535), Kind("TCP port")] = Field(
        default=0, description="Port at which Prometheus fetches them; 0: off. Each job on a machine needs one of its own."
    )
    host: str = Field(
        default="127.0.0.1", description="Address that the port is opened at; 0.0.0.0: all of this machine's, for anybody who reaches it."
    )


class TracesSettings(Table):
    """[traces]: spans of batches, for a collector of OpenTelemetry; needs the extra otel."""

    endpoint: HttpUrl | None = Field(
        default=None,
        description="Where a collector takes traces (OTLP over HTTP), as http://host:4318/v1/traces; without it: none.",
    )


class LoggingSettings(Table):
    """[logging]: the log of a job."""

    format: Literal["auto", "console", "json"] = Field(default="auto", description="auto: for people on a terminal, JSON lines elsewhere.")
    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="The least grave events shown.")
