"""Writes a file into a store that may not answer for a while: repeats the write, and logs how long it has waited."""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import urlsplit

from tenacity import RetryCallState, Retrying, retry_if_exception, wait_chain, wait_fixed

from sinks.base import SinkError
from tidegate.platform.observe.logs import get_logger

_PAUSES = wait_chain(*(wait_fixed(pause_s) for pause_s in (1, 2, 5, 10)))
_log = get_logger("sink")


def put_until_taken(where: str, put: Callable[[], None], may_pass: Callable[[BaseException], bool]) -> None:
    """
    Call *put* until it succeeds, as long as *may_pass* is true of its errors. Raises SinkError (TG-SINK-FILE): the store does not take the
    file.
    """

    def warn(call: RetryCallState) -> None:
        error = call.outcome.exception() if call.outcome is not None else None
        waited_s = round(call.seconds_since_start or 0)
        _log.warning("the store does not take a file: waiting", file=where, waited_s=waited_s, error=str(error))

    calls = Retrying(retry=retry_if_exception(may_pass), wait=_PAUSES, before_sleep=warn, reraise=True)
    try:
        calls(put)
    except OSError as error:
        raise refusal_of(where, error) from error
    if calls.statistics["attempt_number"] > 1:
        waited_s = round(time.monotonic() - calls.statistics["start_time"])
        _log.info("the store takes files again", file=where, waited_s=waited_s)


def refusal_of(where: str, error: Exception) -> SinkError:
    """Return the error of a store that does not take a file (TG-SINK-FILE)."""
    scheme = urlsplit(where).scheme
    fix = f"check the URL and the rights of these credentials; {scheme}:// takes them from the environment of the job and its workers"
    return SinkError(f"{where} cannot be written: {error}", code="TG-SINK-FILE", where=where, fix=fix)
