"""
The command ``tidegate ui``: the pipeline as a page in a browser.

Law: what the page shows is what ``status``, ``watermarks --plot``, ``why`` and ``peek`` find, by the same functions. It changes nothing
without ``--allow-actions``, and is reached from this machine alone unless it has a token.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ordering.errors import SettingError
from tidegate.platform.observe.terminal import standard_output
from tidegate.tools.page.listening import TOKEN, check_binding, check_certificate, listen

if TYPE_CHECKING:
    from tidegate.platform.settings.load import Settings
    from tidegate.tools.page.server import Answer

PORT = 8600
_CONNECTIONS_MAX = 64
# Of malloc.h.
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
# Larger pieces are given back to the system when they are freed, bytes.
_LARGE_BYTES = 256 * 1024
_TRIM_EVERY_S = 5.0


def ui(
    host: Annotated[str, typer.Option(help=f"The address to listen on; one that others reach needs {TOKEN}.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on.")] = PORT,
    name: Annotated[list[str] | None, typer.Option(help="A further name under which browsers ask this server.")] = None,
    certificate: Annotated[Path | None, typer.Option(help="TLS: the certificate and its chain, PEM.")] = None,
    key: Annotated[Path | None, typer.Option(help="TLS: the private key of the certificate, PEM.")] = None,
    allow_actions: Annotated[
        bool, typer.Option("--allow-actions", help="Let the page produce the records of dead letters again; each time is logged.")
    ] = False,
    config: Annotated[Path | None, typer.Option(help="Configuration file; default: tidegate.toml here.")] = None,
    assign: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: redis.url=redis://host:6379/0")] = None,
) -> None:
    """Serve the pipeline as a page in a browser, until Ctrl-C."""
    from tidegate.platform.observe import logs
    from tidegate.platform.settings.load import load_assigned

    settings = load_assigned(config, assign)
    logs.configure(settings.logging.format, settings.logging.level)
    token = os.environ.get(TOKEN, "")
    check_binding(host, token)
    check_certificate(certificate, key)
    _spare_memory()
    try:
        import uvicorn

        from tidegate.tools.commands.page_answers import make_answers
        from tidegate.tools.commands.page_messages import make_acts, make_downloads
        from tidegate.tools.page.access import LOOPBACK, Access
        from tidegate.tools.page.actions import Actions
        from tidegate.tools.page.server import make_page
    except ImportError as error:
        what, fix = f"the page needs the package {error.name}", "install the extra ui"
        raise SettingError(what, code="TG-SETTING-UNKNOWN", where="tidegate ui", fix=fix, example="pip install 'tidegate[ui]'") from error
    shown = f"[{host}]" if ":" in host else host
    names = frozenset(each.lower() for each in (*LOOPBACK, shown, *(name or [])))
    folder = config.parent if config is not None else Path()
    answers = {name: _trimming(answer) for name, answer in make_answers(settings, folder, command_flags(config, assign)).items()}
    actions = Actions(make_acts(settings) if allow_actions else {})
    app = make_page(answers, Access(names, token), actions, make_downloads(settings))
    scheme = "http" if certificate is None else "https"
    listening = listen(host, port)
    serving = uvicorn.Config(
        app,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        access_log=False,
        log_level="warning",
        server_header=False,
        limit_concurrency=_CONNECTIONS_MAX,
        timeout_graceful_shutdown=2,
    )
    standard_output().line(f"the pipeline is shown at {scheme}://{shown}:{listening.getsockname()[1]}")
    with suppress(KeyboardInterrupt):
        uvicorn.Server(serving).run([listening])


class _WithoutPandas(MetaPathFinder):
    """Says that there is no pandas: pyarrow would load it, 50 MB, to recognize its values, of which this server has none."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("the page does without pandas", name=name)


def _spare_memory() -> None:
    """
    Load nothing that this server does not need, and let all threads, and Arrow, allocate from two arenas, where the C library has such:
    answers are computed in many threads, and each would keep what it has freed.
    """
    sys.meta_path.insert(0, _WithoutPandas())
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_ARENA_MAX, 2)
        # Else the library raises it by itself, and keeps the columns of a picture.
        library.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())


def _trimming(answer: Answer) -> Answer:
    """Return the answer that gives freed memory back to the system afterwards, now and then: a picture takes more than the server."""
    trimmed_s = 0.0

    def answer_and_trim(asked: Mapping[str, str]) -> Any:
        nonlocal trimmed_s
        try:
            return answer(asked)
        finally:
            if time.monotonic() - trimmed_s > _TRIM_EVERY_S:
                trimmed_s = time.monotonic()
                with suppress(OSError, AttributeError):
                    ctypes.CDLL(None).malloc_trim(0)

    return answer_and_trim


@contextmanager
def page_beside(settings: Settings, folder: Path, flags: Sequence[str], port: int) -> Iterator[str]:
    """
    Serve the page to this machine in a thread, until the block is left; give its address. Without the extra ui, or if the port is taken,
    nothing is served and the address is empty: the page is no reason for a job not to run.
    """
    from tidegate.platform.observe.logs import get_logger

    log = get_logger("run")
    try:
        import uvicorn

        from tidegate.tools.commands.page_answers import make_answers
        from tidegate.tools.commands.page_messages import make_downloads
        from tidegate.tools.page.access import LOOPBACK, Access
        from tidegate.tools.page.server import make_page
    except ImportError:
        log.info("no page: the extra ui is not installed", fix="pip install 'tidegate[ui]'")
        yield ""
        return
    try:
        listening = listen("127.0.0.1", port)
    except SettingError as error:
        log.warning("no page: its port is taken", port=port, reason=error.what, fix="name another with --page-port, or --no-page")
        yield ""
        return
    app = make_page(
        make_answers(settings, folder, flags), Access(frozenset(LOOPBACK), os.environ.get(TOKEN, "")), None, make_downloads(settings)
    )
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            access_log=False,
            log_config=None,
            log_level="warning",
            server_header=False,
            limit_concurrency=_CONNECTIONS_MAX,
            timeout_graceful_shutdown=1,
        )
    )
    thread = threading.Thread(target=server.run, args=([listening],), name="page", daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    log.info("the pipeline is shown", address=address)
    try:
        yield address
    finally:
        server.should_exit = True
        thread.join(timeout=3)
        listening.close()


def command_flags(config: Path | None, assign: Sequence[str] | None) -> list[str]:
    """Return the flags that lead another command to the same settings."""
    return [*(["--config", str(config)] if config is not None else []), *(part for each in assign or () for part in ("--set", each))]
