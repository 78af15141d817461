"""
The server of the page: files, answers in JSON, and the answers that change as server-sent events.

Law: it only reads, and answers GET alone. An answer is computed only while a client asks, and is kept for a second for all who ask the
same. Text of errors has passed :func:`~tidegate.basics.secret_masking.scrub`. What is shown of a topic travels as JSON and becomes text,
never markup.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from ordering.errors import SettingError, TidegateError, UnreachableError
from tidegate.basics.secret_masking import scrub
from tidegate.tools.page.access import Access, Guard

# Takes the parameters of a request; returns what becomes JSON.
Answer = Callable[[Mapping[str, str]], Any]

PAGES = ("pipeline", "time", "why", "event", "messages", "tune", "history")
_FILES = Path(__file__).parent / "files"
# What a browser is given by name: scripts, styles, the icon. Nothing else of the folder is served.
_ASSETS = tuple(sorted(path.name for path in _FILES.iterdir() if path.suffix in (".js", ".css", ".svg")))
_KEPT_S = 1.0
_KEPT_MAX = 64


class Answers:
    """Answers by their names, each kept for a second, so two clients cost what one costs."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self._answers = answers
        self._locks = {name: Lock() for name in answers}
        self._kept: dict[tuple[str, frozenset[tuple[str, str]]], tuple[float, int, str]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._answers

    def get(self, name: str, parameters: Mapping[str, str]) -> tuple[int, str]:
        """Return an answer as its HTTP status and JSON."""
        key = name, frozenset(parameters.items())
        with self._locks[name]:
            kept = self._kept.get(key)
            if kept is not None and time.monotonic() - kept[0] < _KEPT_S:
                return kept[1:]
            status, text = self._compute(name, parameters)
            if len(self._kept) >= _KEPT_MAX:
                self._kept = {}
            self._kept[key] = time.monotonic(), status, text
            return status, text

    def _compute(self, name: str, parameters: Mapping[str, str]) -> tuple[int, str]:
        try:
            return 200, json.dumps(self._answers[name](parameters))
        except TidegateError as error:
            status = 400 if isinstance(error, SettingError) else 503 if isinstance(error, UnreachableError) else 422
            return status, json.dumps({"code": error.code, "error": scrub(str(error))})
        except Exception as error:  # a record that nobody thought of must not end the page
            return 500, json.dumps({"code": "", "error": scrub(f"{type(error).__name__}: {error}")})


def make_page(answers: Mapping[str, Answer], access: Access) -> ASGIApp:
    """Return the page as an application."""
    known = Answers(answers)

    async def page(_: Request) -> Response:
        return FileResponse(_FILES / "index.html", media_type="text/html; charset=utf-8")

    async def file(request: Request) -> Response:
        name = request.url.path.lstrip("/")
        return FileResponse(_FILES / name)

    async def answer(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in known:
            return Response('{"error": "there is no such answer"}', 404, media_type="application/json")
        status, text = await run_in_threadpool(known.get, name, dict(request.query_params))
        return Response(text, status, media_type="application/json")

    async def events(request: Request) -> Response:
        name, parameters = request.path_params["name"], dict(request.query_params)
        if name not in known:
            return Response("there is no such answer\n", 404)

        async def stream() -> AsyncIterator[str]:
            last = None
            while True:
                status, text = await run_in_threadpool(known.get, name, parameters)
                # Also while nothing changes a line goes out: a client that is gone shows by it.
                yield f"event: {'answer' if status == 200 else 'trouble'}\ndata: {text}\n\n" if text != last else ": same\n\n"
                last = text
                await asyncio.sleep(_KEPT_S)

        return StreamingResponse(stream(), media_type="text/event-stream")

    pages = [Route(f"/{name}", page) for name in ("", *PAGES)]
    files = [Route(f"/{name}", file) for name in _ASSETS]
    return Guard(Starlette(routes=[*pages, *files, Route("/api/{name}", answer), Route("/events/{name}", events)]), access)
