"""
What packages import of ``sinks``, under a name that is ours alone: :mod:`tidegate.sinks.extending` to bring a store,
:mod:`tidegate.sinks.base` and :mod:`tidegate.sinks.registry` to bring a sink. They hold the same objects as the modules they are named
after.

A module ``sinks.py`` of the program that imports this hides ours: it is named, with the fix.
"""

from tidegate.basics.own_packages import require_own

require_own("ordering", "sinks")
