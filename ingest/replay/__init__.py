"""Replays of an input for those that check or explain what ingest wrote: explain and tidegate/tools/verify may enter."""
