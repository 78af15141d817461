"""Commands as a user types them, forked by the warm host: each is a process of its own that need not import everything anew."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from support.stack.warm_jobs import HOST

_TIMEOUT_S = 120


def run_command(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``tidegate`` in a folder, in this process's environment or another; return it when it has ended."""
    return subprocess.run(
        [HOST.program(), *arguments],
        cwd=folder,
        env=os.environ if environment is None else environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
    )
