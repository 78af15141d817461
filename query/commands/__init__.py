"""The commands of queries that need no service: lint, scripts over files, and cases with expected results."""
