"""Where a query starts: bucket layout, read positions, what the outputs already have."""
