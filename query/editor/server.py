"""
The language server: what editors ask over the Language Server Protocol, and the mistakes that they show. Needs the extra lsp: pygls.

Findings are sent a moment after the last change of a script, so that typing waits for nothing, and again when a configuration changes.
Law: an answer follows from the text that the editor has sent and from the project's files; nothing is written, and no service is asked.
"""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from pathlib import Path

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path

from query.editor.completion import Offer, OfferKind, complete
from query.editor.findings import PlacedFinding, find_mistakes
from query.editor.hover import describe, describe_function
from query.editor.names import EditedScript
from query.editor.places import UTF_16, TextPlaces
from query.editor.project import CONFIGURATION, Projects, ScriptProject

_NAME = "tidegate"
# How long a script must stay as it is before its findings are sent.
_PAUSE_S = 0.2
_SCRIPTS = (".sql", ".asaql")
_WATCHED = (f"**/{CONFIGURATION}", "**/functions/*.js")
_ITEM_KINDS = {
    OfferKind.INPUT: types.CompletionItemKind.Module,
    OfferKind.REFERENCE: types.CompletionItemKind.Module,
    OfferKind.STEP: types.CompletionItemKind.Struct,
    OfferKind.OUTPUT: types.CompletionItemKind.Interface,
    OfferKind.COLUMN: types.CompletionItemKind.Field,
    OfferKind.FUNCTION: types.CompletionItemKind.Function,
    OfferKind.KEYWORD: types.CompletionItemKind.Keyword,
    OfferKind.TYPE: types.CompletionItemKind.TypeParameter,
}
# Columns come first, keywords last.
_ORDER = tuple(OfferKind(kind) for kind in ("column", "step", "input", "reference data", "output", "type", "function", "keyword"))


class ScriptServer(LanguageServer):
    """The server of one editor; *given* is the configuration for all scripts, None: each has the nearest."""

    def __init__(self, given: Path | None = None) -> None:
        # Scripts are small, and whole texts leave no doubt about where a line ends.
        super().__init__(_NAME, version(_NAME), text_document_sync_kind=types.TextDocumentSyncKind.Full)
        self._projects = Projects(given)
        self._waiting: dict[str, asyncio.TimerHandle] = {}
        # The configurations whose problems the editor shows.
        self._shown_problems: dict[Path, ScriptProject] = {}

    def script(self, uri: str) -> EditedScript:
        """Return a script as the editor has it."""
        path = to_fs_path(uri)
        file = Path(path) if path is not None and uri.startswith("file:") else None
        return EditedScript(self.workspace.get_text_document(uri).source.replace("\r\n", " \n"), self._projects.around(file), file)

    def places(self, script: EditedScript) -> TextPlaces:
        """Return the places of a script in the units that the editor counts in."""
        encoding = self.server_capabilities.position_encoding
        return TextPlaces(script.text, str(getattr(encoding, "value", encoding) or UTF_16))

    def tell_soon(self, uri: str) -> None:
        """Tell the findings of a script when it has not changed for a moment."""
        self._stop_waiting(uri)
        self._waiting[uri] = asyncio.get_running_loop().call_later(_PAUSE_S, self.tell, uri)

    def tell(self, uri: str) -> None:
        """Tell the findings of a script, and the problems of its configuration."""
        self._waiting.pop(uri, None)
        script = self.script(uri)
        places = self.places(script)
        found = [_diagnostic(places, each) for each in find_mistakes(script)]
        if script.project.problems:
            found.append(_hint_at_configuration(script.project))
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found))
        self._tell_problems(script.project)

    def tell_all(self) -> None:
        """Tell the findings of every open script."""
        for uri in self.open_scripts():
            self.tell_soon(uri)

    def open_scripts(self) -> list[str]:
        """Return the open documents that are scripts."""
        return [uri for uri in self.workspace.text_documents if uri.lower().endswith(_SCRIPTS)]

    def forget(self, uri: str) -> None:
        """Take back the findings of a script that is closed."""
        self._stop_waiting(uri)
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))

    def _stop_waiting(self, uri: str) -> None:
        if (waiting := self._waiting.pop(uri, None)) is not None:
            waiting.cancel()

    def _tell_problems(self, project: ScriptProject) -> None:
        path = project.configuration
        if path is None or self._shown_problems.get(path) is project or not (project.problems or path in self._shown_problems):
            return
        self._shown_problems[path] = project
        found = [_at_line(each.line, each.text, types.DiagnosticSeverity.Error, each.code) for each in project.problems]
        uri = from_fs_path(str(path.absolute()))
        assert uri is not None
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found))


def make_server(given: Path | None = None) -> ScriptServer:
    """Return a server with all that it answers; see :class:`ScriptServer`."""
    server = ScriptServer(given)

    @server.feature(types.INITIALIZED)
    async def initialized(params: types.InitializedParams) -> None:
        watching = server.client_capabilities.workspace and server.client_capabilities.workspace.did_change_watched_files
        if watching and watching.dynamic_registration:
            watchers = [types.FileSystemWatcher(glob_pattern=pattern) for pattern in _WATCHED]
            options = types.DidChangeWatchedFilesRegistrationOptions(watchers)
            wanted = types.Registration("configurations", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
            await server.client_register_capability_async(types.RegistrationParams([wanted]))

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: types.DidOpenTextDocumentParams) -> None:
        if params.text_document.uri in server.open_scripts():
            server.tell_soon(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: types.DidChangeTextDocumentParams) -> None:
        if params.text_document.uri in server.open_scripts():
            server.tell_soon(params.text_document.uri)

    # An editor that watches no files says at least what it saves: a configuration, or the text of a function.
    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def saved(params: types.DidSaveTextDocumentParams) -> None:
        server.tell_all()

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def files_changed(params: types.DidChangeWatchedFilesParams) -> None:
        server.tell_all()

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: types.DidCloseTextDocumentParams) -> None:
        server.forget(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=[".", "["]))
    def completed(params: types.CompletionParams) -> types.CompletionList:
        script = server.script(params.text_document.uri)
        places = server.places(script)
        offset = places.offset(params.position.line, params.position.character)
        completion = complete(script, offset)
        span = _range(places, completion.start, offset)
        return types.CompletionList(is_incomplete=False, items=[_item(offer, span) for offer in completion.offers])

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hovered(params: types.HoverParams) -> types.Hover | None:
        script = server.script(params.text_document.uri)
        places = server.places(script)
        found = describe(script, places.offset(params.position.line, params.position.character))
        if found is None:
            return None
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, found.text), _range(places, found.start, found.end))

    return server


def _range(places: TextPlaces, start: int, end: int) -> types.Range:
    return types.Range(types.Position(*places.place(start)), types.Position(*places.place(end)))


def _item(offer: Offer, span: types.Range) -> types.CompletionItem:
    return types.CompletionItem(
        label=offer.label,
        kind=_ITEM_KINDS[offer.kind],
        detail=offer.detail or None,
        documentation=types.MarkupContent(types.MarkupKind.Markdown, describe_function(offer.entry)) if offer.entry is not None else None,
        sort_text=f"{_ORDER.index(offer.kind)}{offer.label.lower()}",
        # Editors compare it with what is typed, which may begin with a bracket.
        filter_text=offer.written if offer.written.startswith("[") else offer.label,
        text_edit=types.TextEdit(span, offer.written),
    )


def _diagnostic(places: TextPlaces, placed: PlacedFinding) -> types.Diagnostic:
    finding = placed.finding
    severity = types.DiagnosticSeverity.Error if finding.is_error else types.DiagnosticSeverity.Warning
    text = f"{finding.what}\n{finding.fix}" if finding.fix else finding.what
    return types.Diagnostic(_range(places, placed.start, placed.end), text, severity, finding.code, source=_NAME)


def _hint_at_configuration(project: ScriptProject) -> types.Diagnostic:
    assert project.configuration is not None
    first, *others = project.problems
    more = f", and {len(others)} more" if others else ""
    text = f"{project.configuration} cannot be used, line {first.line + 1}: {first.text}{more}"
    return _at_line(0, text, types.DiagnosticSeverity.Warning, first.code)


def _at_line(line: int, text: str, severity: types.DiagnosticSeverity, code: str) -> types.Diagnostic:
    # Editors end a range at the end of its line.
    return types.Diagnostic(types.Range(types.Position(line, 0), types.Position(line, 1_000)), text, severity, code, source=_NAME)
