"""
The server of the page: files, answers in JSON, the answers that change as server-sent events, downloads, and actions if they are allowed.

Law: a GET changes nothing; what changes something is a POST, which :mod:`tidegate.tools.page.actions` judges. An answer is computed only
while a client asks, and is kept for a second for all who ask the same. Text of errors has passed
:func:`~tidegate.basics.secret_masking.scrub`. What is shown of a topic travels as JSON and becomes text, never markup.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from ordering.errors import SettingError, TidegateError, UnreachableError
from tidegate.basics.secret_masking import scrub
from tidegate.tools.page.access import Access, Guard
from tidegate.tools.page.actions import Actions

# Takes the parameters of a request; returns what becomes JSON.
Answer = Callable[[Mapping[str, str]], Any]
# Takes the parameters of a request; returns the name of a file and its content.
Download = Callable[[Mapping[str, str]], tuple[str, bytes]]

PAGES = ("pipeline", "time", "why", "event", "messages", "tune", "history")
_FILES = Path(__file__).parent / "files"
# What a browser is given by name: scripts, styles, the icon. Nothing else of the folder is served.
_ASSETS = tuple(sorted(path.name for path in _FILES.iterdir() if path.suffix in (".js", ".css", ".svg")))
# An action has some names and places.
_ASKED_BYTES_MAX = 100_000
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
        return _compute(lambda: self._answers[name](parameters))


def _compute(find: Callable[[], Any]) -> tuple[int, str]:
    """Return what *find* finds, or its error, as an HTTP status and JSON."""
    try:
        return 200, json.dumps(find())
    except TidegateError as error:
        status = 400 if isinstance(error, SettingError) else 503 if isinstance(error, UnreachableError) else 422
        return status, json.dumps({"code": error.code, "error": scrub(str(error))})
    except Exception as error:  # a record that nobody thought of must not end the page
        return 500, json.dumps({"code": "", "error": scrub(f"{type(error).__name__}: {error}")})


def make_page(
    answers: Mapping[str, Answer],
    access: Access,
    actions: Actions | None = None,
    downloads: Mapping[str, Download] | None = None,
) -> ASGIApp:
    """Return the page as an application; without *actions* it is read-only."""
    known, allowed, files_to_load = Answers(answers), actions or Actions(), downloads or {}

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

    async def key(_: Request) -> Response:
        # Another site can ask for it, and its browser lets that site not see the answer.
        found = {"allowed": allowed.are_allowed, "key": allowed.key if allowed.are_allowed else ""}
        return Response(json.dumps(found), media_type="application/json")

    async def action(request: Request) -> Response:
        name, client = request.path_params["name"], request.client.host if request.client is not None else ""
        status, why = allowed.find_refusal(request.headers)
        if not status and name not in allowed.acts:
            status, why = 404, "there is no such action"
        asked: Any = None
        if not status:
            try:
                asked = json.loads(await _read_body(request))
            except ValueError:
                asked = None
            if not isinstance(asked, dict):
                status, why = 400, "an action is asked for with a JSON object"
        if status:
            allowed.refuse(name, why, client)
            return Response(json.dumps({"code": "TG-UI-ACTIONS", "error": why}), status, media_type="application/json")
        status, text = await run_in_threadpool(_compute, lambda: allowed.act(name, asked, client))
        return Response(text, status, media_type="application/json")

    async def download(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in files_to_load:
            return Response("there is no such download\n", 404)
        found: list[bytes] = []

        def find() -> str:
            file, content = files_to_load[name](dict(request.query_params))
            found.append(content)
            return file

        status, text = await run_in_threadpool(_compute, find)
        if status != 200:
            return Response(text, status, media_type="application/json")
        # The bytes are those of others: a browser stores them, and never shows them as a page.
        named = quote(json.loads(text), safe="")
        return Response(found[0], 200, {"content-disposition": f"attachment; filename*=UTF-8''{named}"}, "application/octet-stream")

    pages = [Route(f"/{name}", page) for name in ("", *PAGES)]
    files = [Route(f"/{name}", file) for name in _ASSETS]
    acting = [Route("/actions", key), Route("/actions/{name}", action, methods=["POST"])]
    reading = [Route("/api/{name}", answer), Route("/events/{name}", events), Route("/download/{name}", download)]
    return Guard(Starlette(routes=[*pages, *files, *acting, *reading]), access)


async def _read_body(request: Request) -> bytes:
    """Return the body of a request. Raises ValueError: it is too long."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _ASKED_BYTES_MAX:
            raise ValueError("too long")
    return body
