"""
Reads event time, end and substream key from payloads, which pass through unchanged. The stage and ``tidegate local`` may import it.
Law: the result for a payload depends on that payload alone, never on others in the batch. A payload that cannot be read is a result, never
an exception.
"""

from tidegate.records.fields.columns import Fields
from tidegate.records.fields.reader import FieldReader

__all__ = ["FieldReader", "Fields"]
