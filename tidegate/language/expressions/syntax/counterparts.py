"""
Functions of other SQL dialects, each with its replacement in this dialect.

Law: a function of this dialect is not in the table, and every example is a valid expression.
"""

from __future__ import annotations

_EPOCH = "CAST('1970-01-01T00:00:00Z' AS datetime)"
_AT = "System.Timestamp()"


def _part(unit: str) -> tuple[str, str]:
    return f"write DATEPART({unit}, x)", f"DATEPART({unit}, {_AT})"


_FORMAT = "cut it out of CAST(x AS nvarchar(max)), which is 2001-01-31T10:05:00Z; DATENAME gives a part in words; ROUND a number"
_TEXT_OF = _FORMAT, f"SUBSTRING(CAST({_AT} AS nvarchar(max)), 1, 10)"
_SPLIT = "cut the text with SUBSTRING at the places that CHARINDEX finds", "SUBSTRING(code, 1, CHARINDEX('-', code) - 1)"
_EXTRACT = "PATINDEX and REGEXMATCH give the place of the match: cut there with SUBSTRING", "SUBSTRING(code, PATINDEX('%[0-9]%', code), 4)"
_MATCHES = "REGEXMATCH gives the place of the first match, 0 for none", "REGEXMATCH(code, '[0-9]+') > 0"
WINDOWS_PAGE = "docs/queries/coming-from-flink.md#windows"  # where windows of other SQLs stand beside those of this one
_TUMBLE = f"write a window in GROUP BY; TIMESTAMP BY names the time ({WINDOWS_PAGE})", "GROUP BY origin, TumblingWindow(minute, 1)"
_HOP = f"write a window in GROUP BY, the size before the hop ({WINDOWS_PAGE})", "GROUP BY origin, HoppingWindow(minute, 60, 15)"
_CUMULATE = (
    f"write several tumbling windows side by side ({WINDOWS_PAGE})",
    "GROUP BY origin, Windows(TumblingWindow(minute, 10), TumblingWindow(hour, 1))",
)
_SESSION = (
    "write a window in GROUP BY, with a timeout and a maximum duration (docs/queries/windows.md#sessions)",
    "GROUP BY origin, SessionWindow(minute, 5, 60) OVER (PARTITION BY origin)",
)
_COUNTED = (
    "take a window of time, or the nth event before each with LAG: a number of events is never complete for a key that falls silent "
    "(docs/queries/windows.md#windows-of-events)",
    "LAG(delay, 99) OVER (PARTITION BY origin LIMIT DURATION(hour, 1))",
)
_WINDOW_END = "write System.Timestamp(), the window's end (docs/queries/windows.md#windows)", "System.Timestamp() AS window_end"
_WINDOW_START = (
    "subtract the window's length from its end, System.Timestamp(). Windows are (start, end]: for [start, end) shift them by "
    "Offset(microsecond, -1) (docs/queries/windows.md#windows-that-include-their-start)",
    "DATEADD(minute, -1, System.Timestamp()) AS window_start ... GROUP BY TumblingWindow(minute, 1)",
)
_ARRIVAL = "leave TIMESTAMP BY out: events then have the time of their arrival, which a replay repeats", "EventEnqueuedUtcTime"
_JSON = "make a record of the text, and write the member behind a point", "CAST(payload AS record).place.lat"
_ALL_OF = "write COLLECT(x), an array of the values", "COLLECT(delay)"
_FROM_EPOCH = "add the number to 1970", f"DATEADD(second, delay, {_EPOCH})"
_TO_EPOCH = "count from 1970", f"DATEDIFF(second, {_EPOCH}, {_AT})"
_TO_TIME = "write CAST(x AS datetime) for ISO-8601 text, DATEADD for a number since 1970", "CAST(code AS datetime)"

# The edges of a window as other SQLs name them: ksqlDB in one word, Flink with an underscore, Spark as members of the window.
WINDOW_EDGES = {
    **dict.fromkeys(("windowend", "window_end", "window.end"), _WINDOW_END),
    **dict.fromkeys(("windowstart", "window_start", "window.start"), _WINDOW_START),
}

# (what to write, an example) by the function's name in lower case.
COUNTERPARTS: dict[str, tuple[str, str]] = {
    **{name: _part(unit) for name, unit in (("hour", "hour"), ("minute", "minute"), ("second", "second"), ("quarter", "quarter"))},
    **{name: _part(unit) for name, unit in (("week", "week"), ("weekofyear", "week"), ("dayofweek", "weekday"), ("weekday", "weekday"))},
    **{name: _part(unit) for name, unit in (("dayofyear", "dayofyear"), ("dayofmonth", "day"), ("millisecond", "millisecond"))},
    "extract": ("write DATEPART(unit, x)", f"DATEPART(hour, {_AT})"),
    **dict.fromkeys(("date_format", "format", "to_char", "strftime"), _TEXT_OF),
    **dict.fromkeys(("split_index", "split_part", "substring_index", "split", "string_split"), _SPLIT),
    **dict.fromkeys(("regexp_extract", "regexp_substr"), _EXTRACT),
    **dict.fromkeys(("regexp", "regexp_like", "rlike", "regexp_matches"), _MATCHES),
    **dict.fromkeys(("tumble", "date_bin", "time_bucket"), _TUMBLE),
    **dict.fromkeys(("hop", "slide"), _HOP),
    "cumulate": _CUMULATE,
    "session_window": _SESSION,
    **dict.fromkeys(("countwindow", "count_window", "slidingcountwindow", "tumblingcountwindow"), _COUNTED),
    **dict.fromkeys(
        ("eomonth", "last_day"),
        ("take a month on, and its days off again", f"DATEADD(day, -DAY(DATEADD(month, 1, {_AT})), DATEADD(month, 1, {_AT}))"),
    ),
    **WINDOW_EDGES,
    **dict.fromkeys(("tumble_end", "hop_end", "session_end", "window_time", "tumble_rowtime", "hop_rowtime"), _WINDOW_END),
    **dict.fromkeys(("tumble_start", "hop_start", "session_start"), _WINDOW_START),
    **dict.fromkeys(("proctime", "current_watermark"), _ARRIVAL),
    **dict.fromkeys(("json_value", "json_query", "json_extract", "get_json_object", "json_extract_scalar"), _JSON),
    **dict.fromkeys(("string_agg", "listagg", "group_concat", "array_agg", "collect_list"), _ALL_OF),
    **dict.fromkeys(("from_unixtime", "to_timestamp_ltz", "timestamp_millis", "timestamp_seconds"), _FROM_EPOCH),
    **dict.fromkeys(("unix_timestamp", "to_unixtime", "epoch"), _TO_EPOCH),
    **dict.fromkeys(("to_timestamp", "to_date", "date", "timestamp", "parse_timestamp", "str_to_date"), _TO_TIME),
    **dict.fromkeys(("nvl", "ifnull"), ("write COALESCE(x, y)", "COALESCE(delay, 0)")),
    **dict.fromkeys(("if", "iff", "decode", "choose"), ("write IIF(condition, x, y), or CASE", "IIF(delay > 15, 'late', 'on time')")),
    **dict.fromkeys(("substr", "mid"), ("write SUBSTRING(x, start, length)", "SUBSTRING(code, 1, 3)")),
    **dict.fromkeys(("length", "char_length", "character_length"), ("write LEN(x)", "LEN(code)")),
    **dict.fromkeys(("instr", "locate", "strpos", "position"), ("write CHARINDEX(part, text)", "CHARINDEX('-', code)")),
    **dict.fromkeys(("stddev", "stddev_samp"), ("write STDEV(x)", "STDEV(delay)")),
    **dict.fromkeys(("variance", "var_samp"), ("write VAR(x)", "VAR(delay)")),
    **dict.fromkeys(("approx_count_distinct", "count_distinct"), ("write COUNT(DISTINCT x)", "COUNT(DISTINCT code)")),
    **dict.fromkeys(
        ("percentile_approx", "approx_percentile", "percentile", "quantile"),
        ("write PERCENTILE_CONT(fraction) OVER (ORDER BY x)", "PERCENTILE_CONT(0.95) OVER (ORDER BY delay)"),
    ),
    **dict.fromkeys(("size", "cardinality", "array_length"), ("write GetArrayLength(x)", "GetArrayLength(readings)")),
    **dict.fromkeys(("explode", "unnest"), ("write CROSS APPLY after FROM", "FROM flights f CROSS APPLY GetArrayElements(f.legs) AS leg")),
    **dict.fromkeys(("greatest", "least"), ("write IIF or CASE", "IIF(delay > 15, delay, 15)")),
    "mod": ("write the operator %", "delay % 2"),
    "element_at": ("write GetArrayElement(array, index), which counts from 0", "GetArrayElement(readings, 0)"),
    **dict.fromkeys(
        ("date_trunc", "datetrunc"), ("count the units since 1970", f"DATEADD(hour, DATEDIFF(hour, {_EPOCH}, {_AT}), {_EPOCH})")
    ),
    "isnumeric": ("write TRY_CAST(x AS float) IS NOT NULL", "TRY_CAST(code AS float) IS NOT NULL"),
    "timestampdiff": ("write DATEDIFF(unit, from, to)", f"DATEDIFF(minute, {_EPOCH}, {_AT})"),
    "timestampadd": ("write DATEADD(unit, n, x)", f"DATEADD(minute, 5, {_AT})"),
    "last_value": ("write LAST(x), with how far it looks back", "LAST(delay) OVER (PARTITION BY origin LIMIT DURATION(hour, 1))"),
    "lead": (
        "let the later row look back, with LAG",
        "LAG(delay) OVER (PARTITION BY origin LIMIT DURATION(hour, 1))",
    ),
    "ceil": ("write CEILING(x)", "CEILING(delay)"),
    "pow": ("write POWER(x, y)", "POWER(delay, 2)"),
    "ln": ("write LOG(x)", "LOG(delay)"),
}
