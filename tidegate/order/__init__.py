"""Ordering of files: what ``tidegate order`` reads, walks and writes."""
