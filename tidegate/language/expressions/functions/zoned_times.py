"""
Datetimes in a time zone, over whole columns: the reading of the clock, the instant of a reading, and the local time as text.

Law: a value depends on its row and the zone's data alone. Datetimes that the clock would show outside the years 1 to 9999 are NULL.

Here the clocks of Berlin go forward between the two events.

>>> from tidegate.testing import run_query
>>> script = "SELECT t AT TIME ZONE 'Europe/Berlin' AS l, DATEPART(hour, t AT TIME ZONE 'Europe/Berlin') AS h INTO out FROM a"
>>> for row in run_query(script, {"a": [{"t": "2026-03-29T00:30:00Z"}, {"t": "2026-03-29T01:30:00Z"}]}).rows:
...     print(row)
{'l': '2026-03-29T01:30:00+01:00', 'h': 1}
{'l': '2026-03-29T03:30:00+02:00', 'h': 3}
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordering.arrays import Ints, Mask
from ordering.ticks import SECOND_US
from tidegate.language.expressions.duckdb_pool import run
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Zoned, ZoneForm
from tidegate.language.expressions.variant import Variant, valid_mask

_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999  # the years 1 to 9999


def compute_zoned(expr: Zoned, column: Variant) -> Variant:
    """Return the values of *expr*, given its argument, whose values are datetimes."""
    if expr.form is ZoneForm.TIME or not column.kinds:
        return column
    part = column.of_kind(Kind.DATETIME)
    given, is_known = part.fill_null(0).to_numpy(), valid_mask(part)
    clock = expr.zone.clock
    values = clock.instants(given) if expr.form is ZoneForm.MOMENT else clock.readings(given)
    is_known &= (values >= _FIRST_US) & (values <= _LAST_US)
    if expr.form is not ZoneForm.TEXT:
        return Variant.of(column.length, {Kind.DATETIME: pa.array(values, mask=~is_known)})
    return Variant.of(column.length, {Kind.NVARCHAR: _texts(values, clock.offsets_at(given), is_known)})


def _texts(readings_us: Ints, offsets_us: Ints, is_known: Mask) -> pa.Array:
    """Return local times as ISO-8601 with their offsets from UTC."""
    distinct, places = np.unique(offsets_us, return_inverse=True)
    endings = pa.array([_offset_text(int(offset)) for offset in distinct], pa.string()).take(pa.array(places))
    table = pa.table({"reading": pa.array(readings_us, mask=~is_known)})
    # The text of a datetime ends in Z.
    texts = run("SELECT rtrim(iso8601(reading), 'Z') AS v FROM input", input=table)["v"].combine_chunks()
    return pc.binary_join_element_wise(texts, endings, "")


def _offset_text(offset_us: int) -> str:
    """Return an offset as ``+hh:mm``, with seconds where clocks followed the sun."""
    minutes, seconds = divmod(abs(offset_us) // SECOND_US, 60)
    return f"{'-' if offset_us < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}{f':{seconds:02}' if seconds else ''}"
