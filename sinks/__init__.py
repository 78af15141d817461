"""Destinations of ordered events and results, each with its idempotence contract."""
