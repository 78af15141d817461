"""Kafka both ways: ranges, cached consumers, frames, time index, writer."""
