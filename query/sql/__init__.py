"""The query language: Stream Analytics SQL as text, tree and bound names."""
