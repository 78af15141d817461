"""
The outputs of ``tidegate order``: standard output, files, pipes and devices.

Law: a run never writes the file that it reads, nor two outputs into one file. A file named by a flag is replaced in one step after the run
has succeeded; after a failed run it is unchanged.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO, Self, TextIO

from ordering.errors import SettingError, TidegateError
from tidegate.basics.visible_text import visible_lines

_STDOUT_NAMES = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
_STDERR_NAMES = ("/dev/stderr", "/dev/fd/2", "/proc/self/fd/2")

# Device and inode of a file, or the path where it will be.
Identity = tuple[int, int] | str


class OrderOutputError(TidegateError):
    """An output file cannot be written."""

    exit_code = 4
    default_code = "TG-ORDER-OUTPUT"


def check_distinct_files(source: BinaryIO, output: Path | None, dropped: Path | None) -> None:
    """
    Check that input, *output* (None: standard output) and *dropped* (None: not written) are different files, even under different names.
    Raises SettingError if two of them are one file.
    """
    name_by_file: dict[Identity, str] = {}
    _claim(name_by_file, "the input", _file_identity(source))
    if output is None or _standard_stream(output) is sys.stdout or (dropped and _standard_stream(dropped) is sys.stdout):
        _claim(name_by_file, "standard output", _file_identity(sys.stdout))
    for name, stream in (("standard output", sys.stdout), ("standard error", sys.stderr)):
        identity = _file_identity(stream)
        # Standard output and standard error may be one file; it is then called by the first name.
        if identity is not None:
            name_by_file.setdefault(identity, name)
    for name, path in (("--output", output), ("--dropped", dropped)):
        if path is not None and _standard_stream(path) is None:
            _claim(name_by_file, name, _path_identity(path), str(path))


def _claim(name_by_file: dict[Identity, str], name: str, identity: Identity | None, where: str = "") -> None:
    if identity is None:
        return
    first_name = name_by_file.setdefault(identity, name)
    if first_name != name:
        what = f"{first_name} and {name} are the same file"
        example = "--output ordered.ndjson --dropped dropped.ndjson"
        raise SettingError(what, code="TG-SETTING-CONFLICT", where=where or name, fix="name another file", example=example)


def _file_identity(stream: IO[Any] | None) -> Identity | None:
    # Only regular files count: a pipe may be named twice.
    if stream is None:  # closed before the program began
        return None
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):  # in memory
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def _path_identity(path: Path) -> Identity | None:
    try:
        status = path.stat()
    except OSError:
        return os.path.realpath(path)
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def _standard_stream(path: Path) -> TextIO | None:
    # Opening a standard stream by its path would write it from its beginning.
    if str(path) in _STDOUT_NAMES:
        return sys.stdout
    return sys.stderr if str(path) in _STDERR_NAMES else None


def _binary_stream(standard: TextIO | None) -> BinaryIO:
    if standard is None:
        raise OSError(errno.EBADF, "it is closed")
    return standard.buffer


class LineWriter:
    """
    Writes lines to a file, to standard output (*path* None), or nowhere (*is_wanted* False). At the end of its context it discards a file
    that was not committed. Pipes, devices and standard output get lines at once. Raises OrderOutputError: the file cannot be written;
    BrokenPipeError: the pipe is closed.
    """

    def __init__(self, path: Path | None, *, is_wanted: bool = True) -> None:
        self._path, self._is_wanted = path, is_wanted
        self._own: BinaryIO | None = None
        self._unfinished: Path | None = None
        self._target: Path | None = None

    def __enter__(self) -> Self:
        if self._is_wanted and self._path and _standard_stream(self._path) is None:
            with self._writable():
                self._own = self._open(self._path)
        return self

    def __exit__(self, *_: object) -> None:
        """Discard the file unless it was committed."""
        if self._unfinished:
            self._unfinished.unlink(missing_ok=True)
        if self._own:
            with suppress(OSError):
                self._own.close()

    def _open(self, path: Path) -> BinaryIO:
        if path.exists():
            if not path.is_file():
                return path.open("wb")
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        # The real path, so that a symbolic link stays a link and its target is replaced.
        self._target = Path(os.path.realpath(path))
        # In the same folder: replace() is atomic only within a file system.
        unfinished = self._target.with_name(f".tidegate-order-{secrets.token_hex(4)}")
        stream = unfinished.open("xb")
        self._unfinished = unfinished
        return stream

    @contextmanager
    def _writable(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            where, fix = str(self._path or "standard output"), "make room, or name another file"
            raise OrderOutputError(f"the file cannot be written: {error.strerror or error}", where=where, fix=fix) from error

    def write(self, lines: list[bytes]) -> None:
        """Write lines, each with its line end."""
        if self._is_wanted:
            self.write_texts([b"".join(lines)])

    def write_texts(self, texts: Iterable[bytes | memoryview]) -> None:
        """Write texts of several lines with their line ends, one by one, so that large texts are not copied into one."""
        if not self._is_wanted:
            return
        with self._writable():
            standard = (_standard_stream(self._path) if self._path else None) or sys.stdout
            stream = self._own or _binary_stream(standard)
            is_terminal = self._own is None and standard.isatty()
            for text in filter(len, texts):
                stream.write(_shown_text(text) if is_terminal else text)
                stream.flush()

    def commit(self) -> None:
        """Move the finished file to its place."""
        if self._own is None:
            return
        with self._writable():
            self._own.close()
            if self._unfinished and self._target:
                if self._target.exists():
                    # The new file keeps the permissions of the one it replaces.
                    self._unfinished.chmod(stat.S_IMODE(self._target.stat().st_mode))
                self._unfinished.replace(self._target)
                self._unfinished = None


def _shown_text(text: bytes | memoryview) -> bytes:
    """Return lines of records in a form that cannot command a terminal; files and pipes get the bytes themselves."""
    return visible_lines(bytes(text).decode("utf-8", "backslashreplace")).encode("utf-8")


def discard_stdout() -> None:
    """Redirect standard output to nowhere after its reader has closed it; otherwise Python would fail at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
