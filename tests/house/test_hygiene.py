"""What keeps the house tidy: the lock is whole, commands are documented, nothing names a place that only one machine has."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from support.repository import ROOT, tracked_texts

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SELF = Path(__file__).name

KNOWN_HOSTS = re.compile(
    r"([^@/]*@)?(localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\]|[a-z-]+(?=:\d|/|$)|[\w.-]+\.(example|invalid|test)"
    r"|www\.apache\.org|www\.w3\.org/2000/svg|json-schema\.org/draft-07/schema)"
)
"""Loopback, names without a dot (services of a compose file), names for examples, the licence's own address, names that are URLs."""
ONE_MACHINE_ONLY = re.compile(r"(?<![\w.])/(root|work|home)/\w")


def test_no_file_names_a_foreign_host() -> None:
    """Registries and mirrors are the machine's affair: whoever builds this elsewhere has others."""
    wrong = [
        f"{path.relative_to(ROOT)}: {url[0]}"
        for path, text in tracked_texts()
        if path.name != SELF
        for url in re.finditer(r"https?://([^\s\"'<>)\]}`]*)", text)
        if url[1] and not url[1].startswith(("{", "$", "%")) and not KNOWN_HOSTS.match(url[1])
    ]
    assert not wrong, "\n".join(wrong)


def test_no_file_names_a_folder_of_one_machine() -> None:
    """Nothing depends on whose machine it was written on."""
    wrong = [
        f"{path.relative_to(ROOT)}: {hit[0]}"
        for path, text in tracked_texts()
        if path.name != SELF
        for hit in ONE_MACHINE_ONLY.finditer(text)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_file_names_a_section_of_a_document_that_is_not_here() -> None:
    """Whoever reads a rule in the code finds the page that explains it in docs/ or PROTOCOL.md."""
    named = re.compile(r"\bspec(?:ification)?,? sections? \d|\bsections? \d+ of the spec", re.IGNORECASE)
    wrong = [f"{path.relative_to(ROOT)}: {hit[0]}" for path, text in tracked_texts() for hit in named.finditer(text)]
    assert not wrong, "\n".join(wrong)


def test_the_lock_names_every_dependency_with_its_hashes() -> None:
    """``make install`` takes everything from the lock; a dependency added without ``make lock`` would be missing."""
    lock = (ROOT / "requirements.lock").read_text()
    pins = re.findall(r"^([a-z0-9-]+)==\S+(?: ;[^\\]*)? \\\n {4}--hash=sha256:[0-9a-f]{64}", lock, re.MULTILINE)
    wanted = [*PROJECT["project"]["dependencies"], *PROJECT["dependency-groups"]["dev"]]
    missing = {re.split(r"[<>=~!\[; ]", entry, maxsplit=1)[0].lower() for entry in wanted} - set(pins)
    assert not missing


@pytest.mark.parametrize("command", sorted(PROJECT["project"]["entry-points"]["tidegate.commands"]))
def test_every_command_is_documented(command: str) -> None:
    """README.md or a page of docs/ shows each command the way it is typed."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    assert any(f"tidegate {command}" in page.read_text("utf-8") for page in pages if page.exists())


def test_no_test_folder_is_a_package() -> None:
    """A ``tests/ordering/__init__.py`` would shadow the real ``ordering``."""
    assert not list((ROOT / "tests").rglob("__init__.py"))
