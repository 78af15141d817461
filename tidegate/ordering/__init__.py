"""
``ordering``, the time model, under a name that is ours alone: the same public names, each imported when it is first asked for.

A module ``ordering.py`` of the program that imports this hides ours: it is named, with the fix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.basics.own_packages import require_own

require_own("ordering")

if TYPE_CHECKING:
    from ordering import *  # noqa: F403 - its __all__ says which
else:
    import ordering

    __all__ = list(ordering.__all__)

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'tidegate.ordering' has no attribute {name!r}")
        return getattr(ordering, name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
