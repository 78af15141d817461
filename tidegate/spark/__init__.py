"""Spark: its session, driver, workers and state store."""
