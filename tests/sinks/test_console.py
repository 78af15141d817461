"""The console prints what becomes final, in order."""

from __future__ import annotations

import io

from sinks.console import ConsoleSink


def test_each_row_is_a_line_with_its_time() -> None:
    """Rows of a sheet come in their one order."""
    stream = io.StringIO()
    sink = ConsoleSink(60_000_000, "counts", stream)
    sink.publish(0, 0, [(2_000_000, b"b", b'{"n":2}'), (1_500_000, b"a", '{"k":"é"}'.encode())])
    assert stream.getvalue() == 'counts  1970-01-01T00:00:01.500Z  {"k":"é"}\ncounts  1970-01-01T00:00:02Z  {"n":2}\n'
