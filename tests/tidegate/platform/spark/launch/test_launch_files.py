"""The JVM gets its settings from files: none is on a command line, and each arrives as it was written."""

from __future__ import annotations

import subprocess
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tidegate.platform.spark.launch.launch_files import launch_files

ODD = "a=b:c #d!e\\f\"g' \t\n\r\fh é\N{SNOWMAN}"
"""What the formats of both files use for themselves."""
SHOW = """
import java.util.*; import java.io.*; import java.nio.file.*;
public class Show {
    public static void main(String[] given) throws Exception {
        Properties read = new Properties();
        try (Reader file = Files.newBufferedReader(Path.of(given[0]))) { read.load(file); }
        for (String name : new TreeSet<>(read.stringPropertyNames())) { show(name); show(read.getProperty(name)); }
        show(System.getProperty("one")); show(System.getProperty("two"));
    }
    static void show(String text) { System.out.println(HexFormat.of().formatHex(text.getBytes(java.nio.charset.StandardCharsets.UTF_8))); }
}
"""


def test_java_reads_what_was_written(tmp_path: Path) -> None:
    """Settings with every character that a format has a meaning for, and options with quotes."""
    quoted = ODD.replace("\\", "\\\\").replace('"', '\\"')
    conf = {
        "spark.odd": ODD,
        f"spark.{ODD}": " before",
        "spark.empty": "",
        "spark.driver.defaultJavaOptions": "-Done=first",
        "spark.driver.extraJavaOptions": f"-Done='of two words' \"-Dtwo={quoted}\"",
    }
    program = tmp_path / "Show.java"
    program.write_text(SHOW)
    with launch_files(tmp_path, conf) as properties:
        arguments = tmp_path / "java.options"
        shown = subprocess.run(
            ["java", f"@{arguments}", "-Dfile.encoding=UTF-8", str(program), str(properties)], capture_output=True, text=True, check=True
        )
    texts = [bytes.fromhex(line).decode() for line in shown.stdout.splitlines()]
    *pairs, one, two = texts
    read = dict(zip(pairs[::2], pairs[1::2], strict=True))
    assert read == {
        "spark.odd": ODD,
        f"spark.{ODD}": " before",
        "spark.empty": "",
        "spark.driver.extraJavaOptions": f"@{arguments}",
    }
    assert one == "of two words"
    assert two == ODD
    assert {path.name for path in tmp_path.iterdir()} == {"Show.java"}, "the files go once the JVM has started"


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_a_setting_is_one_line(conf: dict[str, str]) -> None:
    """Whatever it holds, it cannot end its line and begin another setting."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder, launch_files(Path(folder), conf) as properties:
        lines = properties.read_text("utf-8").split("\n")
    assert len(lines) == len(conf.keys() | {"spark.driver.extraJavaOptions"}) + 1
