"""
The command ``tidegate lsp``: a language server, which editors start and talk to over standard input and output.

Law: it changes nothing, asks no service, and ends when the editor does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ordering.errors import SettingError


def lsp(
    config: Annotated[Path | None, typer.Option(help="Configuration of all scripts; default: the tidegate.toml nearest to each.")] = None,
    stdio: Annotated[bool, typer.Option("--stdio", hidden=True, help="Accepted: some editors add it.")] = False,
) -> None:
    """Serve editors: complete scripts, explain their names, find their mistakes."""
    try:
        from query.editor.server import make_server
    except ImportError as error:
        what, fix = f"the language server needs the package {error.name}", "install the extra lsp"
        raise SettingError(what, code="TG-SETTING-UNKNOWN", where="tidegate lsp", fix=fix, example="pip install 'tidegate[lsp]'") from error
    make_server(config).start_io()
