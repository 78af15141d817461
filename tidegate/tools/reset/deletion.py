"""
Lists what a reset deletes, and deletes it as one.

Law: a reset that is killed anywhere leaves a job that refuses to start (TG-RESET-UNFINISHED) until the reset has been repeated, and the
repetition deletes the rest. First the checkpoint folder is claimed, so that no job of this machine runs or starts beside it, and marked;
then everything goes, topics before the rows that were copied from them, since no sink runs without its topic; the mark goes last.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ordering.errors import RefusedError, SettingError
from sinks.file_places import FilePlace, open_place
from sinks.stores.base import ClearableStore, Store, StoreContext, Stream
from sinks.stores.registry import make_store
from tidegate.basics.fault_points import pause_at
from tidegate.platform.checkpoint.claim import UNFINISHED_RESET, claim, release
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.observe.progress_store import SILENT_AFTER_S, ProgressStore, progress_key, sink_key
from tidegate.platform.redis_client import connect, translate_errors
from tidegate.platform.settings.load import Settings
from tidegate.platform.settings.tables.outputs import OutputSettings
from tidegate.tools.reset.belongings import JobBelongings, write_mark

# The names that files of results have; what else lies in the folder is somebody else's.
_RESULT_FILE = re.compile(r"(date=\d+-\d\d-\d\d/)?\d+-\d\d-\d\dT\d\d-\d\d-\d\d[^/]*\.p\d{5,}\.(ndjson|parquet)")


_KEYS = {"progress": "what the job has published", "asked": "a question to the job"}


@dataclass(frozen=True, slots=True)
class Doomed:
    """Something that a reset deletes: its kind, its place, and how much it is."""

    kind: str
    place: str
    amount: str


class Reset:
    """The reset of one job. With *rows* the rows of stores go too."""

    def __init__(self, settings: Settings, job: JobBelongings, *, rows: bool) -> None:
        self._settings, self._job, self._rows = settings, job, rows or job.owes_rows
        self._admin = Admin.connect(settings.kafka, deletes=True)
        self._redis = connect(settings.redis)
        if self._rows:
            self._check_clearable()

    def check_stopped(self) -> None:
        """Raise RefusedError if the job, or a sink of its outputs, runs: TG-RESET-RUNNING, or TG-CHECKPOINT-TAKEN."""
        now_ms = time.time_ns() // 1_000_000
        with ProgressStore(self._settings.redis) as store:
            found = [(name, store.read(name)) for name in self._job.publishers]
            # Another project of the same Redis may have an output of this name, which copies another topic.
            found += [
                (sink_key(output.name), sink)
                for output in self._job.outputs
                for sink in store.read_sinks(output.name, now_ms)
                if sink.job.get("reads") in (None, output.topic)
            ]
            for name, progress in found:
                if progress is not None and progress.job and progress.is_alive(now_ms):
                    what = (
                        f"{self._job.job} runs, or a sink of it: {name} was heard of {_age(now_ms - int(progress.job.get('at_ms', 0)))} ago"
                    )
                    fix = f"stop it first; one that was killed counts as running for {SILENT_AFTER_S:g} s"
                    raise RefusedError(what, code="TG-RESET-RUNNING", where=name, fix=fix)
        claim(self._job.folder)

    def doomed(self) -> list[Doomed]:
        """Return everything that is there and will be deleted."""
        return [*self._folders(), *self._topics(), *self._stored_rows(), *self._files(), *self._hashes()]

    def kept_rows(self) -> list[str]:
        """Return the stores whose rows stay, although their topic goes."""
        return [] if self._rows else [f"outputs.{output.name}.{kind}" for output in self._job.outputs for kind in output.stores]

    def execute(self) -> None:
        """Delete it all."""
        folder, mark = self._job.folder, self._job.folder / UNFINISHED_RESET
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        claim(folder)
        write_mark(self._job, rows=self._rows)
        _sync(folder)
        pause_at("reset marked")
        for entry in sorted(folder.iterdir()):
            if entry != mark:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        pause_at("checkpoint deleted")
        self._admin.delete([topic.place for topic in self._topics()])
        pause_at("topics deleted")
        for output, kind in self._stores() if self._rows else ():
            with closing(self._store(output, kind)) as store:
                assert isinstance(store, ClearableStore), "it was checked"
                store.clear()
        pause_at("rows deleted")
        for place, names in self._result_files():
            for name in names:
                place.delete(name)
        pause_at("files deleted")
        keys = self._keys()
        if keys:
            with translate_errors(self._settings.redis.address):
                self._redis.delete(*keys)
        with ProgressStore(self._settings.redis) as store:
            for output in self._job.outputs:
                store.forget_sinks(output.name, output.topic)
        mark.unlink()
        folder.rmdir()
        release(folder)

    def _folders(self) -> Iterator[Doomed]:
        folder = self._job.folder
        if folder.exists():
            unfinished = (folder / UNFINISHED_RESET).exists()
            yield Doomed("checkpoint", str(folder), "an earlier reset is unfinished" if unfinished else _describe_size(_size_of(folder)))

    def _topics(self) -> Iterator[Doomed]:
        for name in self._job.topics:
            topic = self._admin.find(name)
            if topic is not None:
                starts, ends = self._admin.starts(topic.all_partitions), self._admin.ends(topic.all_partitions, committed=False)
                records = sum(ends[place] - starts[place] for place in ends)
                yield Doomed("topic", name, f"{records:,} records in {topic.partitions} partitions")

    def _stores(self) -> Iterator[tuple[OutputSettings, str]]:
        return ((output, kind) for output in self._job.outputs for kind in output.stores)

    def _store(self, output: OutputSettings, kind: str) -> Store:
        columns = tuple(output.columns.items())
        context = StoreContext(output.name, Stream(output.topic or output.name, "", 0), columns, self._settings.redis)
        return make_store(kind, output.stores[kind], context)

    def _check_clearable(self) -> None:
        for output, kind in self._stores():
            with closing(self._store(output, kind)) as store:
                if not isinstance(store, ClearableStore):
                    raise SettingError(
                        f"the rows of {store.name} cannot be deleted from here",
                        code="TG-RESET-ROWS",
                        where=f"outputs.{output.name}.{kind}",
                        fix=f"reset without --rows; then delete the table by the means of {kind}, or name another one",
                    )

    def _stored_rows(self) -> Iterator[Doomed]:
        for output, kind in self._stores() if self._rows else ():
            with closing(self._store(output, kind)) as store:
                assert isinstance(store, ClearableStore), "it was checked"
                rows = store.count_clearable()
                if rows is not None:
                    yield Doomed("rows", store.name, f"all {rows:,} rows, and the progress of {output.topic}")

    def _result_files(self) -> Iterator[tuple[FilePlace, Sequence[str]]]:
        for output in self._job.outputs:
            if output.files is not None:
                place = open_place(output.files)
                yield place, sorted(name for name in place.names() if _RESULT_FILE.fullmatch(name))

    def _files(self) -> Iterator[Doomed]:
        for place, names in self._result_files():
            if names:
                yield Doomed("files", place.where("").rstrip("/"), f"{len(names):,} files of results")

    def _keys(self) -> list[str]:
        with translate_errors(self._settings.redis.address):
            found = [key for pattern in self._job.redis_patterns for key in self._redis.scan_iter(match=_literal(pattern), count=1_000)]
        return sorted(map(str, found))

    def _hashes(self) -> Iterator[Doomed]:
        yield from (Doomed("redis", key, _KEYS.get(key.split(":")[-1], "about the topic")) for key in self._keys())
        with ProgressStore(self._settings.redis) as store:
            for output in self._job.outputs:
                if store.forget_sinks(output.name, output.topic, only_count=True):
                    yield Doomed("redis", progress_key(sink_key(output.name)), "what its sinks have published")


def _literal(pattern: str) -> str:
    """Return a pattern of SCAN in which only a star at its end is one."""
    body, star = (pattern[:-1], "*") if pattern.endswith("*") else (pattern, "")
    return re.sub(r"([\[\]?*\\^])", r"\\\1", body) + star


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _size_of(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def _describe_size(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB" if size_bytes >= 100_000 else f"{size_bytes:,} bytes"


def _age(age_ms: int) -> str:
    return f"{max(age_ms, 0) / 1000:.0f} s"
