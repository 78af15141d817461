"""JavaScript, run one call after another so that a result follows from the arguments alone; knows nothing of queries."""
