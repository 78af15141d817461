"""
Result files in HDFS, over WebHDFS: HTTP to the NameNode, and to the DataNodes that it names.

Law: that of :mod:`sinks.file_places`. A file is written under another name, closed, and then renamed. The rename is one step of the
NameNode and replaces an older file. Each attempt writes a file of its own, so no writer renames a file that another one is still writing.
The unfinished files of NAME are in the folder ``.NAME.tmp``, which a writer deletes after its rename, with the files of killed writers.
"""

from __future__ import annotations

import getpass
import os
import uuid
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2

from sinks.waiting_writes import put_until_taken

_TIMEOUT_S = 30.0
# The names of HDFS errors that do not pass by waiting.
_PERMANENT = {
    "AccessControlException",
    "AuthenticationException",
    "IllegalArgumentException",
    "InvalidPathException",
    "ParentNotDirectoryException",
    "SecurityException",
    "UnsupportedOperationException",
}


class HdfsError(OSError):
    """HDFS has refused a request; *name* is the name of HDFS's error, empty if the answer has none."""

    def __init__(self, name: str, message: str, *, may_pass: bool) -> None:
        super().__init__(f"{name}: {message}" if name else message)
        self.name, self.may_pass = name, may_pass


class WebHdfs:
    """
    A folder of HDFS: ``webhdfs://namenode:9870/folder``, or ``swebhdfs://`` with TLS. Files belong to ``HADOOP_USER_NAME``, else to the
    user of the process, as with Hadoop's own tools.
    """

    def __init__(self, url: str) -> None:
        self._url = url.partition("?")[0].rstrip("/")
        parts = urlsplit(self._url)
        scheme = "https" if parts.scheme == "swebhdfs" else "http"
        self._service, self._folder = f"{scheme}://{parts.netloc}/webhdfs/v1", PurePosixPath(parts.path or "/")
        self._user = os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
        self._client = httpx2.Client(timeout=_TIMEOUT_S)

    def write(self, name: str, content: bytes) -> None:
        put_until_taken(self.where(name), lambda: self._put(name, content), _may_pass)

    def read(self, name: str) -> bytes:
        try:
            place = self._ask("GET", self._folder / name, "OPEN", noredirect="true")["Location"]
            return self._send("GET", place).content
        except HdfsError as error:
            if error.name == "FileNotFoundException":
                raise FileNotFoundError(self.where(name)) from None
            raise

    def names(self) -> Iterator[str]:
        return self._names(self._folder)

    def delete(self, name: str) -> None:
        # Its answer says whether there was such a file.
        self._ask("DELETE", self._folder / name, "DELETE")

    def where(self, name: str) -> str:
        return f"{self._url}/{name}"

    def _put(self, name: str, content: bytes) -> None:
        target = self._folder / name
        folder = target.with_name(f".{target.name}.tmp")
        unfinished = folder / uuid.uuid4().hex
        place = self._ask("PUT", unfinished, "CREATE", noredirect="true", overwrite="false")["Location"]
        self._send("PUT", place, content)
        self._ask("PUT", unfinished, "RENAME", destination=str(target), renameoptions="OVERWRITE")
        self._ask("DELETE", folder, "DELETE", recursive="true")

    def _names(self, folder: PurePosixPath) -> Iterator[str]:
        try:
            statuses = self._ask("GET", folder, "LISTSTATUS")["FileStatuses"]["FileStatus"]
        except HdfsError as error:
            if error.name == "FileNotFoundException":
                return
            raise
        for status in statuses:
            name = status["pathSuffix"]
            if name.startswith("."):
                continue
            if status["type"] == "DIRECTORY":
                yield from self._names(folder / name)
            else:
                yield (folder / name).relative_to(self._folder).as_posix()

    def _ask(self, method: str, path: PurePosixPath, operation: str, **parameters: str) -> Any:
        """Send an operation to the NameNode; return the JSON of its answer."""
        all_parameters = {"op": operation, "user.name": self._user, **parameters}
        response = self._send(method, str(httpx2.URL(f"{self._service}{quote(str(path))}").copy_merge_params(all_parameters)))
        return response.json() if response.content else {}

    def _send(self, method: str, url: str, content: bytes | None = None) -> httpx2.Response:
        headers = {"content-type": "application/octet-stream"} if content is not None else {}
        try:
            response = self._client.request(method, url, content=content, headers=headers)
        except httpx2.TransportError as error:
            raise HdfsError("", f"{type(error).__name__}: {error}", may_pass=True) from None
        if response.is_success:
            return response
        try:
            remote = response.json()["RemoteException"]
        except (ValueError, KeyError, TypeError):
            message = f"{response.status_code} {response.reason_phrase}: this is not WebHDFS, or something stands before it"
            raise HdfsError("", message, may_pass=response.status_code >= 500) from None
        raise HdfsError(remote["exception"], remote["message"], may_pass=remote["exception"] not in _PERMANENT)


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, HdfsError) and error.may_pass
