"""Kafka both ways: ranges, cached consumers, frames, time index, writer."""

NATIVE_SWITCH = "TIDEGATE_KAFKA__NATIVE"
"""Environment variable: ``auto`` (the default) or ``off``; in ``tidegate.toml`` it is ``kafka.native``."""
