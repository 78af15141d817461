"""The reasons why a framed payload has no schema: apart from the registry's client, which only some jobs import."""

from tidegate.basics.dead_letter_reasons import QueryReason

UNKNOWN_ID = QueryReason.SCHEMA_UNKNOWN.text()
UNUSABLE = QueryReason.SCHEMA_UNUSABLE.text()
