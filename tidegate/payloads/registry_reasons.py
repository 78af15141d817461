"""The reasons why a framed payload has no schema; separate from the registry's client, which only some jobs import."""

UNKNOWN_ID = "schema id is unknown to the registry"
UNUSABLE = "schema cannot be used"
