"""
Sends results as signed requests to an HTTP receiver, by Standard Webhooks.

Law: each result is sent at least once, and requests with one webhook-id have the same rows; so a receiver that remembers webhook-ids has
each result once. The end of a batch is noted in Redis before the batch is sent, and a batch that may have been sent is repeated with
exactly these bounds, thus with the same id. A batch that the receiver refuses is sent row by row. That is noted too, before the first row
is sent; from then on the batch is never sent whole.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from sinks.stores.base import Batch, Progress, Refusal, Rows, RowsRefused, StoreContext
from sinks.stores.http.progress import SendingProgress, Standings
from sinks.stores.http.request import BodyRefused, Receiver, body_of, request_id
from tidegate.basics.fault_points import pause_at
from tidegate.platform.settings.tables.stores.http import HttpSettings


class HttpStore:
    """The receiver of one output; see the law above."""

    def __init__(self, context: StoreContext, settings: HttpSettings) -> None:
        self._settings, self._stream = settings, context.stream
        self._receiver = Receiver(settings)
        self._standings = Standings(context.redis, context.output, settings.url.get_secret_value(), context.stream)
        # (partition, position) of the rows of a split batch that the receiver has taken: the next attempt leaves them out.
        self._taken: set[tuple[int, int]] = set()

    @property
    def name(self) -> str:
        return self._receiver.name

    def check(self) -> None:
        """Check the certificate files. A receiver cannot be asked which results it would accept."""
        self._receiver.connect()

    def prepare(self) -> None:
        """Check that Redis, which keeps the progress, answers."""
        self.check()
        self._standings.connect()

    def progress(self, partitions: Sequence[int]) -> Mapping[int, Progress]:
        """Return the progress in Redis."""
        return {partition: standing.progress for partition, standing in self._standings.read(partitions).items()}

    def write(self, batch: Batch) -> Progress:
        """Note the end of the batch, send it, and move the progress."""
        known = self._standings.read([batch.partition]).get(batch.partition)
        standing = known or SendingProgress(batch.stream_id, 0, 0)
        if standing[:2] != (batch.stream_id, batch.start):
            return standing.progress
        if standing.end is None:
            standing = self._standings.swap(batch.partition, known, standing._replace(end=batch.end))
        if standing[:2] != (batch.stream_id, batch.start) or standing.end != batch.end:
            return standing.progress
        standing = self._send(batch, standing)
        if standing[:2] != (batch.stream_id, batch.start):
            return standing.progress
        pause_at("rows sent")
        moved = self._standings.swap(batch.partition, standing, SendingProgress(batch.stream_id, batch.end, batch.offset))
        pause_at("progress sent")
        self._taken.clear()
        return moved.progress

    def close(self) -> None:
        """Disconnect from the receiver and from Redis."""
        self._receiver.close()
        self._standings.close()
        self._taken.clear()

    def _send(self, batch: Batch, standing: SendingProgress) -> SendingProgress:
        """Send the rows, whole or one by one; return the standing after that. Raises RowsRefused."""
        if not standing.is_split:
            try:
                if len(batch.rows):
                    self._post(batch, batch.rows, batch.start, batch.end)
                return standing
            except BodyRefused as refused:
                if batch.end - batch.start == 1:
                    raise RowsRefused([Refusal(batch.start, str(refused))]) from None
            standing = self._standings.swap(batch.partition, standing, standing._replace(is_split=True))
        # If it is not split, another writer has moved the standing, and write() returns that one's progress.
        if standing.is_split:
            self._send_one_by_one(batch)
        return standing

    def _send_one_by_one(self, batch: Batch) -> None:
        refusals: list[Refusal] = []
        for row, position in enumerate(batch.rows.position.tolist()):
            if (batch.partition, position) in self._taken:
                continue
            try:
                self._post(batch, batch.rows.slice(row, row + 1), position, position + 1)
                self._taken.add((batch.partition, position))
            except BodyRefused as refused:
                refusals.append(Refusal(position, str(refused)))
                if self._settings.on_error == "stop":
                    break
        if refusals:
            raise RowsRefused(refusals)

    def _post(self, batch: Batch, rows: Rows, start: int, end: int) -> None:
        message_id = request_id(batch.stream_id, batch.partition, start, end)
        self._receiver.send(message_id, int(time.time()), body_of(rows.value))
