"""
The operator: retained rows, and a computation over a finished slice of time.

:meth:`Operator.prepare` turns input rows (events, or another operator's results) into the rows worth keeping, :meth:`Operator.rows`
computes the results of a slice of time that has become final, :meth:`Operator.expire` drops the kept rows that no later result can need. An
operator has no state of its own: the engine keeps the rows.

Law: results depend on the input rows and on which instants are finished, not on how either was cut. Preparing batches and concatenating
gives what preparing all rows at once gives, and finishing in many steps gives what finishing in one step gives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import pyarrow as pa

from ordering.arrays import Mask
from query.plan.gathered import Gathered, tables_of
from query.plan.row_tables import Retained


class Operator(ABC):
    """
    One operator of a query.

    A subclass must write ``prepare``, ``rows`` and ``expire``. Every other member has a default that is right for all operators; an
    override lets the engine look at fewer rows. Instances can be pickled.
    """

    __slots__ = ()

    @property
    def sides(self) -> int:
        """The number of operators whose rows it takes; 1 too if it takes events."""
        return 1

    @property
    def reach_us(self) -> int:
        """The longest time from an input row to its last result, microseconds. A restart reads this much more."""
        return 0

    @property
    def ahead_us(self) -> int:
        """
        The least time from an input row to a result that depends on it, microseconds.

        If all input rows below an instant c are known, its rows below c + ``ahead_us`` are known, and the engine asks for them.
        """
        return 0

    @property
    def key_columns(self) -> tuple[int, ...] | None:
        """Numbers of input columns; rows that differ in one of them never meet. Empty: any rows may meet. None: no two rows meet."""
        return ()

    @property
    def keeps_columns(self) -> bool:
        """Whether its columns begin with those of the input rows, with unchanged values."""
        return False

    @property
    def computes_keys(self) -> bool:
        """Whether :meth:`prepare` adds computed columns to rows of other operators, so that a row can fail before it waits for others."""
        return False

    @abstractmethod
    def prepare(self, below: pa.Table, side: int = 0) -> tuple[pa.Table, pa.Table]:
        """
        Accept rows of one side, in order; return the rows to retain, and the bad rows (``BAD_SCHEMA``).

        Args:
            below: ``query.columns.events.EVENTS_SCHEMA``, or a table of rows (:mod:`query.plan.row_tables`) with ``position``.
            side: Which of the operators below gave them.
        """

    @abstractmethod
    def rows(self, retained: Retained, closing: pa.Table) -> pa.Table:
        """
        Return the results with ``from_us <= system_us < to_us`` of each substream in *closing*.

        Args:
            retained: The retained rows of each side, in order, with ``position``: all that these results can need, and perhaps more, such
                as rows that have expired or rows of later times.
            closing: ``sub``, ``from_us``, ``to_us``.
        """

    def slices(self, gathered: Sequence[Gathered | None], closing: pa.Table) -> Iterator[pa.Table]:
        """
        Yield what :meth:`rows` returns, in its order, in tables that fit the budget of a step (:mod:`tidegate.basics.budget`).

        For operators whose results can outnumber their rows, or that can read many rows in portions.
        """
        yield self.rows(tables_of(gathered), closing)

    @property
    def can_outgrow(self) -> bool:
        """Whether its results can outnumber its rows, or repeat their texts: with OVER they are then measured, and made in steps."""
        return False

    @abstractmethod
    def expire(self, retained: pa.Table, horizon: pa.Table, side: int = 0) -> pa.Table:
        """Return the rows of a piece of the retained rows that a result at or after ``to_us`` of their substream can need."""

    def span_us(self, instant_us: int, side: int = 0) -> tuple[int, int]:
        """
        Return the first and the last System.Timestamp of results that can depend on a retained row at *instant_us*.

        The engine passes no rows of other times to :meth:`rows`, and does not ask which of them have expired.
        Law: neither end falls as instants rise; :meth:`expire` keeps no row whose last instant has passed.
        """
        return instant_us, instant_us + self.reach_us

    def may_have_results(self, from_us: int, to_us: int) -> bool:
        """Return whether there can be results with ``from_us <= System.Timestamp < to_us``, whatever rows there are."""
        return True

    def compact(self, retained: pa.Table, side: int = 0) -> pa.Table:
        """
        Return fewer rows that stand for those of a piece, or the piece unchanged.

        Law: whichever pieces are compacted, and how often, results are the same bytes.
        """
        return retained

    # Rows on which all results of a slice depend in the same way: the engine computes once the rows that stand for them.

    @property
    def can_summarize(self) -> bool:
        """Whether :meth:`summarize` can ever return fewer rows."""
        return False

    def results_depend_alike(self, ends_us: tuple[int, int], from_us: int, to_us: int) -> bool:
        """Return whether all results of a slice depend alike on rows whose least and greatest ``system_us`` are *ends_us*."""
        return False

    def summarize(self, retained: pa.Table) -> pa.Table:
        """Return fewer rows that stand for rows that are seen alike."""
        return retained

    # Two sides that meet by key: an old row matters only if an asking row of the other side has its key.

    @property
    def can_look_up(self) -> bool:
        """Whether old rows are needed only by rows of the other side that ask for their key."""
        return False

    def lookup_keys(self, retained: pa.Table, side: int) -> pa.Table:
        """Return columns in which rows that meet agree, of the same names and types on both sides. Rows that agree may still not meet."""
        raise NotImplementedError

    def asking_rows(self, retained: pa.Table, closing: pa.Table, side: int) -> Mask:
        """Return which rows ask for rows of the other side: those that are new in *closing*, or have their last chance to match in it."""
        raise NotImplementedError

    def may_ask(self, instants_us: tuple[int, int], from_us: int, to_us: int, side: int) -> bool:
        """Return whether a row between two instants, both included, can ask for others when this slice of time is finished."""
        raise NotImplementedError

    # Rows that are known to be needless only beside all others, such as all but the last of each group. The engine asks now and then.

    @property
    def can_condense(self) -> bool:
        """Whether :meth:`condense` finds needless rows that :meth:`expire` cannot find."""
        return False

    def condense(self, pieces: Sequence[pa.Table], horizon: pa.Table, side: int = 0) -> Sequence[Mask]:
        """
        Return for each row of each piece whether a result at or after ``to_us`` of its substream can need it.

        Dropped rows may come back when the engine is restored; they must then make no difference.

        Args:
            pieces: All rows retained of a side and not expired, in order; at least one piece.
            horizon: ``sub``, ``to_us``; other substreams keep their rows.
            side: Which side.
        """
        raise NotImplementedError
