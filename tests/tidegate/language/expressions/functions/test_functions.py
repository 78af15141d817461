"""The functions of Stream Analytics, one value at a time: records, arrays, text, patterns, angles, names of dates."""

from __future__ import annotations

import pytest
from support.query_oracle import Event
from support.query_runs import reasons, values
from support.script_runs import answers_of

from tidegate.language.expressions.binding.input_schema import InputSchema

ROW = {
    "i": 7,
    "f": 2.5,
    "s": "Atlanta",
    "r": {"k": [1, {"m": "x"}], "K2": 3, 'q"uo': 1, "n": None},
    "a": [1, 2.50, "t", None, {"b": {"c": 5}}],
    "x": None,
    "name": "k2",
    "js": '{"a": 1.50, "b": [1, 2]}',
    "idx": 2,
}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("GetArrayElement(a,0)", "1"),
        ("GetArrayElement(a,1)", "2.5"),
        ("GetArrayElement(a,idx)", '"t"'),
        ("GetArrayElement(a,4).b.c", "5"),
        ("GetArrayElement(a,9)", "null"),
        ("GetArrayElement(a,-1)", "null"),
        ("GetArrayElement(x,0)", "null"),
        ("GetArrayElement(a,3)", "null"),
        ("GetArrayLength(a)", "5"),
        ("GetArrayLength(x)", "null"),
        ("GetArrayLength(r.k)", "2"),
        (
            "GetRecordProperties(r)",
            '[{"PropertyName":"k","PropertyValue":[1,{"m":"x"}]},{"PropertyName":"K2","PropertyValue":3},{"PropertyName":"q\\"uo","PropertyValue":1},{"PropertyName":"n","PropertyValue":null}]',
        ),
        ("GetArrayElement(GetRecordProperties(r),1).PropertyValue", "3"),
        ("GetRecordPropertyValue(r,'k2')", "3"),
        ("GetRecordPropertyValue(r,name)", "3"),
        ("GetRecordPropertyValue(r,x)", "null"),
        ("GetRecordPropertyValue(r,'q\"uo')", "1"),
        ("GetRecordPropertyValue(r,'')", "null"),
        ("GetRecordPropertyValue(x,'k')", "null"),
        ("CAST(js AS record)", '{"a":1.5,"b":[1,2]}'),
        ("CAST(js AS record).b", "[1,2]"),
        ("TRY_CAST(s AS record)", "null"),
        ("TRY_CAST(js AS array)", "null"),
        ("GetArrayElement(TRY_CAST('[1,2]' AS array),1)", "2"),
        ("CASE WHEN i = 7 THEN 1 ELSE GetArrayElement(i, 0) END", "1"),
        ("CASE WHEN i = 7 THEN GetArrayElement(a,1) ELSE 1 END", "2.5"),
        ("IIF(i=7,'y',GetArrayElement(i,0))", '"y"'),
        ("COALESCE(s, GetArrayElement(i,0))", '"Atlanta"'),
        ("COALESCE(x, GetArrayElement(a,0))", "1"),
        ("GetArrayElement(a,0)+GetArrayElement(a,1)", "3.5"),
        ("GetType(GetArrayElement(a,2))", '"nvarchar(max)"'),
        ("GetType(r)", '"record"'),
        ("GetType(x)", "null"),
        ("REVERSE(s)", '"atnaltA"'),
        ("STUFF(s,2,3,'XY')", '"AXYnta"'),
        ("STUFF(s,0,3,'XY')", '"XYanta"'),
        ("STUFF(s,8,1,'XY')", '""'),
        ("STUFF(s,2,-1,'XY')", '"AXYtlanta"'),
        ("STUFF(s,9,x,'XY')", "null"),
        ("STUFF(x,9,1,'XY')", "null"),
        ("TRIM(CONCAT(NCHAR(160),' a b',NCHAR(9),NCHAR(8232)))", '"a b"'),
        ("LEN(LTRIM(CONCAT(NCHAR(12288),'a',NCHAR(160))))", "2"),
        ("LEN(RTRIM(CONCAT(NCHAR(8195),'a',NCHAR(133))))", "2"),
        ("TRIM(CONCAT(NCHAR(8203),'a'))", '"\u200ba"'),
        ("DATEDIFF(hours,'2001-01-01T00:30:00Z','2001-01-01T02:00:00Z')", "2"),
        ("DATEPART(w,'2001-02-03')", "7"),
        ("STUFF(s,2,100,'')", '"A"'),
        ("STUFF(s,2,1,x)", '"Alanta"'),
        ("NCHAR(8364)", '"€"'),
        ("NCHAR(55296)", "null"),
        ("NCHAR(-1)", "null"),
        ("UNICODE('€a')", "8364"),
        ("UNICODE('')", "null"),
        ("REPLICATE('ab',3)", '"ababab"'),
        ("REPLICATE('ab',-1)", "null"),
        ("REPLICATE(s,9000000000)", "null"),
        ("SPACE(3)+'.'", '"   ."'),
        ("TRANSLATE(s,'at','xy')", '"Aylxnyx"'),
        ("CONCAT_WS('-',s,x,i)", '"Atlanta-7"'),
        ("CONCAT_WS(x,s,i)", '"Atlanta7"'),
        ("PATINDEX('%lan%',s)", "3"),
        ("PATINDEX('At%',s)", "1"),
        ("PATINDEX('%a',s)", "7"),
        ("PATINDEX('%z%',s)", "0"),
        ("PATINDEX('lan',s)", "0"),
        ("PATINDEX('%[l-n]%',s)", "3"),
        ("PATINDEX(NULL,s)", "null"),
        ("PATINDEX('%a%',x)", "null"),
        ("REGEXMATCH(s,'[L]A')", "3"),
        ("REGEXMATCH(s,'^at')", "1"),
        ("REGEXMATCH(s,'z')", "0"),
        ("REGEXMATCH(x,'z')", "null"),
        ("REGEXMATCH(s,'(l|n)(a)')", "3"),
        ("SIN(0)", "0.0"),
        ("COS(0)", "1.0"),
        ("COT(0)", "null"),
        ("ACOS(2)", "null"),
        ("ASIN(1)", "1.5707963267948966"),
        ("ATN2(1,1)", "0.7853981633974483"),
        ("PI()", "3.141592653589793"),
        ("DEGREES(PI())", "180.0"),
        ("RADIANS(180)", "3.141592653589793"),
        ("TAN(0)", "0.0"),
        ("ATAN(0)", "0.0"),
        ("DATENAME(month,'2001-02-03')", '"February"'),
        ("DATENAME(weekday,'2001-02-03')", '"Saturday"'),
        ("DATENAME(year,'2001-02-03')", '"2001"'),
        ("CONVERT(bigint,'12')", "12"),
        ("TRY_CONVERT(nvarchar(max),i)", '"7"'),
        ("TRY_CONVERT(bigint,s)", "null"),
        ("7/2", "3"),
        ("(r).K2", "3"),
        ("r.k2", "3"),
        ("GetRecordPropertyValue(r,'*')", "null"),
        ("GetArrayElement(CAST('[{\"a\":[7]}]' AS array), 0).A", "[7]"),
        ("GetArrayLength(GetArrayElement(a, 4).zz)", "null"),
    ],
)
def test_a_function_has_its_value(expression: str, expected: str) -> None:
    """The value as it is written in a result."""
    assert values(f"SELECT {expression} AS v FROM arrivals", [ROW]) == [f'{{"v":{expected}}}']


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("GetArrayElement(i, 0)", "an array is needed, not bigint: GETARRAYELEMENT(i, 0)"),
        ("GetArrayElement(a, f)", "a bigint is needed, not float: GETARRAYELEMENT(a, f)"),
        ("GetArrayElement(a, CAST(s AS bigint))", "conversion failed: CAST(s AS bigint)"),
        ("GetArrayElement(a, 2) + 1", "conversion failed: GETARRAYELEMENT(a, 2) + 1"),
        ("GetArrayLength(r)", "an array is needed, not record: GETARRAYLENGTH(r)"),
        ("GetRecordPropertyValue(a, name)", "a record is needed, not array: GETRECORDPROPERTYVALUE(a, name)"),
        ("CAST(s AS record)", "conversion failed: CAST(s AS record)"),
        ("CAST(js AS array)", "conversion failed: CAST(js AS array)"),
        ("TRANSLATE(s, 'ab', 'x')", "conversion failed: TRANSLATE(s, 'ab', 'x')"),
    ],
)
def test_a_row_fails_with_its_reason(expression: str, reason: str) -> None:
    """A value that a function cannot work on fails its row, and only its row."""
    assert reasons(f"SELECT {expression} AS v FROM arrivals", [{}, ROW, {}]) == [(1, reason)]


def test_a_member_of_a_text_may_be_declared() -> None:
    """A field that holds JSON as text is a record once it is declared or cast to one."""
    schema = InputSchema("i", fields={"js": "record"})
    assert values("SELECT CAST(js AS record).a AS v FROM i", [{"js": '{"a":1}'}], schema) == ['{"v":1}']


def test_an_element_has_the_kind_it_has_in_its_row() -> None:
    """No neighbour's kind shows."""
    payloads = [{"a": [1]}, {"a": [1.0]}, {"a": ["1"]}, {"a": [True]}, {"a": [None]}, {"a": []}, {}]
    assert values("SELECT GetArrayElement(a, 0) AS v FROM arrivals", payloads) == [
        '{"v":1}',
        '{"v":1.0}',
        '{"v":"1"}',
        '{"v":true}',
        '{"v":null}',
        '{"v":null}',
        '{"v":null}',
    ]


def test_an_event_knows_when_it_arrived() -> None:
    """EventEnqueuedUtcTime is the arrival, whatever the policies made of the event time; a declared field of that name is a field."""
    sql = "SELECT EventEnqueuedUtcTime AS arrived, System.Timestamp() AS at INTO out FROM i"
    events = [Event(0, 1_000_000, {"eventenqueuedutctime": "2001-01-01"}, arrival_us=3_000_000)]
    assert answers_of(sql, {"i": events}).values() == ['{"arrived":"1970-01-01T00:00:03Z","at":"1970-01-01T00:00:01Z"}']
    declared = [InputSchema("i", fields={"EventEnqueuedUtcTime": "nvarchar(max)"})]
    assert answers_of(sql, {"i": events}, schemas=declared).values() == ['{"arrived":"2001-01-01","at":"1970-01-01T00:00:01Z"}']
