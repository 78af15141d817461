"""
What the peers need, made once per user: a Python environment and Kafka connector jars for each, of exactly pinned versions.

Usage: python benchmarks/peers/installing.py [--home FOLDER] [flink] [spark] [quix] - all of them unless some are named.

They take some 3 GB and a few minutes, want Java 17 and a Python that PyFlink knows (3.9 to 3.12), and go into
``TIDEGATE_PEERS_HOME``, else into the user's cache. Beside this file, NAME.txt pins Python packages, NAME.jars the jars.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tidegate.platform.stack.jars import Pin, cache_folder, resolve

HERE = Path(__file__).resolve().parent
PEERS = ("flink", "spark", "quix")


@dataclass(frozen=True)
class Installed:
    """A peer that can run: its name, its Python, its jars, and a folder for what its runs leave behind."""

    name: str
    python: Path
    jars: list[Path]
    scratch: Path

    @property
    def program(self) -> Path:
        """The program that runs a query in it."""
        return HERE / f"{self.name}_job.py"


def default_home() -> Path:
    """Return the folder for all peers: ``TIDEGATE_PEERS_HOME``, else a folder of the user's cache."""
    named = os.environ.get("TIDEGATE_PEERS_HOME")
    return Path(named) if named else cache_folder() / "peers"


def install(name: str, home: Path) -> Installed:
    """
    Have a peer in *home*, as its pins say, and return it; what is there already is not made again.

    Raises:
        StackError: A jar cannot be fetched, or has other bytes than its pin says.
        CalledProcessError: Its packages cannot be installed; pip has said why.
    """
    python = _environment(home / name, HERE / f"{name}.txt")
    listed = HERE / f"{name}.jars"
    jars: list[Path] = []
    if listed.exists():
        pins = [_pin(line) for line in listed.read_text().splitlines() if line and not line.startswith("#")]
        folder = resolve(pins, home / f"{name}-jars")
        jars = [folder / pin.file_name for pin in pins]
    return Installed(name, python, jars, home / "scratch")


def _environment(folder: Path, packages: Path) -> Path:
    python, said = folder / "bin" / "python", folder / "installed.txt"
    if not said.exists() or said.read_text() != packages.read_text():
        print(f"installing {packages.stem} into {folder} ...", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", str(packages)], check=True)
        said.write_text(packages.read_text())
    return python


def _pin(line: str) -> Pin:
    sha256, coordinates = line.split()
    return Pin(*coordinates.split(":"), sha256)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, default=default_home())
    parser.add_argument("names", nargs="*", choices=[*PEERS, []], help="which (default: all)")
    options = parser.parse_args()
    for asked in options.names or PEERS:
        install(asked, options.home.resolve())
