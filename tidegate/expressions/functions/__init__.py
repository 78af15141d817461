"""The functions of the query language, by subject."""
