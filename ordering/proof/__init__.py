"""Explanations: the fate of single events, and which others caused it. Commands and jobs import it; it imports ordering.model."""
