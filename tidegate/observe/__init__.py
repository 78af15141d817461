"""Logs, metrics, progress reports, and what they are asked for."""
