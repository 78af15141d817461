"""From a result back to the events that it was made of, through all queries between."""
