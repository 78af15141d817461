"""The engine: a plan made into a program over finished slices of time, and what it retains."""
