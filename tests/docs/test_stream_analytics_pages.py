"""The page on Stream Analytics' reference names what is there: each function of the language, and a case for each page."""

from __future__ import annotations

import pytest
from support.reference_pages import (
    BETTER,
    CASES,
    DIFFERENT,
    EXAMPLES,
    FUNCTIONS,
    ONLY_HERE,
    PAGE,
    SAME,
    Reference,
    catalogue,
    references,
    scripts,
    written_page,
)

from tidegate.language.expressions.functions.manual import FORMS, functions_page


def test_the_page_is_the_one_that_is_generated() -> None:
    """A case that is gone, or a changed note, makes it another: ``python tests/support/reference_pages.py`` writes it."""
    assert PAGE.read_text("utf-8") == written_page()


def test_every_function_of_the_language_is_on_a_page_or_only_here() -> None:
    """None is forgotten, and none is named that does not exist."""
    on_pages = [name for page in references() for name in page.functions]
    assert len(on_pages) == len(set(on_pages))
    assert {*on_pages, *ONLY_HERE} - FORMS == catalogue()
    assert not {*on_pages} & {*ONLY_HERE}


def test_the_page_of_functions_is_the_one_that_is_generated() -> None:
    """``python tests/support/reference_pages.py`` writes it from the manual of functions."""
    assert FUNCTIONS.read_text("utf-8") == functions_page()


@pytest.mark.parametrize("page", list(references()), ids=lambda page: page.title)
def test_a_page_has_cases_with_results(page: Reference) -> None:
    """They are run by tests/query/test_cases.py."""
    assert page.found_cases()
    assert set(page.found_cases()) <= scripts().keys()
    assert page.verdict in (SAME, BETTER, DIFFERENT)
    assert page.note or page.verdict == SAME, "what is better or different is said"


def test_every_case_of_an_example_is_about_a_page() -> None:
    """Its page names the functions that it calls, or the case itself."""
    examples = {name for name in scripts() if name.startswith(EXAMPLES)}
    assert len(examples) > 20
    assert examples <= {name for page in references() for name in page.found_cases()}


@pytest.mark.parametrize("name", ONLY_HERE)
def test_a_function_that_is_only_here_has_a_case_too(name: str) -> None:
    """It is called in the script of one."""
    page = Reference(name, functions=(name,))
    assert page.found_cases(), f"no script in {CASES} calls it"
