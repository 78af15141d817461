"""
Which fields ingest reads: event time, end of the span and substream key, out of payloads that are passed on untouched.

Law: what a payload gives depends on that payload alone, never on its neighbours in a batch. Kinds are told value by value.
A payload that cannot be read is a result, never an exception.
"""

from ingest.fields.columns import Fields
from ingest.fields.reader import FieldReader

__all__ = ["FieldReader", "Fields"]
