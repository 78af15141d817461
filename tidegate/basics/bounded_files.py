"""
Files that users name, read whole up to a size.

Law: reading ends. A file that is larger than its bound, or has no end as ``/dev/zero``, is refused with its name after the bound was read,
by an error that callers report as that of any file that cannot be read.
"""

from __future__ import annotations

import errno
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

MIB = 2**20
# Of settings, scripts and schemas: a thousand times what people write.
TEXT_BYTES_MAX = 4 * MIB
# Of passwords and keys.
SECRET_BYTES_MAX = 1 * MIB
# Of expected results and attestations.
RESULTS_BYTES_MAX = 256 * MIB
# Of a reference table, which is kept in memory.
TABLE_BYTES_MAX = 2**31


class FileTooLarge(OSError):
    """A file is larger than what is read of its kind."""

    def __init__(self, path: Path | str, bytes_max: int) -> None:
        super().__init__(errno.EFBIG, f"it is larger than {bytes_max // MIB:,} MiB, or has no end", str(path))

    def __str__(self) -> str:
        return str(self.strerror)


def read_file_bytes(path: Path, bytes_max: int) -> bytes:
    """Return the content of a file. Raises OSError: it cannot be read; FileTooLarge: it has more than *bytes_max* bytes."""
    with path.open("rb") as file:
        content = file.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise FileTooLarge(path, bytes_max)
    return content


def read_file_text(path: Path, bytes_max: int = TEXT_BYTES_MAX, encoding: str = "utf-8-sig") -> str:
    """Return the text of a file without a byte order mark, line ends as ``\\n``; UnicodeDecodeError, and as :func:`read_file_bytes`."""
    text = read_file_bytes(path, bytes_max).decode(encoding)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def check_regular(path: Path, bytes_max: int) -> None:
    """Raise OSError if *path* is no regular file, such as a device or a pipe, or has more than *bytes_max* bytes."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        raise OSError(errno.EINVAL, "it is a device or a pipe, which cannot be read twice", str(path))
    if status.st_size > bytes_max:
        raise FileTooLarge(path, bytes_max)


def read_lines(file: BinaryIO, name: str, bytes_max: int) -> Iterator[bytes]:
    """Yield the lines of a file with their ends. Raises FileTooLarge: a line has more than *bytes_max* bytes."""
    while line := file.readline(bytes_max + 1):
        if len(line) > bytes_max:
            raise FileTooLarge(name, bytes_max)
        yield line
