"""A stop that takes too long ends the JVM; one that does not take too long leaves it alone."""

from __future__ import annotations

import threading
import time

import pytest

from tidegate.platform.spark.bounded_stop import BoundedStop

WITHIN_S = 0.3


@pytest.mark.parametrize("begins", [True, False])
def test_a_stop_that_hangs_ends_the_jvm(begins: bool) -> None:
    """From the moment on at which somebody asks for it, or at which the block itself begins to stop."""
    killed = threading.Event()
    with BoundedStop(lambda: not begins, end=killed.set, within_s=WITHIN_S) as bound:
        if begins:
            time.sleep(2 * WITHIN_S)
            assert not killed.is_set(), "nobody has asked"
            bound.begin()
        assert killed.wait(60)


def test_a_stop_in_time_leaves_the_jvm_alone() -> None:
    """Also one of several stages, each of which may take its time, and a block that ends by itself."""
    killed = threading.Event()
    with BoundedStop(lambda: True, stages=2, end=killed.set, within_s=WITHIN_S):
        time.sleep(2 * WITHIN_S)
    with BoundedStop(lambda: False, end=killed.set, within_s=WITHIN_S):
        pass
    assert not killed.wait(2 * WITHIN_S)
