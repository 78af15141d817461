"""
The platform under both jobs, from settings to Spark; and above the jobs the tools (commands, compare, verify).

For programs and notebooks: ``tidegate.read("rides")`` gives published results as Arrow or pandas (:mod:`sinks.results.read`).
"""

from importlib import import_module

__all__ = ["Results", "read"]


def __getattr__(name: str) -> object:
    """Import a public name from its module when it is first asked for: ``import tidegate`` alone loads nothing."""
    if name not in __all__:
        raise AttributeError(f"module 'tidegate' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module("sinks.results.read"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
