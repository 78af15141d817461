"""
The places that hold result files: a folder, a prefix of an object store, or a folder of HDFS.

Law: a file appears whole or not at all, and replaces an older file of its name. In a folder it is written under another name, synced and
renamed. An object store shows an object once its upload is complete. For HDFS see :mod:`sinks.webhdfs`. If several writers write the same
file, it exists once.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from pyarrow import fs

from sinks.base import SinkError
from sinks.waiting_writes import put_until_taken, refusal_of
from tidegate.platform.settings.kinds import HDFS_SCHEMES

_RENAME_ATTEMPTS = 20
# Errors in the texts of object stores' clients that do not pass by waiting.
_PERMANENT = re.compile(
    "ACCESS_DENIED|NO_SUCH_BUCKET|INVALID_ACCESS_KEY|SIGNATURE|UNRECOGNIZED_CLIENT|PERMISSION_DENIED|UNAUTHENTICATED|NOT_FOUND"
    "|AuthenticationFailed|AuthorizationFailure|ContainerNotFound|does not exist"
)

# Size and time of last change of a file, nanoseconds.
Stamp = tuple[int, int]


class FilePlace(Protocol):
    """A place of files. Names are relative, with ``/`` between folders; names that begin with a dot are unfinished files."""

    def write(self, name: str, content: bytes) -> None:
        """Put a file there in one step. Raises SinkError (TG-SINK-FILE): the place does not take it."""

    def read(self, name: str) -> bytes:
        """Return a file's bytes. Raises FileNotFoundError: there is none."""

    def names(self) -> Iterator[str]:
        """Yield the names of all finished files, in no order."""

    def delete(self, name: str) -> None:
        """Delete a file; one that is gone already is no error. Raises SinkError (TG-SINK-FILE): the place does not let it go."""

    def where(self, name: str) -> str:
        """Return the path or URL of a file."""


def is_url(place: str) -> bool:
    """Return whether files go to a store rather than to a folder of this machine."""
    return "://" in place


def absolute_place(place: str) -> str:
    """Return a place by a name that does not depend on the working directory."""
    return place.rstrip("/") if is_url(place) else str(Path(place).absolute())


def open_place(place: str) -> FilePlace:
    """Return the folder, made when missing at the first write, or the store of a URL. Raises SinkError (TG-SINK-FILE)."""
    if urlsplit(place).scheme in HDFS_SCHEMES:
        # Imported here: its HTTP client takes time to load, and few jobs need it.
        from sinks.webhdfs import WebHdfs

        return WebHdfs(place)
    return ObjectStore(place) if is_url(place) else Folder(Path(place))


class Folder:
    """A folder of a file system in which renames are atomic."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def write(self, name: str, content: bytes) -> None:
        target = self._root / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _write_file(target, content)
            if target.parent != self._root:
                _sync_folder(self._root)
        except OSError as error:
            what = f"{target} cannot be written: {error.strerror or error}"
            fix = "make room, or make the folder writable; then start the job again, it writes this file anew"
            raise SinkError(what, code="TG-SINK-FILE", where=str(target), fix=fix) from error

    def read(self, name: str) -> bytes:
        return (self._root / name).read_bytes()

    def names(self) -> Iterator[str]:
        paths = (path for path in self._root.rglob("*") if path.is_file() and not path.name.startswith("."))
        return (path.relative_to(self._root).as_posix() for path in paths)

    def delete(self, name: str) -> None:
        try:
            (self._root / name).unlink(missing_ok=True)
        except OSError as error:
            raise _undeletable(self.where(name), error) from error

    def where(self, name: str) -> str:
        return str(self._root / name)


class ObjectStore:
    """
    A prefix of an object store: ``s3://bucket/prefix``, ``gs://bucket/prefix``, ``abfs://container@account.dfs.core.windows.net/prefix``.
    The part of the URL behind ``?`` has options of Arrow's file systems, such as ``endpoint_override``.

    If the store does not answer, the write is repeated until it succeeds, and the log says how long it has waited.
    """

    def __init__(self, url: str) -> None:
        self._url = url.partition("?")[0].rstrip("/")
        try:
            self._files, self._prefix = fs.FileSystem.from_uri(url)
        except (OSError, ValueError) as error:
            raise refusal_of(self._url, error) from error

    def write(self, name: str, content: bytes) -> None:
        put_until_taken(self.where(name), lambda: self._upload(name, content), may_pass)

    def read(self, name: str) -> bytes:
        with self._files.open_input_stream(f"{self._prefix}/{name}") as stream:
            content: bytes = stream.read()
            return content

    def names(self) -> Iterator[str]:
        return (name for name, _ in self.stamps())

    def delete(self, name: str) -> None:
        try:
            self._files.delete_file(f"{self._prefix}/{name}")
        except FileNotFoundError:
            return
        except OSError as error:
            raise _undeletable(self.where(name), error) from error

    def stamps(self) -> Iterator[tuple[str, Stamp]]:
        """Yield the name of each file with its stamp."""
        infos = self._files.get_file_info(fs.FileSelector(self._prefix, recursive=True, allow_not_found=True))
        files = (info for info in infos if info.type == fs.FileType.File and not info.base_name.startswith("."))
        return ((info.path.removeprefix(f"{self._prefix}/"), (info.size, info.mtime_ns)) for info in files)

    def stamp(self, name: str) -> Stamp:
        """Return size and time of change of a file. Raises FileNotFoundError: there is none."""
        info = self._files.get_file_info(f"{self._prefix}/{name}")
        if info.type != fs.FileType.File:
            raise FileNotFoundError(self.where(name))
        return info.size, info.mtime_ns

    def where(self, name: str) -> str:
        return f"{self._url}/{name}"

    def _upload(self, name: str, content: bytes) -> None:
        # The object appears when the stream is closed. A stream whose write failed reports it again there, and publishes nothing.
        stream = self._files.open_output_stream(f"{self._prefix}/{name}")
        stream.write(content)
        stream.close()


def may_pass(error: BaseException) -> bool:
    """Return whether an error of an object store may pass, so that reading or writing is worth another try."""
    return isinstance(error, OSError) and not _PERMANENT.search(str(error))


def _undeletable(where: str, error: OSError) -> SinkError:
    fix = "make its folder writable, or get the right to delete there; then do it again"
    return SinkError(f"{where} cannot be deleted: {error.strerror or error}", code="TG-SINK-FILE", where=where, fix=fix)


def _write_file(target: Path, content: bytes) -> None:
    """Put *content* at *target* in one step. This survives a power cut and other writers of the same file."""
    for attempt in range(_RENAME_ATTEMPTS):
        for leftover in target.parent.glob(f".{target.name}.*.tmp"):
            # A killed writer has left this.
            leftover.unlink(missing_ok=True)
        unfinished = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        with unfinished.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            unfinished.rename(target)
            break
        except FileNotFoundError:
            # Another writer of this sheet took our file for a leftover; its bytes are the same.
            if attempt == _RENAME_ATTEMPTS - 1:
                raise
    # A rename survives a power cut only after the folder was synced.
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
