"""
Sets the permissions of Spark's local checkpoint files without starting a program for each.

Hadoop runs the program ``chmod`` for every file and folder that it makes, and twice for a file with a checksum: a dozen processes for each
batch of a job. The Java class below makes the system call instead; everything else stays as in Hadoop.
"""

from __future__ import annotations

from contextlib import suppress

from pyspark.sql import SparkSession

from tidegate.platform.spark.privates import register_local_files

_CLASS = "TidegateLocalFiles"
_SOURCE = f"""
public class {_CLASS} extends org.apache.hadoop.fs.LocalFileSystem {{
  public {_CLASS}() {{
    super(new Raw());
  }}

  public static class Raw extends org.apache.hadoop.fs.RawLocalFileSystem {{
    public void setPermission(org.apache.hadoop.fs.Path path, org.apache.hadoop.fs.permission.FsPermission permission)
        throws java.io.IOException {{
      if (permission.getStickyBit()) {{
        super.setPermission(path, permission);
      }} else {{
        java.nio.file.Files.setPosixFilePermissions(
            pathToFile(path).toPath(), java.nio.file.attribute.PosixFilePermissions.fromString(permission.toString()));
      }}
    }}
  }}
}}
"""


def set_permissions_in_process(session: SparkSession) -> None:
    """
    Have this JVM set the permissions of local files itself. Only a local master gains from it, as other executors have JVMs of their own. A
    stream that has already begun keeps Hadoop's way, which is only slower.
    """
    with suppress(Exception):
        register_local_files(session, _CLASS, _SOURCE)
