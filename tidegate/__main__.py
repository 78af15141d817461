"""``python -m tidegate`` is the command ``tidegate``."""

from tidegate.basics.safe_path import leave_working_folder

# Before all other imports, which could find a file of the working folder.
if __name__ == "__main__":
    leave_working_folder()

from tidegate.basics.early_stop import end_on_signal


def main() -> None:
    """Run the program with the arguments of this process."""
    # Before the imports that take most of a start.
    end_on_signal()
    from tidegate.tools.commands.main import main as run_program

    run_program()


if __name__ == "__main__":
    main()
