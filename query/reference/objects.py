"""
Files of reference data on an object store, by the URL of one or of a pattern: ``s3://``, ``gs://``, ``abfs://``, as those of result files
(:mod:`sinks.file_places`).

Law: what is read is a whole object. An object has no instant of its own but the one in its name; that it was replaced shows in its size or
time of change, and is judged by its bytes like a changed file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import pyarrow as pa

from ordering.errors import RefusedError, UnreachableError
from sinks.base import SinkError
from sinks.file_places import ObjectStore, Stamp, may_pass


@dataclass(frozen=True, order=True)
class StoredObject:
    """
    An object as far as it is read like the file of a path; as text it is its URL without options. *key* is its name in *store*; *stamp* is
    what the listing that named it says of size and time of change.
    """

    url: str
    key: str = field(compare=False)
    store: ObjectStore = field(repr=False, compare=False)
    stamp: Stamp | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        """What stands behind the last slash."""
        return self.url.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The ending of the name, with its dot."""
        return PurePosixPath(self.name).suffix

    @property
    def stem(self) -> str:
        """The name without its ending."""
        return PurePosixPath(self.name).stem

    def read_bytes(self) -> bytes:
        """Return the content. Raises FileNotFoundError; otherwise like :func:`objects_of_pattern`."""
        with _errors_translated(self.url):
            return self.store.read(self.key)

    def read_stamp(self) -> Stamp:
        """Return size and time of change. Raises as :meth:`read_bytes`."""
        if self.stamp is not None:
            return self.stamp
        with _errors_translated(self.url):
            return self.store.stamp(self.key)


# A file of reference data.
ReferenceFile = Path | StoredObject


def object_at(url: str) -> StoredObject:
    """Return the object of a URL, which may have options. Raises RefusedError: nothing can be there."""
    place, _, options = url.partition("?")
    folder, _, name = place.rpartition("/")
    return StoredObject(place, name, _open(f"{folder}?{options}"))


def objects_of_pattern(folder: str, options: str) -> Iterator[StoredObject]:
    """
    Yield all objects below the URL of a folder. Raises RefusedError (TG-REFERENCE-FILE): they cannot be read; UnreachableError
    (TG-REFERENCE-UNREACHABLE): the store does not answer.
    """
    store = _open(f"{folder}?{options}")
    with _errors_translated(folder):
        for key, stamp in store.stamps():
            yield StoredObject(store.where(key), key, store, stamp)


@lru_cache(maxsize=16)
def _open(url: str) -> ObjectStore:
    try:
        return ObjectStore(url)
    except SinkError as error:
        raise _unreadable_error(url.partition("?")[0], error.__cause__ or error) from None


@contextmanager
def _errors_translated(where: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        if may_pass(error):
            what = f"the object store with reference data does not answer: {error}"
            raise UnreachableError(
                what, code="TG-REFERENCE-UNREACHABLE", where=where, fix="see whether it is up; then start again"
            ) from None
        raise _unreadable_error(where, error) from None
    except pa.ArrowException as error:  # of credentials that a store does not take, or that are not there
        raise _unreadable_error(where, error) from None


def _unreadable_error(where: str, error: BaseException) -> RefusedError:
    fix = f"check the URL and the rights of these credentials; {urlsplit(where).scheme}:// takes them from the environment of the job"
    return RefusedError(f"the reference data cannot be read: {error}", code="TG-REFERENCE-FILE", where=where, fix=fix)
