"""The time model: judge, hold, release, number; state and policies."""
