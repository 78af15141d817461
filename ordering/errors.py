"""
The exception tree of the whole project. A *bad event* is a result, never an exception; exceptions are for wrong
settings and for broken input and output.

::

    TidegateError
    |-- SettingError          a setting, flag or environment variable is wrong           (exit code 2)
    |-- QueryError            a script is wrong: file, line, column                      (exit code 2)
    |-- RefusedError          the requested action would break a promise already given   (exit code 3)
    |-- UnreachableError      Kafka, Redis or another service does not answer            (exit code 4)
    |-- ProtocolError         bytes on an ordered topic break PROTOCOL.md                (exit code 5)
    |   `-- GapError          a sequence gap was never closed                            (exit code 5)
    |-- BatchError            a batch passed to the model is malformed: a bug of the calling program (exit code 1)
    `-- TickRangeError        a time lies outside the range of the model                 (exit code 2)

Every error has a stable ``code`` (``TG-...``), gives the problem, its place and a fix, and may show an example.
"""

from __future__ import annotations


class TidegateError(Exception):
    """
    Root of every error raised on purpose by Tidegate.

    Args:
        what: One sentence: the problem.
        code: Stable identifier, never reused for another meaning, e.g. ``TG-SETTING-UNKNOWN``.
        where: File, line and column, or ``topic-partition@offset``, or the setting's full name; may be empty.
        fix: How to solve the problem; may be empty.
        example: A correct line; may be empty.
    """

    exit_code = 1
    default_code = "TG-ERROR"

    def __init__(self, what: str, *, code: str = "", where: str = "", fix: str = "", example: str = "") -> None:
        self.what, self.where, self.fix, self.example = what, where, fix, example
        self.code = code or self.default_code
        super().__init__(str(self))

    def __str__(self) -> str:
        lines = [f"{self.code}: {self.what}"]
        lines += [f"  {label}: {text}" for label, text in self._labelled_texts() if text]
        return "\n".join(lines)

    def _labelled_texts(self) -> tuple[tuple[str, str], ...]:
        return ("where", self.where), ("fix", self.fix), ("example", self.example)

    def as_dict(self) -> dict[str, str]:
        """Return the non-empty fields for ``--format json``."""
        fields = {"code": self.code, "what": self.what, **dict(self._labelled_texts())}
        return {name: text for name, text in fields.items() if text}

    def __reduce__(self) -> tuple[object, ...]:
        # Spark workers send exceptions to the driver pickled, which by default cannot restore keyword-only arguments.
        return _rebuild, (type(self), self.what, self.code, self.where, self.fix, self.example)


def _rebuild(cls: type[TidegateError], what: str, code: str, where: str, fix: str, example: str) -> TidegateError:
    return cls(what, code=code, where=where, fix=fix, example=example)


class SettingError(TidegateError):
    """A setting is unknown, has a wrong value, or contradicts another."""

    exit_code = 2
    default_code = "TG-SETTING"


class QueryError(TidegateError):
    """A query script is wrong; ``where`` is ``file:line:column``."""

    exit_code = 2
    default_code = "TG-QUERY"


class BatchError(TidegateError):
    """A batch passed to ``Model.step`` is malformed, or does not start at the position of the state."""

    default_code = "TG-BATCH"


class TickRangeError(TidegateError):
    """A time or duration lies outside the range of the model (see :mod:`ordering.ticks`)."""

    exit_code = 2
    default_code = "TG-TICK-RANGE"


class RefusedError(TidegateError):
    """The requested action would break a promise already given, so nothing was started."""

    exit_code = 3
    default_code = "TG-REFUSED"


class UnreachableError(TidegateError):
    """A service does not answer."""

    exit_code = 4
    default_code = "TG-UNREACHABLE"


class ProtocolError(TidegateError):
    """Bytes on an ordered topic do not follow PROTOCOL.md."""

    exit_code = 5
    default_code = "TG-PROTOCOL"


class GapError(ProtocolError):
    """A CTI promises sequence numbers that never arrived (PROTOCOL.md, "What a reader must do")."""

    default_code = "TG-PROTOCOL-GAP"


def check_saved_version(name: str, saved: int, known: int) -> None:
    """Raise ProtocolError if what *name* names was saved in a version of its format other than the *known* one."""
    if saved != known:
        raise ProtocolError(f"{name} has version {saved}, this program reads version {known}", fix="run the version that saved it")
