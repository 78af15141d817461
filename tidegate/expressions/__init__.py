"""Scalar expressions of the query language over one event's payload: read, bound and evaluated alike by ingest and queries."""
