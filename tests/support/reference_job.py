"""A job with reference data as the tests of its versions have it: one table, a file for each day."""

from __future__ import annotations

from pathlib import Path

from query.reference.watch import TakenVersions
from tidegate.platform.settings.tables.references import ReferenceSettings


class ReferenceJob:
    """A checkpoint, the folder of the table's files, its settings, and a clock that a test moves."""

    def __init__(self, folder: Path) -> None:
        self.files, self.checkpoint, self.now_s = folder / "files", folder / "checkpoint", 0.0
        self.files.mkdir()
        path = f"{self.files}/r-{{date}}.csv"
        self.settings = {"r": ReferenceSettings.model_validate({"__name__": "r", "path": path, "fields": {"k": "bigint"}})}

    def begins(self, added: int) -> list[int]:
        """From when on the versions are valid that a batch knows, which was planned when so many had been added."""
        taken = TakenVersions.read(self.checkpoint)
        assert taken is not None
        return [each.effective_us for each in taken.tables(self.settings, added)["r"].versions]
