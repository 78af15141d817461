"""``python -m tidegate``: the same as the ``tidegate`` program."""

from tidegate.cli.main import main

main()
