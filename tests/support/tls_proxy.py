"""TLS in front of a server that has none: it shows a certificate, asks for the client's, and passes all bytes on."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from concurrent.futures import Future
from pathlib import Path

from support.certificates import Keys


class TlsFront:
    """
    Listens on a loopback port of its own until it is closed.

    Args:
        port_behind: Loopback port of the server that speaks in the clear.
        keys: What it shows.
        ca_file: Whose clients are let in.
    """

    def __init__(self, port_behind: int, keys: Keys, ca_file: Path) -> None:
        self._port_behind = port_behind
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(ca_file))
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._context.load_cert_chain(keys.both_file)
        self._loop, self._end = asyncio.new_event_loop(), asyncio.Event()
        started: Future[int] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        self.port = started.result(10)

    def close(self) -> None:
        """Stop listening; break what is open."""
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)

    def _run(self, started: Future[int]) -> None:
        self._loop.run_until_complete(self._listen(started))
        self._loop.close()

    async def _listen(self, started: Future[int]) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        started.set_result(server.sockets[0].getsockname()[1])
        await self._end.wait()
        server.close()
        open_ = asyncio.all_tasks() - {asyncio.current_task()}
        for task in open_:
            task.cancel()
        await asyncio.gather(*open_, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            behind_reader, behind_writer = await asyncio.open_connection("127.0.0.1", self._port_behind)
            await asyncio.gather(_pass_on(reader, behind_writer), _pass_on(behind_reader, writer))


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while octets := await reader.read(65_536):
            writer.write(octets)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()
