"""
The reasons why a record, a row or a result becomes a dead letter, one list for each job; and how large a letter may be.

Law: every header ``reason`` is a member here. Tests fail unless a member has a line in docs/operate/dead-letters.md and a poisonous record
in tests/integration/poison.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NewType

# Largest dead letter: brokers and consumers take requests and answers of 100 MB by default.
LETTER_BYTES_MAX = 64 * 2**20
# The text of a reason in the header of a query's dead letter; made by QueryReason.text.
ReasonText = NewType("ReasonText", str)


class IngestReason(StrEnum):
    """Why ingest cannot use a record: the header ``reason`` itself, counted by metrics."""

    NO_PAYLOAD = "no_payload"
    MALFORMED = "malformed"
    SCHEMA_UNKNOWN = "schema_unknown"
    SCHEMA_UNUSABLE = "schema_unusable"
    TIMESTAMP = "timestamp"
    END = "end"
    CTI = "cti"
    OVERSIZED = "oversized"
    KEY_TOO_LONG = "key_too_long"
    ARRIVAL_MISSING = "arrival_missing"
    ARRIVAL_AHEAD = "arrival_ahead"


class DropReason(StrEnum):
    """Which policy dropped an event: the header ``reason`` in an input's ``dropped_topic``."""

    EARLY = "early"
    CTI_VIOLATION = "cti_violation"
    LATE = "late"
    OUT_OF_ORDER = "out_of_order"


class QueryReason(StrEnum):
    """Why a query cannot use a row or a result, in words; each ``{}`` stands for a detail, and an expression may follow after a colon."""

    NO_PAYLOAD = "payload is missing"
    NOT_UTF8 = "payload is not UTF-8"
    NOT_JSON = "payload is not JSON"
    NOT_OBJECT = "payload is not a JSON object"
    NOT_CSV = "payload is not one CSV record"
    WRONG_COUNT = "payload has not as many values as there are columns"
    NOT_AVRO = "payload is not one value of the Avro schema"
    NO_FRAME = "payload has no schema-registry frame"
    SCHEMA_UNKNOWN = "schema id is unknown to the registry"
    SCHEMA_UNUSABLE = "schema cannot be used"
    CONVERSION = "conversion failed"
    WRONG_KIND = "{} is needed, not {}"
    NOT_CONVERTIBLE = "{} cannot be converted to {}"
    NOT_COMPARABLE = "values of type {} cannot be compared"
    MIXED = "{} cannot be compared or mixed"
    CALL = "{} failed: {}"
    VALUE_TOO_LARGE = "value too large: {}"
    JOIN_TOO_LARGE = "join too large: more than {} pairs of one key at one instant, {} left out"
    PATTERN_STEPS = "no match found within {} steps of MATCH_RECOGNIZE"
    FOREIGN_KEY = "the result's key is not {}, which OVER names"
    NO_TIME = "the result's time lies after the year 9999"
    RESULT_TOO_LARGE = "result too large: {} bytes, and its topic takes {}"

    def text(self, *details: object) -> ReasonText:
        """Return the reason with its details."""
        return ReasonText(self.format(*details))


def with_place(reason: ReasonText, expression: object) -> ReasonText:
    """Return *reason* with the expression that failed."""
    return ReasonText(f"{reason}: {expression}")


class StoreReason(StrEnum):
    """Why a result does not get into a store; ``{}`` is the store's message."""

    REFUSED = "the store refuses it: {}"


# Why a framed payload has no schema.
UNKNOWN_ID = QueryReason.SCHEMA_UNKNOWN.text()
UNUSABLE = QueryReason.SCHEMA_UNUSABLE.text()
