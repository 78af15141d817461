"""Whole columns: payloads by place, keys in a table, stretches, times."""
