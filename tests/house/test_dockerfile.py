"""The step of the Dockerfile that records the class archive copies the modules that it imports, and only these."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from support.repository import ROOT

RECORDER = "tidegate.platform.spark.class_archive"


def test_the_class_archive_is_recorded_from_what_is_copied(tmp_path: Path) -> None:
    """A module that is missing there would show only in a build of the image."""
    (step,) = re.findall(
        rf"^FROM system AS archive\n(.*?)^RUN PYTHONPATH=/src python -m {re.escape(RECORDER)}$",
        (ROOT / "Dockerfile").read_text(),
        re.M | re.S,
    )
    for line in re.findall(r"^COPY (.+)$", step, re.M):
        *sources, target = line.split()
        folder = tmp_path / target.strip("/")
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, folder, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
            else:
                folder.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, folder)
    imported = subprocess.run(
        [sys.executable, "-P", "-c", f"import {RECORDER}; print({RECORDER}.__file__)"],
        env={"PYTHONPATH": str(tmp_path / "src"), "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert imported.returncode == 0, imported.stderr
    assert imported.stdout.startswith(str(tmp_path)), "from what was copied"
