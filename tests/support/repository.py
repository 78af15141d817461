"""Where the repository lies: tests find pages, examples and golden files from here, not from their own place."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def tracked_texts() -> list[tuple[Path, str]]:
    """Return every committed text file with its content; a copy without git has only its sources to show."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split("\n")
    paths = [ROOT / name for name in listed if name] or [path for path in ROOT.rglob("*.py") if ".venv" not in path.parts]
    texts = []
    for path in paths:
        if path.is_file():
            content = path.read_bytes()
            if b"\0" not in content[:8192]:
                texts.append((path, content.decode("utf-8", "replace")))
    return texts
