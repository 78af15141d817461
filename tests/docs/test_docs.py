"""What the pages of docs/ say is held against the code: error codes, links, and the picture of the front page."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from support.repository import ROOT, tracked_texts

from query.lint import LintContext, lint_script
from query.sql.bind import bind_outputs
from tidegate.basics import package_offers
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script
from tidegate.platform.settings.load import load

PACKAGES = ("ordering", "tidegate", "sinks", "ingest", "query")
DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"
FOLDERS = ("learn", "queries", "operate", "reference")
FRONT = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
PAGES = [*FRONT, *sorted(DOCS.rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
MENTION = re.compile(r"\bdocs/(?:[\w-]+/)*[\w-]+\.md(?:#[\w-]+)?")
CODE = re.compile(r"TG-[A-Z]+(?:-[A-Z]+)*")
INPUTS = [
    InputSchema("flights", "scheduled", "origin", headers=("tenant",)),
    InputSchema("taxis", "at", "car"),
    InputSchema("departures", is_result=True),
    InputSchema("airports", is_reference=True),
    InputSchema("bid", "dateTime"),
    InputSchema("auction", "dateTime"),
    InputSchema("labels", is_reference=True),
    *(InputSchema(name, "event_time") for name in ("trades", "orders", "places")),
    InputSchema("companies", is_reference=True),
]
"""What the scripts in the pages read."""
WALKS = re.findall(r"^\| \*\*([^*]+)\*\*.*? \| (.+) \|$", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE)
"""What CONTRIBUTING.md says of each task."""
EXPLAINED = {"TG-LINT-STAR"}
"""What is warned of in scripts of the pages, which explain the star."""
QUERY_PREFIX = "TG-QUERY-"
"""Errors of scripts are built with the last part of their code only (tidegate.language.expressions.syntax.errors.Source.error)."""


def codes_in_code() -> set[str]:
    """Return every code that a TidegateError of the packages can carry."""
    found: set[str] = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value):
                    found.add(node.value)
                if isinstance(node, ast.keyword) and node.arg == "code" and isinstance(node.value, ast.Constant):
                    code = str(node.value.value)
                    found.add(code if code.startswith("TG-") or not code else QUERY_PREFIX + code)
                if isinstance(node, ast.Call) and (code := script_error(node)):
                    found.add(QUERY_PREFIX + code)
    return found - {""}


def script_error(call: ast.Call) -> str | None:
    """Return the code that a call of ``Source.error`` gives to a script's error; None if it is another call."""
    first = call.args[0] if call.args else None
    is_error = isinstance(call.func, ast.Attribute) and call.func.attr == "error"
    return first.value if is_error and isinstance(first, ast.Constant) and re.fullmatch(r"[A-Z-]+", str(first.value)) else None


def codes_in_docs() -> set[str]:
    """Return every code that docs/reference/errors.md has a row for."""
    return set(re.findall(r"^\| `(TG-[A-Z-]+)` \|", (ROOT / "docs" / "reference" / "errors.md").read_text("utf-8"), re.MULTILINE))


def test_every_error_code_stands_in_the_manual_and_the_manual_has_no_other() -> None:
    """Who meets an error finds its row in docs/reference/errors.md; a row without an error would mislead."""
    raised, told = codes_in_code(), codes_in_docs()
    assert {"missing": sorted(raised - told), "stale": sorted(told - raised)} == {"missing": [], "stale": []}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file_or_heading(page: Path) -> None:
    """Links are relative, so that they work in every copy."""
    broken = []
    for target in LINK.findall(page.read_text("utf-8")):
        name, _, heading = target.partition("#")
        there = page.parent / name if name else page
        if not there.exists() or (heading and heading not in _headings(there)):
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_of_a_page_is_there(page: Path) -> None:
    """A page names files and folders of the repository as they are called now."""
    named = re.findall(rf"`((?:{'|'.join(PACKAGES)}|tests|benchmarks|examples|docs|deploy|scripts)/[\w./*-]+)`", page.read_text("utf-8"))
    assert not [path for path in named if not list(ROOT.glob(path.rstrip("/")))]


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk[0])
def test_every_name_of_a_walk_stands_in_a_file_that_the_walk_names(walk: tuple[str, str]) -> None:
    """Whoever follows a walk of CONTRIBUTING.md opens its file and finds the function there."""
    quoted = re.findall(r"`([^`]+)`", walk[1])
    paths = [path for path in quoted if re.fullmatch(r"[\w/.-]+(?:/|\.py)", path)]
    # A file named alone lies beside one that was named with its folder.
    folders = [path if path.endswith("/") else str(Path(path).parent) for path in paths if "/" in path]
    found = [place for path in paths for folder in ("", *folders) if "/" in (place := str(Path(folder) / path)) and (ROOT / place).exists()]
    assert {Path(path).name for path in paths} == {Path(path).name for path in found}
    files = [file for path in found for file in ([ROOT / path] if path.endswith(".py") else (ROOT / path).rglob("*.py"))]
    text = "\n".join(file.read_text("utf-8") for file in files)
    names = [name for name in quoted if re.fullmatch(r"_?[a-z]+(?:_[a-z]+)+|_?(?:[A-Z][a-z]+)+|_?[A-Z]+(?:_[A-Z]+)+", name)]
    assert not [name for name in names if not re.search(rf"\b{name}\b", text)]


def _headings(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_manual_has_four_folders_and_an_index() -> None:
    """A page without a folder, or a folder more, would be looked for in vain."""
    assert {page.relative_to(DOCS).parts[:-1] for page in DOCS.rglob("*.md")} == {(), *((folder,) for folder in FOLDERS)}
    assert list(DOCS.glob("*.md")) == [INDEX]


def test_the_index_links_every_page() -> None:
    """Each under the heading of its folder, and with what it answers."""
    sections = re.split(r"^## ", INDEX.read_text("utf-8"), flags=re.MULTILINE)[1:]
    assert [section.partition("\n")[0].lower() for section in sections] == list(FOLDERS)
    for folder, section in zip(FOLDERS, sections, strict=True):
        linked = {target for target in LINK.findall(section) if not target.startswith("../")}
        assert linked == {str(page.relative_to(DOCS)) for page in (DOCS / folder).glob("*.md")}


def test_every_page_that_a_text_mentions_is_there() -> None:
    """Code, error texts, tests and scripts name a page by its path in the repository, and a heading that it has."""
    missing = []
    for path, text in tracked_texts():
        for mention in MENTION.findall(text):
            name, _, heading = mention.partition("#")
            if not (ROOT / name).exists() or (heading and heading not in _headings(ROOT / name)):
                now = ", ".join(str(page.relative_to(ROOT)) for page in DOCS.rglob(Path(name).name))
                missing.append(f"{path.relative_to(ROOT)}: {mention} is not there" + (f"; write {now}" if now else ""))
    assert not missing, "\n".join(missing)


def test_the_front_page_picture_is_what_the_model_says() -> None:
    """docs/pictures/toll.svg is drawn by the model; a changed model must not leave an old picture behind."""
    script = ROOT / "docs" / "pictures" / "toll.py"
    spec = importlib.util.spec_from_file_location("toll_picture", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    assert module.picture() == script.with_suffix(".svg").read_text("utf-8")


TABLES = [
    pytest.param(text, id=f"{page.name}-{number}")
    for page in PAGES
    for number, text in enumerate(re.findall(r"```toml\n(.*?)```", page.read_text("utf-8"), re.DOTALL), start=1)
]


@pytest.mark.parametrize("tables", TABLES)
def test_every_configuration_of_a_page_is_accepted(tables: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the manual shows can be put into tidegate.toml, where the files with secrets and the package of the example are there."""
    monkeypatch.syspath_prepend(ROOT / "examples" / "sqlite")
    of_example = EntryPoint("sqlite", "tidegate_sqlite.settings:SqliteSettings", "tidegate.stores")
    monkeypatch.setattr(package_offers, "installed_offers", lambda group: [of_example])
    file = tmp_path / "tidegate.toml"
    for name in re.findall(r"file:/run/secrets/([\w-]+)", tables):
        # Of the form that the strictest of them asks for.
        (tmp_path / name).write_text(f"whsec_{'c2VjcmV0' * 4}\n", "utf-8")
    file.write_text(tables.replace("file:/run/secrets/", f"file:{tmp_path}/"), "utf-8")
    load(file, env={})


SCRIPTS = [
    pytest.param(text, id=f"{page.name}-{number}")
    for page in PAGES
    for number, text in enumerate(re.findall(r"```sql\n(.*?)```", page.read_text("utf-8"), re.DOTALL), start=1)
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_of_a_page_is_understood(script: str) -> None:
    """What the manual shows can be typed in."""
    assert all(plan.columns for plan in bind_outputs(parse_script(script), INPUTS))


def test_each_line_of_the_table_of_attackers_names_tests_that_exist() -> None:
    """docs/operate/security.md says what stops each attempt; where it names a test, that is a function, else a file of tests."""
    page = (ROOT / "docs" / "operate" / "security.md").read_text("utf-8")
    table = page.partition("## Who can do what\n")[2].partition("\n\nNothing here stops")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 10
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", row.split(" | ")[-1])
        assert named, f"no test: {row}"
        for file, function in named:
            text = (ROOT / file).read_text("utf-8")
            assert f"def {function or 'test_'}" in text, f"{file}::{function} is gone: {row}"


@pytest.mark.parametrize("script", SCRIPTS)
def test_no_script_of_a_page_has_a_warning_that_it_does_not_explain(script: str) -> None:
    """Who types in what the manual shows is not warned."""
    findings = lint_script(parse_script(script), LintContext(INPUTS))
    assert not [finding for finding in findings if finding.code not in EXPLAINED]
