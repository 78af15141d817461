"""One module per operator; each computes over a finished slice of time."""
