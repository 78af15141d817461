"""
Keeps the working folder out of Python's import path, in this process and in all that it starts.

``python -m`` searches the working folder first, and so do Spark's workers, data sources and daemons: a file ``random.py`` beside a script
would run in them, with the rights and the secrets of the job.

Law: no Python process that Tidegate or its JVM starts imports a module from the folder in which it was started. Only an entry of
``PYTHONPATH``, which the user has written, names that folder.

No module is imported here that is not loaded when Python starts: an import could already find a file of the working folder.
"""

import os
import sys

# With any text as its value, Python does not put the working folder, or that of the script, before all others.
SAFE_PATH = {"PYTHONSAFEPATH": "1"}


def leave_working_folder() -> None:
    """Remove the working folder where ``python -m`` has put it, unless Tidegate lies there: a source tree need not be installed."""
    if sys.flags.safe_path:  # Python has not put it there: a first entry of that name is of PYTHONPATH
        return
    working_folder = os.getcwd()  # noqa: PTH109  (pathlib would have to be imported)
    if sys.path[:1] == [working_folder] and not __file__.startswith(os.path.join(working_folder, "tidegate", "")):  # noqa: PTH118
        del sys.path[0]


def protect_processes() -> None:
    """Have the processes that this one starts import nothing from their working folder."""
    os.environ.update(SAFE_PATH)
    # An empty entry, as `PYTHONPATH=$PYTHONPATH:/lib` makes it, would mean the working folder.
    if "PYTHONPATH" in os.environ:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, os.environ["PYTHONPATH"].split(os.pathsep)))
