"""
Fields that ingest reads from payloads, which are passed on untouched: event time, end of the span, substream key. The stage
and ``tidegate local`` may come in.

Law: what a payload gives depends on that payload alone, never on its neighbours in a batch. A payload that cannot be read is a
result, never an exception.
"""

from ingest.fields.columns import Fields
from ingest.fields.reader import FieldReader

__all__ = ["FieldReader", "Fields"]
