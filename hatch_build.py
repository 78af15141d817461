"""
Compiles the native parts when the project is built or installed: Kafka by whole columns, fields of JSON, rows into JSON,
the layout of Avro payloads. Puts the flights demo into the wheel, for ``tidegate demo``.

Law: a build never fails because of them. Without a C compiler the wheel is pure Python: everything works, only slower.
Without the example the wheel has no demo, which the command says.
``python hatch_build.py`` and an editable install compile them in place.
"""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface as Hook
except ImportError:  # compiled in place, where no build backend is needed
    Hook = object  # type: ignore[assignment,misc]

ROOT = Path(__file__).resolve().parent
# Each source with what becomes of it.
PARTS = {
    Path("tidegate/platform/kafka/native.c"): Path("tidegate/platform/kafka/_native.so"),
    Path("tidegate/language/json_columns/json_fields.c"): Path("tidegate/language/json_columns/_json_fields.so"),
    Path("tidegate/language/json_columns/json_rows.c"): Path("tidegate/language/json_columns/_json_rows.so"),
    Path("tidegate/records/payloads/avro_layout.c"): Path("tidegate/records/payloads/_avro_layout.so"),
}
# The flights demo in a wheel: the example as it is, and the oracle that checks its results.
DEMO = Path("tidegate/flights_demo")
EXAMPLE, ORACLE = Path("examples/flights"), (Path("tests/support/oracle.py"), Path("tests/support/story.py"))
DEMO_ENDINGS = (".py", ".sql", ".toml", ".parquet", ".md")
# Of the package only this module is used, by its file: it imports the standard library alone.
NATIVE_PARTS = runpy.run_path(str(ROOT / "tidegate" / "basics" / "native_parts.py"))
FLAGS = ["-O2", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-fPIC", "-shared"]


def compile_part(source: Path, target: Path) -> bool:
    """Compile *source* to *target*; return whether that succeeded."""
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if compiler is None:
        print(f"no C compiler for {source}: everything works, but slower", file=sys.stderr)
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    # A running job keeps the file that it has mapped: the new one replaces the name, never the contents.
    fresh = target.with_name(f"{target.name}.{os.getpid()}")
    digest = NATIVE_PARTS["digest_of_sources"]((ROOT / source).parent)
    names_sources = f'extern const char {NATIVE_PARTS["SOURCES_SYMBOL"]}[]; const char {NATIVE_PARTS["SOURCES_SYMBOL"]}[] = "{digest}";'
    command = [*compiler.split(), *FLAGS, str(ROOT / source), "-x", "c", "-", "-o", str(fresh), "-ldl", "-lm"]
    try:
        subprocess.run(command, input=names_sources, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"{source} was not compiled: everything works, but slower ({error})", file=sys.stderr)
        return False
    fresh.replace(target)
    return True


def demo_files() -> dict[Path, Path]:
    """Return the files of the flights demo that are there, with their places in a wheel."""
    example = [path.relative_to(ROOT) for path in sorted((ROOT / EXAMPLE).glob("*")) if path.suffix in DEMO_ENDINGS]
    found = {path: DEMO / path.name for path in example}
    return found | {path: DEMO / "support" / path.name for path in ORACLE if (ROOT / path).exists()}


class CustomBuildHook(Hook):  # type: ignore[type-arg]
    """Puts the compiled parts and the demo into a wheel; for an editable install the parts lie beside their sources."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tag the wheel with the machines it is for."""
        if self.target_name != "wheel":
            return
        editable = version == "editable"
        if not editable:
            build_data["force_include"].update({str(ROOT / source): str(place) for source, place in demo_files().items()})
        for source, place in PARTS.items():
            target = ROOT / place if editable else Path(self.directory) / "native" / place.name
            if not compile_part(source, target) or editable:
                continue
            build_data["force_include"][str(target)] = str(place)
            # Called through ctypes, the parts know nothing of Python: one wheel serves every version.
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Leave nothing beside the wheel."""
        shutil.rmtree(Path(self.directory) / "native", ignore_errors=True)


if __name__ == "__main__":
    done = [compile_part(source, ROOT / place) for source, place in PARTS.items()]
    sys.exit(0 if all(done) else 1)
