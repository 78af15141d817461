"""
Sessions: from the instants of events to the end of the session each belongs to.

A *chain* is a longest sequence of events in which none comes later than the timeout after the one before it; a gap equal to the timeout is
still inside. Sessions are chains, cut by the maximum duration D: at each multiple of D since the epoch, a session that has lasted D or
longer ends, and a new one begins at the same instant. So the cuts of a chain that begins at b are the multiples of D from b + D on, and a
session lasts less than 2 D. Sessions are ``(start, end]``: an event exactly at a cut belongs to the session that ends there. A session ends
at its last event plus the timeout, or at the cut, whichever comes first.

Example, D = 10, timeout 5: events at 3, 7, 12, 16, 20, 21, 33. At 10 the chain 3 ... 21 has lasted 7, so it is not cut; at 20 it has lasted
17 and is cut. Sessions: {3, 7, 12, 16, 20} ends at 20, {21} ends at 26, {33} at 38.

Law: the sessions that end at e, and their contents, follow from the events after e - 2 D - timeout alone. A multiple m is a cut if the
chain reaches back to m - D, which the events after m - D - timeout decide. Let m be the last multiple before e, so m >= e - D. If it is a
cut, the session begins after it. If not, the chain begins at some b > m - D >= e - 2 D, and the events after b - timeout show that none
precedes b within the timeout.

Rows of one session can be moved to fewer instants (:func:`meeting_instants`), so that they can be added up while it is open. A *slot* is a
piece of time that no multiple of the timeout and none of D divides. Events of a slot are nearer to each other than the timeout, and no cut
divides them, so they are of one session. If all but those of its first instant move to its last, each chain keeps its ends and its gaps
between slots, and a gap within a slot stays below the timeout.
"""

from __future__ import annotations

import numpy as np

from ordering.arrays import Ints
from ordering.columns.segments import sort_places
from query.plan.windows import Session


def session_ends(group: Ints, system_us: Ints, session: Session) -> Ints:
    """Return the end of the session of each row; rows share their sessions if they have the same number in *group*."""
    order = sort_places(group, system_us, np.arange(len(group)), len(group))
    ends = np.empty(len(order), dtype=np.int64)
    ends[order] = _ends(group[order], system_us[order], session)
    return ends


def meeting_instants(group: Ints, system_us: Ints, session: Session) -> tuple[Ints, int]:
    """
    Return for each row the first or the last instant of its slot, and at how many instants of groups rows then are.

    Rows that move there stay in their session, and no session changes.
    """
    order = sort_places(group, system_us, np.arange(len(group)), len(group))
    instants, begins = system_us[order], np.ones(len(order), dtype=np.bool_)
    begins[1:] = np.diff(group[order]) != 0
    begins[1:] |= np.diff(instants // session.timeout_us) != 0
    begins[1:] |= np.diff(-(-instants // session.duration_max_us)) != 0
    slot, places = np.cumsum(begins) - 1, np.flatnonzero(begins)
    firsts, lasts = instants[places], instants[np.append(places[1:], len(begins)) - 1]
    met = np.empty(len(order), dtype=np.int64)
    met[order] = np.where(instants == firsts[slot], instants, lasts[slot])
    return met, len(firsts) + int(np.count_nonzero(firsts < lasts))


def _ends(group: Ints, instants: Ints, session: Session) -> Ints:
    begins = np.ones(len(instants), dtype=np.bool_)
    begins[1:] = (group[1:] != group[:-1]) | (np.diff(instants) > session.timeout_us)
    duration = session.duration_max_us
    # The first cut of each event's chain, then the first that is not before the event.
    cut = _next_multiple(instants[begins], duration)[np.cumsum(begins) - 1] + duration
    cut += np.maximum(_next_multiple(instants - cut, duration), 0)
    begins[1:] |= cut[1:] != cut[:-1]
    lasts = np.append(np.flatnonzero(begins)[1:], len(begins)) - 1
    ends: Ints = np.minimum(instants[lasts][np.cumsum(begins) - 1] + session.timeout_us, cut)
    return ends


def _next_multiple(instants: Ints, step_us: int) -> Ints:
    return -(-instants // step_us) * step_us
