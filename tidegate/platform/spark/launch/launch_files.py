"""
The JVM's settings, in files that only the job's user can read.

Law: no setting of a job is on a command line, because every user of the machine can read command lines.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

# Spark puts the values of these on the JVM's command line.
_JAVA_OPTIONS = ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions")
_CONTROL_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
_PROPERTY_ESCAPES = _CONTROL_ESCAPES | {sign: f"\\{sign}" for sign in "\\ =:#!"}
_ARGUMENT_ESCAPES = _CONTROL_ESCAPES | {sign: f"\\{sign}" for sign in '\\"'}


@contextmanager
def launch_files(folder: Path, conf: Mapping[str, str]) -> Iterator[Path]:
    """Write Spark's settings *conf* into the private *folder* while the JVM starts; yield the file for ``--properties-file``."""
    options = [option for key in _JAVA_OPTIONS for option in shlex.split(conf.get(key, ""))]
    arguments = folder / "java.options"
    arguments.write_text("".join(f'"{_escape(option, _ARGUMENT_ESCAPES)}"\n' for option in options), "utf-8")
    # "@FILE" makes the program java read further options from that file.
    shown = {key: value for key, value in conf.items() if key not in _JAVA_OPTIONS} | {_JAVA_OPTIONS[-1]: f"@{arguments}"}
    properties = folder / "spark.properties"
    lines = (f"{_escape(key, _PROPERTY_ESCAPES)}={_escape(value, _PROPERTY_ESCAPES)}\n" for key, value in shown.items())
    properties.write_text("".join(lines), "utf-8")
    try:
        yield properties
    finally:
        for file in (arguments, properties):
            file.unlink(missing_ok=True)


def _escape(text: str, escapes: Mapping[str, str]) -> str:
    return re.sub(f"[{re.escape(''.join(escapes))}]", lambda match: escapes[match[0]], text)
