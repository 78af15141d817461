"""Why a framed payload has no schema; apart from the registry's client, which only some jobs need."""

UNKNOWN_ID = "schema id is unknown to the registry"
UNUSABLE = "schema cannot be used"
