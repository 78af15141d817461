"""
Every name that a script can call, and its function.

To add a scalar function:

1. Choose the module of its family (:mod:`~.numeric`, :mod:`~.texts`, :mod:`~.dates`, :mod:`~.conditional`, :mod:`~.records`,
   :mod:`~.patterns`) and add one entry to the table at its end: the name in lower case, the least and greatest number of
   arguments, the rule that writes the DuckDB expression, and the kind of the result if it is fixed.
   ``"cbrt": Function(1, 1, float_rule("cbrt({})"), Kind.FLOAT)`` is a complete function.
2. Add calls with their values to ``tests/tidegate/language/expressions/functions/test_functions.py``, a case to ``tests/cases/scalars``,
   an entry to :mod:`~.manual`, and the name to ``docs/queries/expressions.md``.

A function whose result differs in kind from row to row, or that is written in Python, is a column function: see :mod:`~.column_functions`.

Law of all functions: arithmetic that has no result - division by zero, a bigint outside 64 bits, a float that is not finite,
the root of a negative number - is NULL, as in T-SQL with ARITHABORT OFF. Any other NULL argument makes the result NULL, unless
the function says otherwise (COALESCE, ISNULL, CONCAT, IS NULL).
"""

from __future__ import annotations

from tidegate.language.expressions.functions import column_patterns
from tidegate.language.expressions.functions.conditional import CONDITIONAL_FUNCTIONS
from tidegate.language.expressions.functions.dates import DATE_FUNCTIONS
from tidegate.language.expressions.functions.definition import Function
from tidegate.language.expressions.functions.geography import GEOGRAPHY_FUNCTIONS
from tidegate.language.expressions.functions.numeric import NUMERIC_FUNCTIONS
from tidegate.language.expressions.functions.operators import OPERATORS
from tidegate.language.expressions.functions.patterns import PATTERN_FUNCTIONS
from tidegate.language.expressions.functions.records import RECORD_FUNCTIONS
from tidegate.language.expressions.functions.texts import TEXT_FUNCTIONS

_CALLABLE_TABLES = (NUMERIC_FUNCTIONS, TEXT_FUNCTIONS, CONDITIONAL_FUNCTIONS, DATE_FUNCTIONS, PATTERN_FUNCTIONS, RECORD_FUNCTIONS)

# Every function and operator by its name in lower case, but for column functions.
FUNCTIONS: dict[str, Function] = OPERATORS | {name: function for table in _CALLABLE_TABLES for name, function in table.items()}
# The version of each function and operator that once gave other values, counted from 1: a run that was begun with another one is not
# continued. A function that is changed gets the next number here.
VERSIONS = {**dict.fromkeys(("power", "&", "|", "^", "~"), 2), **dict.fromkeys(("trim", "ltrim", "rtrim", "stuff"), 2)}
# The functions that are called if a pattern is no constant.
PATTERN_CALLS = column_patterns.PATTERN_CALLS
# What a script can call by name.
CALLABLE = tuple(name for table in _CALLABLE_TABLES for name in table)
AGGREGATES = (
    *("count", "sum", "avg", "min", "max", "stdev", "stdevp", "var", "varp"),
    *("collect", "collecttop", "topone", "percentile_cont", "percentile_disc"),
)
# Functions that judge a row by the rows before it.
ANOMALIES = ("anomalydetection_changepoint", "anomalydetection_spikeanddip")
# Functions that look back from each row and are not aggregates.
ANALYTICS = ("lag", "last", "isfirst")
_WINDOWS = ("tumbling", "hopping", "sliding", "session")
# The window functions, by all their names.
WINDOWS = (*_WINDOWS, *(f"{name}window" for name in _WINDOWS), "snapshotwindow", "window", "windows")
_ANOMALY = (
    "write AnomalyDetection_SpikeAndDip or AnomalyDetection_ChangePoint, which followed it",
    "AnomalyDetection_SpikeAndDip(v, 95, 120, 'spikesanddips') OVER (LIMIT DURATION(minute, 2))",
)
# Functions of the extra geo.
GEOGRAPHY = frozenset(GEOGRAPHY_FUNCTIONS)
# Functions of Stream Analytics that are not supported yet, with what to do meanwhile and an example.
NOT_YET = {
    "anomalydetection": _ANOMALY,
    "first_value": ("take the first row of a window", "TopOne() OVER (ORDER BY System.Timestamp() ASC)"),
}

# A function that reads the clock or draws a number would give a replay other results.
_DIFFERS = "would differ between replays"
_CLOCK = _DIFFERS, "write System.Timestamp(), the event's or the window's time"
_USER = "is nothing that an event has", "use a field of the event"
_CLOCK_WORDS = (
    *("current_timestamp", "current_date", "current_time", "localtimestamp", "sysdate", "systimestamp", "current_timezone"),
    *("utc_timestamp", "utc_date", "utc_time"),
)
_USER_WORDS = ("current_user", "session_user", "system_user", "current_role", "current_catalog", "current_schema", "current_database")
_CLOCKS = ("getdate", "getutcdate", "sysdatetime", "sysutcdatetime", "sysdatetimeoffset")
_OTHER_CLOCKS = ("now", "curdate", "curtime", "localtime", "clock_timestamp", "statement_timestamp")
_RANKING = (
    "is no function here",
    "in a window write TopOne() OVER (ORDER BY ...) for the first row, CollectTop(n) for the first n, whose ranks count from 1",
)
# Functions that are refused, with the reason and the fix.
REFUSED = {
    **dict.fromkeys((*_CLOCK_WORDS, *_CLOCKS, *_OTHER_CLOCKS), _CLOCK),
    **dict.fromkeys((*_USER_WORDS, "user", "suser_sname", "suser_name", "user_name", "host_name"), _USER),
    **dict.fromkeys(("newid", "newsequentialid", "uuid"), (_DIFFERS, "use a field that tells events apart")),
    **dict.fromkeys(("rand", "random"), (_DIFFERS, "use a field of the event")),
    "median": ("is no function here", "write PERCENTILE_CONT(0.5) OVER (ORDER BY x)"),
    **dict.fromkeys(("row_number", "rank", "dense_rank"), _RANKING),
    "getarrayelements": ("stands after CROSS APPLY and OUTER APPLY only", "write FROM i CROSS APPLY GetArrayElements(i.readings) AS r"),
}
# Those of them that are refused without brackets too, unless a field of that name is known: other SQLs write them so, or the brackets
# were forgotten. USER, NOW and LOCALTIME are not among them, because events have fields that are called so; lint warns of them.
REFUSED_WORDS = frozenset({*_CLOCK_WORDS, *_USER_WORDS, *_CLOCKS})
DOUBTFUL_WORDS = frozenset({"user", "now", "localtime"})
