"""The table [outputs.NAME.delta]: results as rows of a Delta Lake table."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, SecretStr

from tidegate.platform.settings.kinds import Kind, Properties
from tidegate.platform.settings.tables.base import Contradiction
from tidegate.platform.settings.tables.stores.base import LakeSettings

# Options with which two writers may both believe to have written one version of the log.
_UNSAFE_OPTIONS = ("allow_unsafe_rename", "conditional_put")


def _refuse_unsafe(options: dict[str, SecretStr]) -> dict[str, SecretStr]:
    unsafe = [
        (name, f"{name} is not yours to set", "a commit must fail if another writer has made it: remove it")
        for name in options
        if name.lower().endswith(_UNSAFE_OPTIONS)
    ]
    if unsafe:
        raise Contradiction(unsafe)
    return options


class DeltaSettings(LakeSettings):
    """[outputs.NAME.delta]: results as rows of a Delta Lake table."""

    named_by: ClassVar[str] = "path"
    path: Annotated[str, Kind("folder or URL")] = Field(
        min_length=1, description="Where the table is, such as s3://lake/rides; made when missing."
    )
    # A table comes last.
    storage_options: Annotated[Properties, AfterValidator(_refuse_unsafe)] = Field(
        default_factory=dict,
        description="Options of the object store by their names in delta-rs, such as AWS_ENDPOINT_URL; secrets as file:PATH or env:NAME.",
    )
