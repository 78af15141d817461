"""An input with a watermark for each key, as tables and as policies: what tests of kills, lost checkpoints and skips put in order."""

from __future__ import annotations

from ordering.policies import Policies
from ordering.ticks import SECOND_US

POLICIES = Policies(early_us=60 * SECOND_US, late_us=30 * SECOND_US, reorder_us=2 * SECOND_US)
TABLES = """
[inputs.events]
topic = "{topic}"
timestamp_by = "at"
over = "k"
early = "1m"
late = "30s"
reorder = "2s"
"""
