"""The table [logging]: level and form of a job's log."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tidegate.platform.settings.tables.base import Table


class LoggingSettings(Table):
    """[logging]: the log of a job."""

    format: Literal["auto", "console", "json"] = Field(default="auto", description="auto: for people on a terminal, JSON lines elsewhere.")
    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="The least grave events shown.")
