"""
The jars of Apache Kafka, resolved once per user and checked every time.

``kafka_jars.sha256`` beside this file names each jar and its SHA-256. A folder of jars is used only if it has exactly these files
with exactly these bytes, so their source need not be trusted. They are fetched by the Ivy that PySpark contains, through Ivy's own
default resolver; if two processes resolve at once, only one fetches.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ordering.errors import TidegateError

JAVA_MIN = 17
KAFKA_VERSION = "4.3.1"
_RESOLVE_TIMEOUT_S = 300


class StackError(TidegateError):
    """The embedded Kafka and Valkey cannot be started, reached or stopped."""

    exit_code = 4
    default_code = "TG-STACK"


@dataclass(frozen=True)
class Pin:
    """One jar and the SHA-256 of its bytes."""

    group: str
    artifact: str
    version: str
    sha256: str
    classifier: str = ""  # tells the jars of one artifact and version apart

    @property
    def file_name(self) -> str:
        return f"{'-'.join(filter(None, [self.artifact, self.version, self.classifier]))}.jar"


def kafka_pins() -> list[Pin]:
    """Return the jars of the embedded Kafka."""
    return read_pins(Path(__file__).with_name("kafka_jars.sha256"))


def read_pins(file: Path) -> list[Pin]:
    """Return the pins that *file* has, one a line: ``SHA-256 GROUP:ARTIFACT:VERSION`` or ``...:VERSION:CLASSIFIER``."""
    return [_pin(line) for line in file.read_text().splitlines() if line and not line.startswith("#")]


def _pin(line: str) -> Pin:
    sha256, coordinates = line.split()
    group, artifact, version, *classifier = coordinates.split(":")
    return Pin(group, artifact, version, sha256, *classifier)


def cache_folder() -> Path:
    """Return the user's cache folder: ``$XDG_CACHE_HOME/tidegate``, else ``~/.cache/tidegate``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidegate"


def kafka_jars(folder: Path | None = None) -> Path:
    """Return a folder with every jar of Kafka; see :func:`resolve`. By default it is in :func:`cache_folder`."""
    return resolve(kafka_pins(), folder or cache_folder() / f"kafka-{KAFKA_VERSION}")


def resolve(pins: Sequence[Pin], folder: Path) -> Path:
    """
    Return *folder* once it holds exactly the jars of *pins*, fetching them if it does not exist.

    Raises:
        StackError: ``TG-STACK-CHECKSUM``: a jar has other bytes than its pin states, fetched or already there;
            ``TG-STACK-RESOLVE``: it cannot be fetched; ``TG-STACK-JAVA``: there is no Java to run Ivy with.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(folder.with_name(folder.name + ".lock")):
        if not folder.is_dir():
            # The folder gets its name only after the check: an existing folder was once complete and right.
            with tempfile.TemporaryDirectory(prefix=".resolving-", dir=folder.parent) as scratch:
                fetched = _fetch(pins, Path(scratch))
                verify(pins, fetched)
                fetched.rename(folder)
        else:
            verify(pins, folder)
    return folder


def verify(pins: Sequence[Pin], folder: Path) -> None:
    """Check that *folder* has exactly the jars of *pins*, byte for byte. Raises StackError (``TG-STACK-CHECKSUM``), with both checksums."""
    expected = {pin.file_name: pin.sha256 for pin in pins}
    actual = {path.name: _sha256(path) for path in folder.glob("*.jar")}
    for name in sorted(expected.keys() | actual.keys()):
        wanted, given = (checksums.get(name, "(no such file)") for checksums in (expected, actual))
        if wanted != given:
            what = f"{name} is not the file this version of Tidegate was made with: expected sha256 {wanted}, found {given}"
            fix = "delete the folder and run the command again; if the error comes back, find out what is between you and the repository"
            raise StackError(what, code="TG-STACK-CHECKSUM", where=str(folder / name), fix=fix)


def find_java() -> Path:
    """
    Return a ``java`` that can run Kafka and Spark: that of ``JAVA_HOME``, else the first on the ``PATH``.
    Raises StackError (``TG-STACK-JAVA``) if there is none, or it is older than :data:`JAVA_MIN`.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    where = "JAVA_HOME" if home else "PATH"
    if not java or not Path(java).is_file():
        raise _java_error(f"no Java was found{f' at {java}' if java else ''}", where)
    # Java writes its version to standard error; Java 8 and older begin it with "1.".
    banner = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(?:1\.)?(\d+)', banner.stderr + banner.stdout)
    if not version:
        raise _java_error(f"{java} -version does not say its version: {(banner.stderr or banner.stdout).strip()[:200]}", where)
    if int(version[1]) < JAVA_MIN:
        raise _java_error(f"{java} is Java {version[1]}, which is too old", where)
    return Path(java)


def _java_error(what: str, where: str) -> StackError:
    fix = f"install a Java runtime, version {JAVA_MIN} or newer, and put it on the PATH or set JAVA_HOME"
    return StackError(what, code="TG-STACK-JAVA", where=where, fix=fix, example="apt-get install openjdk-17-jre-headless")


@contextlib.contextmanager
def hold_lock(lock_file: Path) -> Iterator[None]:
    """Hold *lock_file* against other processes."""
    with lock_file.open("a") as handle:
        # The system ends the lock with the process, even after kill -9.
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _fetch(pins: Sequence[Pin], scratch: Path) -> Path:
    settings, modules, jars = scratch / "ivysettings.xml", scratch / "ivy.xml", scratch / "jars"
    settings.write_text(_ivy_settings(scratch / "cache"))
    modules.write_text(_ivy_modules(pins))
    pattern = f"{jars}/[artifact].[ext]"
    command = [str(find_java()), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-jar", str(_ivy_jar())]
    command += ["-settings", str(settings), "-ivy", str(modules), "-confs", "default", "-retrieve", pattern]
    # One retry: a repository's mirror may fail once.
    for last_try in (False, True):
        try:
            outcome = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_RESOLVE_TIMEOUT_S)
            output, failed = outcome.stdout + outcome.stderr, outcome.returncode != 0
        except subprocess.TimeoutExpired:
            output, failed = f"no answer within {_RESOLVE_TIMEOUT_S} s", True
        if not failed:
            return jars
        if last_try:
            what = "the jars of Apache Kafka could not be fetched: " + _ivy_error(output)
            fix = "check the network and the proxy settings of Java, or name a Maven repository you can reach"
            example = "TIDEGATE_MAVEN_REPOSITORY=<address of your mirror> tidegate up"
            raise StackError(what, code="TG-STACK-RESOLVE", fix=fix, example=example)
    raise AssertionError("unreachable: the last try returns or raises")


def _ivy_settings(cache: Path) -> str:
    # `status` never comes here, and the module takes long to load.
    from xml.sax.saxutils import quoteattr

    # Without POMs and Ivy's own checksums it is four times as fast; the pins already fix every version and checksum.
    mirror = os.environ.get("TIDEGATE_MAVEN_REPOSITORY")
    root = f" root={quoteattr(mirror)}" if mirror else ""
    pattern = "[organisation]/[module]/[revision]/[artifact].[ext]"
    return (
        '<ivysettings><settings defaultResolver="public"/><property name="ivy.checksums" value=""/>'
        f"<caches defaultCacheDir={quoteattr(str(cache))}/>"
        f'<resolvers><ibiblio name="public" m2compatible="true" usepoms="false" pattern="{pattern}"{root}/></resolvers></ivysettings>'
    )


def _ivy_modules(pins: Sequence[Pin]) -> str:
    # One dependency for all jars of a version, each by the name of its file: Ivy has no classifiers of its own.
    modules: dict[tuple[str, str, str], str] = {}
    for pin in pins:
        key = (pin.group, pin.artifact, pin.version)
        modules[key] = modules.get(key, "") + f'<artifact name="{pin.file_name.removesuffix(".jar")}" type="jar"/>'
    dependencies = "".join(
        f'<dependency org="{group}" name="{name}" rev="{version}" transitive="false" conf="default->default">{artifacts}</dependency>'
        for (group, name, version), artifacts in modules.items()
    )
    return (
        '<ivy-module version="2.0"><info organisation="tidegate" module="kafka"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{dependencies}</dependencies></ivy-module>'
    )


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    folders = (spec.submodule_search_locations or []) if spec else []
    jars = [jar for folder in folders for jar in Path(folder, "jars").glob("ivy-*.jar")]
    if not jars:
        what = "the Ivy jar that PySpark carries was not found"
        raise StackError(what, code="TG-STACK-RESOLVE", where=", ".join(folders), fix="install pyspark as this project's lock file says")
    return jars[0]


def _ivy_error(output: str) -> str:
    error_lines = [line.strip() for line in output.splitlines() if re.search(r"error|unresolved|not found|no answer", line, re.IGNORECASE)]
    return "; ".join(error_lines[:3]) or output.strip()[-300:]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    # For container images: the jars go into the given folder, so that a container needs no network at its start.
    sys.stdout.write(f"{kafka_jars(*(Path(argument).resolve() for argument in sys.argv[1:]))}\n")
