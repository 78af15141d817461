"""Comparing two ordered topics or results."""
