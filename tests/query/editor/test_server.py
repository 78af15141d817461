"""``tidegate lsp``, asked by a real client over standard input and output."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import requires
from pathlib import Path

import pytest
from lsprotocol import types
from pygls.lsp.client import LanguageClient

from ordering.errors import SettingError
from query.commands import lsp as command

CONFIGURATION = """
[inputs.taxis]
timestamp_by = "at"
fields = { car = "bigint", fare = "float" }

[outputs.busy]
topic = "busy"
"""
GOOD = "SELECT car, COUNT(*) AS rides INTO busy\nFROM taxis TIMESTAMP BY at\nGROUP BY car, TumblingWindow(hour, 1)\n"
_WAIT_S = 60


class Editor:
    """A client as an editor is: it sends what is typed and keeps what it is told."""

    def __init__(self, client: LanguageClient) -> None:
        self.client = client
        self.told: dict[str, list[types.Diagnostic]] = {}
        self.watched: list[str] = []
        self._news = asyncio.Condition()

        @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        async def published(params: types.PublishDiagnosticsParams) -> None:
            async with self._news:
                self.told[params.uri] = list(params.diagnostics)
                self._news.notify_all()

        @client.feature(types.CLIENT_REGISTER_CAPABILITY)
        async def registered(params: types.RegistrationParams) -> None:
            async with self._news:
                self.watched += [each.method for each in params.registrations]
                self._news.notify_all()

    async def wait(self, holds: Callable[[], bool]) -> None:
        """Wait until something has been told."""
        async with self._news:
            await asyncio.wait_for(self._news.wait_for(holds), _WAIT_S)

    async def open(self, folder: Path) -> None:
        """Say hello."""
        watching = types.DidChangeWatchedFilesClientCapabilities(dynamic_registration=True)
        capabilities = types.ClientCapabilities(workspace=types.WorkspaceClientCapabilities(did_change_watched_files=watching))
        answer = await self.client.initialize_async(types.InitializeParams(capabilities, root_uri=folder.as_uri()))
        assert answer.server_info is not None
        assert answer.server_info.name == "tidegate"
        self.client.initialized(types.InitializedParams())

    def show(self, path: Path, text: str) -> None:
        """Open a script."""
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(types.TextDocumentItem(path.as_uri(), "sql", 0, text)))

    def type(self, path: Path, text: str, version: int) -> None:
        """Replace the text of an open script."""
        document = types.VersionedTextDocumentIdentifier(version, path.as_uri())
        change = types.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))

    async def offers(self, path: Path, line: int, column: int) -> list[str]:
        """Ask what may come next."""
        document, place = types.TextDocumentIdentifier(path.as_uri()), types.Position(line, column)
        found = await self.client.text_document_completion_async(types.CompletionParams(document, place))
        assert isinstance(found, types.CompletionList)
        return [item.label for item in found.items]

    async def hover(self, path: Path, line: int, column: int) -> str:
        """Ask what a name means."""
        document, place = types.TextDocumentIdentifier(path.as_uri()), types.Position(line, column)
        found = await self.client.text_document_hover_async(types.HoverParams(document, place))
        assert found is not None
        assert isinstance(found.contents, types.MarkupContent)
        return found.contents.value

    def codes(self, path: Path) -> list[tuple[str, int, int]] | None:
        """What was told of a file last: codes, lines and columns; None: nothing yet."""
        told = self.told.get(path.as_uri())
        return None if told is None else [(str(each.code), each.range.start.line, each.range.start.character) for each in told]


@asynccontextmanager
async def editing(folder: Path) -> AsyncIterator[Editor]:
    """Start the server as an editor does; it ends when it is asked to."""
    client = LanguageClient("editor", "1")
    await client.start_io(sys.executable, "-m", "tidegate", "lsp", cwd=str(folder))
    editor = Editor(client)
    await editor.open(folder)
    yield editor
    await client.shutdown_async(None)
    client.exit(None)
    server = client._server
    assert server is not None
    assert await asyncio.wait_for(server.wait(), _WAIT_S) == 0
    await client.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project."""
    (tmp_path / "tidegate.toml").write_text(CONFIGURATION)
    return tmp_path


async def type_a_script(editor: Editor, folder: Path, ending: str) -> None:
    """Complete, explain and correct a script that is saved nowhere. Columns count the units of UTF-16."""
    script = folder / f"rides{ending}"
    editor.show(script, GOOD)
    await editor.wait(lambda: editor.codes(script) == [])
    editor.type(script, GOOD.replace("COUNT", "/*😋*/COUNTT"), 1)
    # Behind "SELECT car, " and the six units of the comment, two of which are one character.
    await editor.wait(lambda: editor.codes(script) == [("TG-QUERY-FUNCTION", 0, 18)])
    editor.type(script, "SELECT  FROM taxis", 2)
    assert {"car", "fare", "at", "DATEADD"} <= set(await editor.offers(script, 0, 7))
    assert await editor.offers(script, 0, len("SELECT  FROM t")) == ["taxis"]
    editor.type(script, GOOD, 3)
    assert "the input of topic taxis" in await editor.hover(script, 1, 6)
    assert "TumblingWindow(unit, size)" in await editor.hover(script, 2, 15)
    await editor.wait(lambda: editor.codes(script) == [])


async def change_the_configuration(editor: Editor, folder: Path, say: Callable[[str], None]) -> None:
    """*say* is how the editor tells that a file has changed. A configuration that is wrong is marked itself."""
    script, file = folder / "rides.sql", folder / "tidegate.toml"
    for text, of_script, of_file in (
        (CONFIGURATION.replace("inputs.taxis", "inputs.cabs"), ("TG-QUERY-INPUT", 1, 5), None),
        (CONFIGURATION + "\n[outputs.busy.nonsense]\nx = 1\n", ("TG-SETTING-UNKNOWN", 0, 0), ("TG-SETTING-UNKNOWN", 9, 0)),
        (CONFIGURATION, None, None),
    ):
        file.write_text(text)
        say(file.as_uri())
        await editor.wait(lambda of_script=of_script: of_script in (editor.codes(script) or [None]))
        await editor.wait(lambda of_file=of_file: of_file in (editor.codes(file) or [None]))


def test_an_editor_completes_explains_and_is_told_mistakes(folder: Path) -> None:
    """In .sql and .asaql; again when the configuration changes, whether the editor watches files or only says what it saves."""

    async def play() -> None:
        async with editing(folder) as editor:
            for ending in (".asaql", ".sql"):
                await type_a_script(editor, folder, ending)
            await editor.wait(lambda: editor.watched == [types.WORKSPACE_DID_CHANGE_WATCHED_FILES])

            def watch(uri: str) -> None:
                changed = types.DidChangeWatchedFilesParams([types.FileEvent(uri, types.FileChangeType.Changed)])
                editor.client.workspace_did_change_watched_files(changed)

            def save(uri: str) -> None:
                editor.client.text_document_did_save(types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(uri)))

            await change_the_configuration(editor, folder, watch)
            await change_the_configuration(editor, folder, save)

    asyncio.run(play())


def test_the_extra_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the line that installs it, which names an extra that brings the package."""
    monkeypatch.setitem(sys.modules, "pygls.lsp.server", None)
    monkeypatch.delitem(sys.modules, "query.editor.server", raising=False)
    with pytest.raises(SettingError) as error:
        command.lsp()
    assert error.value.example == "pip install 'tidegate[lsp]'"
    assert any(re.match(r"pygls\b.*extra == .lsp.", each) for each in requires("tidegate") or ())
