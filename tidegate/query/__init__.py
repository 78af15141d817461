"""
What programs import of ``query``, under a name that is ours alone: :mod:`tidegate.query.api` puts queries together by functions,
:mod:`tidegate.query.extending` is for packages that extend the language. Both hold the same objects as the modules they are named after.

A module ``query.py`` of the program that imports this hides ours: it is named, with the fix.
"""

from tidegate.basics.own_packages import require_own

require_own("ordering", "query")
