"""Payload bytes -> columns of the fields that an ingest job or a query reads: one module for each format."""
