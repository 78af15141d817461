"""
Files of versions that a job finds elsewhere: each has the instant in its name from which on it counts.

Law: a version that is there is never written again, and there is none in part.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from ordering.ticks import SECOND_US, format_tick
from tidegate.platform.settings.tables.references import ReferenceSettings

# Files begin here, seconds since 1970: an earlier instant cannot be the time of an event.
FIRST_S = 1


def path_of(settings: ReferenceSettings, instant_s: int) -> Path:
    """Return the path of the version that counts from an instant on."""
    day, _, second = format_tick(instant_s * SECOND_US).removesuffix("Z").partition("T")
    return Path(str(settings.path).replace("{date}", day).replace("{time}", second[:8].replace(":", "-")))


def write_version(path: Path, content: bytes) -> bool:
    """Write a version as a whole; return whether it was not there: another job may ask the same table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    draft.write_bytes(content)
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    return True
