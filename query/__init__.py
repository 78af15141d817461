"""The query job: ordered topics in, final results out."""
