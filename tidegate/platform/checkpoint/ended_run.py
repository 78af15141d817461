"""
A run that has come to its end and is started again, by a supervisor for example, or because it was killed before it could exit.

Law: the command that would end where the run has ended does nothing more and exits with 0. Any other start of that run is refused
(TG-TOPIC-ENDED): it asks for more than a topic that has ended can take.
"""

from __future__ import annotations

from collections.abc import Mapping

from ordering.errors import RefusedError


class RunEnded(RefusedError):
    """
    The run has ended, and this start asks for the same run. ``records_since`` counts the records that have come into its input after the
    end that it has read to.
    """

    default_code = "TG-TOPIC-ENDED"
    records_since = 0

    def count_records_since(self, ends: Mapping[tuple[str, int], int], read_to: Mapping[tuple[str, int], int]) -> None:
        """Count the records below *ends* that the run, which has read up to *read_to*, knows nothing of."""
        self.records_since = sum(max(end - read_to.get(place, 0), 0) for place, end in ends.items())

    def line(self, way_out: str) -> str:
        """Return what a command prints, with the *way_out* for records that came later."""
        return f"it had ended{f'; {self.records_since:,} records have come since: {way_out}' if self.records_since else ''}"
