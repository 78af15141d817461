"""The skips in force, in the checkpoint's folder: they hold even if Redis is emptied before a CTI has carried them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from ingest.skips import Skip
from tidegate.checkpoint.binding import replace_text

FILE = "skips.json"


def read_file(folder: Path) -> tuple[Skip, ...]:
    """Return the skips that had taken effect by this checkpoint."""
    file = folder / FILE
    return tuple(Skip(**fields) for fields in json.loads(file.read_text())) if file.exists() else ()


def write_file(folder: Path, skips: tuple[Skip, ...]) -> None:
    """Replace what the file holds, if it differs."""
    if skips != read_file(folder):
        replace_text(folder / FILE, json.dumps([asdict(skip) for skip in skips], indent=1))
