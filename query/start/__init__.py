"""How a query starts: survey, decide, apply; bucket layout, read positions, earlier promises. Job and preview may import it."""
