"""``python -m tidegate`` is the command ``tidegate``."""

from tidegate.basics.safe_path import leave_working_folder

# Before all other imports, which could find a file of the working folder.
if __name__ == "__main__":
    leave_working_folder()

import sys

from tidegate.basics.early_stop import JOBS, end_on_signal


def main() -> None:
    """Run the program with the arguments of this process."""
    # Before the other imports, which take most of a start.
    if sys.argv[1:2] and sys.argv[1] in JOBS:
        end_on_signal()
    from tidegate.tools.commands.main import main as run_program

    run_program()


if __name__ == "__main__":
    main()
