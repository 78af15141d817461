"""Aggregates over windows: cells, panes, sessions and exact states."""
