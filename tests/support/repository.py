"""Where the repository lies: tests find pages, examples and golden files from here, not from their own place."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
