"""The warm host of integration tests imports what jobs import, before they start."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from support.stack.warm_host import IMPORTED


@pytest.mark.parametrize("name", IMPORTED)
def test_what_the_host_imports_is_there(name: str) -> None:
    """Whoever moves a module corrects its name: else no integration test could start a job."""
    assert find_spec(name) is not None
