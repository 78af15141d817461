"""Joins: of two streams over time, and with reference data."""
