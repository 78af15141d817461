"""Columns in and out: decoding payloads, encoding results, key hashes, large tables."""
