"""``python -m tidegate`` is the command ``tidegate``."""

from tidegate.basics.early_stop import end_on_signal
from tidegate.basics.safe_path import leave_working_folder


def main() -> None:
    """Run the program with the arguments of this process."""
    # Before the other imports, which take most of a start.
    end_on_signal()
    from tidegate.tools.commands.main import main as run_program

    run_program()


if __name__ == "__main__":
    # Before all other imports, which could find a file of the working folder.
    leave_working_folder()
    main()
