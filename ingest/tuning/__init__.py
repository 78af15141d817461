"""Recordings of an input, from a file or a raw topic, and what policies would have done to them. For ``tidegate tune`` and its page."""
