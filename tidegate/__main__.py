"""``python -m tidegate`` is the command ``tidegate``."""

from tidegate.basics.safe_path import leave_working_folder

# Before all other imports, which could find a file of the working folder.
if __name__ == "__main__":
    leave_working_folder()

from tidegate.tools.commands.main import main

if __name__ == "__main__":
    main()
