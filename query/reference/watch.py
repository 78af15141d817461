"""
Reference data of a running job: the versions it has taken up, bound to its checkpoint, and the watch for new ones.
Law: a replayed run looks rows up in the same bytes. A file is copied into the checkpoint's folder before its first lookup; the list of
versions only grows, and each batch writes to Spark's log how much of the list it knows. A file that is changed afterwards is reported, and
refused at the next start. A file that is still being written waits until two looks find it unchanged.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from ordering.errors import RefusedError, TidegateError, UnreachableError
from ordering.ticks import NEVER, format_tick
from query.reference.csv_types import CODE as TYPE
from query.reference.files import load_reference, versions_of
from query.reference.objects import ReferenceFile, StoredObject
from query.reference.tables import ReferenceTable
from sinks.file_places import Stamp, is_url
from tidegate.platform.checkpoint.binding import replace_text
from tidegate.platform.checkpoint.damage import read_json
from tidegate.platform.observe.logs import get_logger
from tidegate.platform.settings.tables.references import ReferenceSettings

FOLDER, LIST_FILE = "references", "versions.json"
# Least time between two looks at the files; object stores are asked less often, since each listing is paid for.
LOOK_S, LOOK_AT_STORE_S = 1.0, 10.0
# Largest share of the time that is spent on looking.
_SHARE = 0.05
ReferenceTables = Mapping[str, ReferenceSettings]

_log = get_logger("query.reference")


@dataclass(frozen=True, slots=True)
class ReferenceVersion:
    """A version that a run has taken up."""

    table: str
    # From when on it is valid, microseconds; ``NEVER``: always.
    effective_us: int
    file: str
    bytes: int
    sha256: str

    @property
    def copy(self) -> str:
        """The name of its copy in the checkpoint's folder."""
        return self.sha256 + Path(self.file).suffix.lower()


@dataclass(frozen=True, slots=True)
class TakenVersions:
    """All versions that a run has taken up."""

    folder: Path
    # The versions, in the order in which they were taken up.
    versions: tuple[ReferenceVersion, ...] = ()
    # How many of them the run was begun with.
    initial_count: int = 0
    # By table: the instant, microseconds, of its first version that still has a copy; earlier ones are no longer needed
    # (:mod:`query.reference.forgetting`).
    kept_from: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, checkpoint: Path) -> TakenVersions | None:
        """Return the versions that a checkpoint's run has taken up; None if it began without any."""
        file = checkpoint / FOLDER / LIST_FILE
        fields = read_json(file)
        if fields is None:
            return None
        versions = tuple(ReferenceVersion(**taken) for taken in fields["versions"])
        return cls(file.parent, versions, fields["initial_count"], fields["kept_from"])

    @property
    def added(self) -> tuple[ReferenceVersion, ...]:
        return self.versions[self.initial_count :]

    def version(self, table: str, effective_us: int) -> ReferenceVersion | None:
        """Return the version of a table that is valid from this instant on; None if it was not taken up."""
        return next((taken for taken in self.versions if (taken.table, taken.effective_us) == (table, effective_us)), None)

    def is_kept(self, version: ReferenceVersion) -> bool:
        return version.effective_us >= self.kept_from.get(version.table, NEVER)

    def with_file(self, table: str, effective_us: int, path: ReferenceFile) -> TakenVersions:
        """Copy a file; return the versions with it. The list is not written yet."""
        draft = self.folder / f"{os.getpid()}.draft"
        draft.write_bytes(path.read_bytes())
        version = ReferenceVersion(table, effective_us, str(path), draft.stat().st_size, _hash(draft))
        draft.replace(self.folder / version.copy)
        return replace(self, versions=(*self.versions, version))

    def save(self) -> None:
        versions = [asdict(taken) for taken in self.versions]
        fields = {"initial_count": self.initial_count, "kept_from": dict(self.kept_from), "versions": versions}
        replace_text(self.folder / LIST_FILE, json.dumps(fields, indent=1))

    def tables(self, settings: ReferenceTables, added: int) -> dict[str, ReferenceTable]:
        return {name: load_reference(table, self.kept_files(name, added)) for name, table in settings.items()}

    def kept_files(self, table: str, added: int | None = None) -> list[tuple[int, Path]]:
        """Return the instant and the copy of each version of a table, in order of their instants; *added*: only so many of those added."""
        known_versions = self.versions if added is None else self.versions[: self.initial_count + added]
        return sorted(
            (taken.effective_us, self.folder / taken.copy) for taken in known_versions if taken.table == table and self.is_kept(taken)
        )


def take_up_versions(checkpoint: Path, settings: ReferenceTables) -> TakenVersions:
    """Take up the versions present at a job's start; return all that its run has taken up, RefusedError if a file cannot be read."""
    known_versions = TakenVersions.read(checkpoint)
    versions = known_versions or TakenVersions(checkpoint / FOLDER)
    versions.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for table, effective_us, path in present_versions(settings):
        if versions.version(table, effective_us) is None:
            versions = versions.with_file(table, effective_us, path)
    if known_versions is None:
        versions = replace(versions, initial_count=len(versions.versions))
    if versions != known_versions:
        # Read all tables before the list is written: a file that cannot be read must not get into it.
        known_count = 0 if known_versions is None else len(known_versions.versions)
        for read in versions.tables(settings, len(versions.added)).values():
            _warn_of_types(read, versions, versions.versions[known_count:])
        versions.save()
    return versions


def _warn_of_types(table: ReferenceTable, versions: TakenVersions, new: Sequence[ReferenceVersion]) -> None:
    """Report the columns of *new* versions whose type may not be what was meant."""
    for version in new:
        for warning in table.warnings if version.table == table.schema.name else ():
            if warning.begins_us == version.effective_us:
                where = warning.where.replace(str(versions.folder / version.copy), version.file)
                _log.warning("the type of reference data may not be meant", code=TYPE, where=where, what=warning.what, fix=warning.fix)


def check_unchanged(checkpoint: Path, settings: ReferenceTables) -> None:
    """Raise RefusedError (TG-REFERENCE-CHANGED) if a file differs from the version that was taken up; missing files do not count."""
    versions = TakenVersions.read(checkpoint)
    if versions is None:
        return
    for table, effective_us, path in present_versions(settings):
        version = versions.version(table, effective_us)
        if version is not None and versions.is_kept(version) and _hash(path) != version.sha256:
            raise _changed_error(version, path, checkpoint)


def _changed_error(version: ReferenceVersion, path: ReferenceFile, checkpoint: Path) -> RefusedError:
    always = version.effective_us == NEVER
    since = "" if always else f", for times from {format_tick(version.effective_us)} on"
    anew = (
        f"say from when on what is new is valid, in a file of its own: effective in place of path of references.{version.table}; "
        "the copy counts until then"
        if always
        else "give what is new a file of its own, valid from a later instant on"
    )
    return RefusedError(
        f"{path} has been changed since rows of {version.table} were looked up in it{since}",
        code="TG-REFERENCE-CHANGED",
        where=str(path),
        fix=f"put it back as it was (a copy is {checkpoint / FOLDER / version.copy}); {anew}; or delete {checkpoint} and continue with "
        "--start last-stopped: results from the last CTI on are then looked up in what is new",
        example=f'effective = {{ "2001-01-02T00:00:00Z" = "{path.stem}-2{path.suffix}" }}' if always else "--start last-stopped",
    )


class PresentVersion(NamedTuple):
    """A version that there is now: from *effective_us* on, microseconds, *table* has the rows of *file*."""

    table: str
    effective_us: int
    file: ReferenceFile


def present_versions(settings: ReferenceTables) -> Iterator[PresentVersion]:
    """Yield the versions that there are now."""
    for name, table in settings.items():
        for effective_us, path in versions_of(table):
            yield PresentVersion(name, effective_us, path)


def _hash(path: ReferenceFile) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _stamp_of(path: ReferenceFile) -> Stamp:
    if isinstance(path, StoredObject):
        return path.read_stamp()
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns


class ReferenceWatch:
    """
    Looks for new versions while a job runs. It runs in the planner, which alone adds to the list then. Object stores are asked by a thread,
    so one that does not answer delays nothing. *check* raises RefusedError if the query cannot look rows up in a version.
    """

    def __init__(
        self,
        checkpoint: Path,
        settings: ReferenceTables,
        clock_s: Callable[[], float] = time.monotonic,
        check: Callable[[ReferenceTable], None] | None = None,
    ) -> None:
        versions = TakenVersions.read(checkpoint)
        assert versions is not None, "a run with reference data begins with some"
        self._versions, self._settings, self._clock_s, self._check = versions, settings, clock_s, check
        self._next_s = clock_s()
        self._asks_stores = any(is_url(place) for table in settings.values() for place in table.places)
        self._looking: threading.Thread | None = None
        self._seen: dict[tuple[str, int], Stamp] = {}
        self._reported: set[tuple[str, Stamp]] = set()

    def look(self) -> int:
        """Look at the files if it is time to; return how many versions were taken up since the run was begun."""
        if self._clock_s() >= self._next_s and not self.is_looking:
            if self._asks_stores:
                self._looking = threading.Thread(target=self._look_and_schedule, name="reference data", daemon=True)
                self._looking.start()
            else:
                self._look_and_schedule()
        return len(self._versions.added)

    @property
    def is_looking(self) -> bool:
        """Whether an object store is being asked."""
        return self._looking is not None and self._looking.is_alive()

    def _look_and_schedule(self) -> None:
        began_s = self._clock_s()
        self._look_at_files()
        ended_s = self._clock_s()
        self._next_s = ended_s + max(LOOK_AT_STORE_S if self._asks_stores else LOOK_S, (ended_s - began_s) / _SHARE)

    def _look_at_files(self) -> None:
        try:
            found = list(present_versions(self._settings))
        except TidegateError as error:
            self._report_once(error.where, (0, 0), error)
            return
        for table, effective_us, path in found:
            stamp: Stamp = (0, 0)
            try:
                stamp = _stamp_of(path)
                is_known = self._seen.get((table, effective_us)) == stamp
                self._seen[table, effective_us] = stamp
                version = self._versions.version(table, effective_us)
                if version is not None:
                    if not is_known and self._versions.is_kept(version) and _hash(path) != version.sha256:
                        self._report_once(str(path), stamp, _changed_error(version, path, self._versions.folder.parent))
                # A file counts once two looks find it unchanged; an object is there whole or not at all.
                elif (is_known or isinstance(path, StoredObject)) and (str(path), stamp) not in self._reported:
                    self._take_up(table, effective_us, path)
            except UnreachableError as error:
                # It may pass: the next look takes the object for a new one, whatever its stamp.
                self._seen.pop((table, effective_us), None)
                self._report_once(str(path), (0, 0), error)
            except TidegateError as error:
                self._report_once(str(path), stamp, error)
            except OSError:
                # The file is gone again, or the next look will find it.
                continue

    def _take_up(self, table: str, effective_us: int, path: ReferenceFile) -> None:
        versions = self._versions.with_file(table, effective_us, path)
        # Read before it is in the list: a wrong record in it is reported now, and the job goes on without the file.
        known_files = [file for file in self._versions.kept_files(table) if file[0] < effective_us]
        files = [*known_files[-1:], (effective_us, versions.folder / versions.versions[-1].copy)]
        read = load_reference(self._settings[table], files)
        if self._check is not None:
            self._check(read)
        _warn_of_types(read, versions, versions.versions[-1:])
        versions.save()
        self._versions = versions
        _log.info("new reference data is read", table=table, file=str(path), valid_from=format_tick(effective_us))

    def _report_once(self, file: str, stamp: Stamp, error: TidegateError) -> None:
        if (file, stamp) not in self._reported:
            self._reported.add((file, stamp))
            _log.warning("new reference data is ignored", code=error.code, file=file, reason=error.what, fix=error.fix)
