"""The plan of a query: its nodes, windows, keys in common, and into what parts it can be split."""
