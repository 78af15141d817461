"""Replays of an input for those that check or explain what ingest wrote: explain and ingest/verify may enter."""
