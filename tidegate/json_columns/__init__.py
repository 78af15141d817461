"""JSON payloads as columns and columns as JSON, in C where it was compiled."""
