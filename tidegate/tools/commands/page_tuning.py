"""
The answers of *Tune*: ``tidegate tune INPUT --ask`` in a process that has read the records once, and is asked again as sliders move.

Law: an answer is that of the command which it names as ``command``. A process that nobody has asked for five minutes is ended, and so are
all but the two that were asked last: what they hold of a topic is no memory of the server's.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ordering.errors import RefusedError, SettingError

if TYPE_CHECKING:
    from tidegate.platform.settings.load import Settings

# A process that has not been asked for so long is ended; so many are kept.
_UNASKED_S, _PROCESSES_MAX = 300.0, 2
_ANSWER_S = 120.0
_RECORDS_DEFAULT = "300000"
_NO_WINDOW = "1m"
_SHARE = re.compile(r"\d{1,3}(\.\d{1,6})?")
_NUMBER = re.compile(r"[1-9]\d{0,7}")


@dataclass
class _Asked:
    """A process that answers questions about one recording; *windows* are those of the queries that read the input."""

    process: subprocess.Popen[str]
    windows: list[str]
    again: str
    asked_s: float = field(default_factory=time.monotonic)

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer. RefusedError: the process has ended, or does not answer."""
        self.asked_s = time.monotonic()
        # A process that reads for ever is ended by the clock, which ends the wait for its line.
        late = threading.Timer(_ANSWER_S, self.process.kill)
        late.daemon = True
        late.start()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
            # Whatever else a library may print, an answer is an object.
            while (line := self.process.stdout.readline()) and not line.startswith("{"):
                pass
        except OSError:
            line = ""
        finally:
            late.cancel()
        self.asked_s = time.monotonic()
        if not line:
            raise self._why_ended()
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            told = answer["error"]
            raise SettingError(
                told["what"], code=told["code"], where=told.get("where", ""), fix=told.get("fix", ""), example=told.get("example", "")
            )
        return answer

    def _why_ended(self) -> RefusedError:
        self.end()
        assert self.process.stderr is not None
        lines = self.process.stderr.read().splitlines()
        errors = [json.loads(each)["error"] for each in lines if each.startswith('{"error": ')]
        error = errors[-1] if errors else {}
        what = error.get("what") or (lines[-1][-500:] if lines else f"tidegate tune has not answered within {_ANSWER_S:.0f} s")
        fix = error.get("fix") or "choose fewer records, or run it in a terminal"
        return RefusedError(what, code=error.get("code") or "TG-UI-COMMAND", where=error.get("where") or "tune", fix=fix)

    def end(self) -> None:
        """End the process, if it runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Tunings:
    """Answers of *Tune*; *flags* lead commands to the same settings, *folder* is that of the configuration."""

    def __init__(self, settings: Settings, folder: Path, flags: Sequence[str]) -> None:
        self._settings, self._folder, self._flags = settings, folder, flags
        self._lock = threading.Lock()
        # Those that were asked last stand last.
        self._processes: dict[tuple[str, str, str], _Asked] = {}
        self._clock: threading.Thread | None = None

    def __call__(self, asked: Mapping[str, str]) -> dict[str, Any]:
        """Return what policies would have done to an input's newest records."""
        from ingest.tuning.questions import ACTIONS, TOLERANCES, policies_with
        from ordering.tuning.results import WindowShape

        name = asked.get("name", "")
        own = self._settings.input(name).policies()
        limit, since = asked.get("limit") or _RECORDS_DEFAULT, asked.get("from", "")
        touch = asked.get("touch") or "0.1"
        for text, pattern, where, fix in ((touch, _SHARE, "touch", "write percent: 0.1"), (limit, _NUMBER, "limit", "write a number")):
            if not pattern.fullmatch(text):
                raise SettingError(f"{text} is none", code="TG-SETTING-VALUE", where=where, fix=fix)
        policies = {each: asked[each] for each in (*TOLERANCES, *ACTIONS) if asked.get(each)}
        windows = asked.get("window", "").replace(",", " ").split()
        # What cannot be meant is refused before a process is started for it.
        policies_with(own, policies)
        for each in windows:
            WindowShape.parse(each)
        with self._lock:
            found = self._find(name, limit, since, asked.get("again", ""))
            windows = windows or found.windows
            answer = found.ask({**policies, "touch": float(touch), "window": windows})
        flags = [f"--{each.replace('_', '-')}={text}" for each, text in policies.items()]
        flags += [f"--window={each}" for each in windows] + [f"--touch={touch}", f"--limit={limit}"] + [f"--from={since}"] * bool(since)
        return answer | {"command": shlex.join(["tidegate", "tune", name, *flags, *self._flags])}

    def _find(self, name: str, limit: str, since: str, again: str) -> _Asked:
        """Return the process of a recording; start it if there is none, or if it is to be read *again*."""
        key = name, limit, since
        found = self._processes.pop(key, None)
        if found is not None and (found.process.poll() is not None or (again and again != found.again)):
            found.end()
            found = None
        if found is None:
            flags = [f"--limit={limit}", *([f"--from={since}"] if since else []), *self._flags]
            line = [sys.executable, "-P", "-m", "tidegate", "tune", "--format", "json", "--ask", *flags, "--", name]
            process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            found = _Asked(process, list(self._find_windows(name)) or [_NO_WINDOW], again)
        self._processes[key] = found
        for oldest in list(self._processes)[:-_PROCESSES_MAX]:
            self._processes.pop(oldest).end()
        if self._clock is None or not self._clock.is_alive():
            self._clock = threading.Thread(target=self._end_unasked, name="tunings", daemon=True)
            self._clock.start()
        return found

    def _end_unasked(self) -> None:
        """End what nobody asks any more, until nothing is left."""
        while True:
            time.sleep(_UNASKED_S / 10)
            with self._lock:
                for key, each in list(self._processes.items()):
                    if time.monotonic() - each.asked_s > _UNASKED_S:
                        self._processes.pop(key).end()
                if not self._processes:
                    self._clock = None
                    return

    def _find_windows(self, name: str) -> Iterator[str]:
        """Yield the tumbling and hopping windows of the queries that read an input, each once."""
        from ordering.tuning.results import WindowShape
        from query.output_plan import find_plan, windows_inside
        from tidegate.platform.kafka.admin import Admin

        admin, known = Admin.connect(self._settings.kafka), set[str]()
        for output_name, output in self._settings.outputs.items():
            plan = find_plan(self._settings, output, self._folder, partial(admin.find, output.topic or output_name))
            for window in () if plan is None or name not in plan.inputs else windows_inside(plan):
                text = str(WindowShape(window.size_us, window.hop_us, window.offset_us)) if window.size_us > 1 else ""
                if text and text not in known:
                    known.add(text)
                    yield text
