"""
The operator: retained rows, and a computation over a finished slice of time.

:meth:`Operator.prepare` turns input rows (events, or another operator's results) into the rows worth keeping,
:meth:`Operator.rows` computes the results of a slice of time that has become final, :meth:`Operator.expire` drops the kept
rows that no later result can need. An operator holds no state of its own: the caller keeps the rows.

Law: results depend on the input rows and on which instants are finished, never on how either was cut. Preparing batches and
concatenating gives what preparing all rows at once gives, and finishing in many steps gives what finishing in one step gives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from query.plan.row_tables import Mask, Retained


class Operator(ABC):
    """
    One operator of a query.

    Only ``prepare``, ``rows`` and ``expire`` must be written. Everything else has a default that is right for every operator;
    overriding it makes the engine look at fewer rows. Instances can be pickled.
    """

    __slots__ = ()

    @property
    def sides(self) -> int:
        """How many other operators' rows it takes; 1 too if it takes events."""
        return 1

    @property
    def reach_us(self) -> int:
        """How long after an input row its last result can be, microseconds. A restart reads this much more."""
        return 0

    @property
    def ahead_us(self) -> int:
        """
        How much later, at least, each result is than the input rows that it is made of, microseconds.

        With all input rows below an instant c it knows its own rows below c + ``ahead_us``, and is asked for them then.
        """
        return 0

    @property
    def key_columns(self) -> tuple[int, ...] | None:
        """Numbers of input columns; rows that differ in one of them never meet. Empty: any may meet. None: no two rows meet."""
        return ()

    @property
    def keeps_columns(self) -> bool:
        """Whether its columns begin with those of the input rows, with the values they have there."""
        return False

    @abstractmethod
    def prepare(self, below: pa.Table, side: int = 0) -> tuple[pa.Table, pa.Table]:
        """
        Take rows of one side, in order; return the rows to retain, and the bad rows (``BAD_SCHEMA``).

        Args:
            below: ``query.columns.events.EVENTS_SCHEMA``, or a table of rows (:mod:`query.plan.row_tables`) with ``position``.
            side: Which of the operators below gave them.
        """

    @abstractmethod
    def rows(self, retained: Retained, closing: pa.Table) -> pa.Table:
        """
        Return the results with ``from_us <= system_us < to_us`` of each substream in *closing*.

        Args:
            retained: For each side the retained rows, in order, with ``position``: all that these results can need, and perhaps
                more: rows that have expired, and rows of later times.
            closing: ``sub``, ``from_us``, ``to_us``.
        """

    @abstractmethod
    def expire(self, retained: pa.Table, horizon: pa.Table, side: int = 0) -> pa.Table:
        """Return the rows of a piece of the retained rows that a result at or after ``to_us`` of their substream can need."""

    def span_us(self, instant_us: int, side: int = 0) -> tuple[int, int]:
        """
        Return the first and the last System.Timestamp of results that a retained row can have a part in.

        The engine hands over no rows of other times, and does not ask which of them have expired.
        Law: neither end falls as instants rise; :meth:`expire` keeps no row whose last instant has passed.

        Args:
            instant_us: The row's ``system_us``.
            side: Which side's row.
        """
        return instant_us, instant_us + self.reach_us

    def may_have_results(self, from_us: int, to_us: int) -> bool:
        """Tell whether there may be results with ``from_us <= System.Timestamp < to_us``, whatever rows there are."""
        return True

    def compact(self, retained: pa.Table, side: int = 0) -> pa.Table:
        """
        Return fewer rows that stand for those of a piece, or the piece as it is.

        Law: whichever pieces are compacted, and how often, results are the same bytes.
        """
        return retained

    # Rows on which all results of a slice of time depend alike: the engine computes what stands for them once.

    @property
    def can_summarize(self) -> bool:
        """Whether fewer rows can ever stand for those on which all results asked for depend alike."""
        return False

    def is_seen_alike(self, ends_us: tuple[int, int], from_us: int, to_us: int) -> bool:
        """
        Tell whether all results with ``from_us <= System.Timestamp < to_us`` depend on some rows in the same way.

        Args:
            ends_us: The least and the greatest ``system_us`` of the rows.
            from_us: The first instant of results asked for.
            to_us: The end of the instants asked for, exclusive.
        """
        return False

    def summarize(self, retained: pa.Table) -> pa.Table:
        """Return the rows that stand for others that are seen alike."""
        return retained

    # Many rows of one side, handed over in portions: memory then grows with the largest group only.

    @property
    def can_take_portions(self) -> bool:
        """Whether rows can be divided into portions whose rows never meet in a result."""
        return False

    def portion_of(self, retained: pa.Table, count: int) -> npt.NDArray[np.uint8]:
        """Return the portion of each row, 0 to *count* - 1 (255 at most); rows of different portions never meet in a result."""
        raise NotImplementedError

    def rows_of_portions(self, portions: Iterable[pa.Table], closing: pa.Table) -> pa.Table:
        """Return what :meth:`rows` would return for the rows of all portions together."""
        raise NotImplementedError

    # Two sides that meet by key: an old row matters only if a row that asks has its key.

    @property
    def can_look_up(self) -> bool:
        """Whether old rows are needed only by rows of the other side that ask for their key."""
        return False

    def lookup_keys(self, retained: pa.Table, side: int) -> pa.Table:
        """Return what rows must agree in to meet: columns of the same names, types and values. Rows that agree may still not meet."""
        raise NotImplementedError

    def asking_rows(self, retained: pa.Table, closing: pa.Table, side: int) -> Mask:
        """Tell which rows ask for rows of the other side: those that are new in *closing*, or have their last chance in it."""
        raise NotImplementedError

    def may_ask(self, instants_us: tuple[int, int], from_us: int, to_us: int, side: int) -> bool:
        """Tell whether a row between two instants, both included, can ask for others when this slice of time is finished."""
        raise NotImplementedError

    # Rows whose need shows only beside all others, such as the last of each group. The engine asks now and then.

    @property
    def can_condense(self) -> bool:
        """Whether :meth:`condense` finds rows that :meth:`expire` cannot."""
        return False

    def condense(self, pieces: Sequence[pa.Table], horizon: pa.Table, side: int = 0) -> Sequence[Mask]:
        """
        Tell of each row of each piece whether a result at or after ``to_us`` of its substream can need it.

        Dropped rows may come back when the caller is restored; they must then make no difference.

        Args:
            pieces: All rows retained of a side and not expired, in order; at least one piece.
            horizon: ``sub``, ``to_us``; other substreams keep their rows.
            side: Which side.
        """
        raise NotImplementedError
