"""Payload bytes -> columns of the fields that an ingest job or a query needs: one module for each format."""
