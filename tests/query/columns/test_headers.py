"""Headers of records in queries: read beside the payload, wherever an operator reads events, however time is cut."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.query_oracle import Event
from support.script_runs import answers_of, program_of

from ordering.columns.framed_payloads import frame_payload
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.protocol.wire import encode_cti, encode_event_headers
from ordering.ticks import TICK_MIN
from query.buckets.bucket import BucketConfig, SourceTopic
from query.buckets.merged import MergedBucket
from query.columns.decoded_range import DecodedRange
from query.columns.events import DECODED_SCHEMA
from query.engine.exchange import Exchange, Router
from query.plan.columns_read import headers_read
from query.start.survey import payload_format
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.tree import Field, Header
from tidegate.ordered_topic.decode import decode
from tidegate.platform.kafka.records import Records
from tidegate.platform.settings.load import load
from tidegate.records.payloads.formats import PayloadFormat

SECOND = 1_000_000
KEPT = InputSchema("a", headers=("h", "other"))
FRAMED = {"a": PayloadFormat(headers=("h",))}
# Each with {h} for the header, or for a member of the payload of the same text.
QUERIES = (
    "SELECT {h} AS h, v FROM a",
    "SELECT {h} AS h, COUNT(*) AS n, SUM(v) AS total FROM a GROUP BY {h}, TumblingWindow(second, 3)",
    "SELECT v, LAG(v) OVER (PARTITION BY {h} LIMIT DURATION(second, 9)) AS before FROM a WHERE {h} <> 'y'",
    "SELECT MAX({h}) AS most, COLLECT({h}) AS all_of_them FROM a GROUP BY SlidingWindow(second, 2)",
    "SELECT l.v AS v, r.v AS w FROM a l JOIN a r ON {l} = {r} AND DATEDIFF(second, l, r) BETWEEN 1 AND 3",
)
VALUES = st.none() | st.sampled_from([b"x", b"y", b"", "Zürich".encode(), b"\xff\xfe", b"a\0b"])
EVENTS = st.lists(st.tuples(st.integers(0, 20_000_000), st.integers(0, 99), VALUES), max_size=25).map(
    lambda drawn: sorted(drawn, key=lambda event: event[0])
)


def written(query: str, *, member: bool) -> str:
    """Return a query of QUERIES over headers, or over members."""
    name = (lambda row: f"{row}.h") if member else "GetMetadataPropertyValue({}, '[User].[h]')".format
    return query.format(h=name("a"), l=name("l"), r=name("r"))


@pytest.mark.parametrize("query", QUERIES)
@given(EVENTS, st.lists(st.integers(0, 21_000_000), max_size=4))
def test_a_header_counts_as_a_member_with_the_same_text(query: str, drawn: list[tuple[int, int, bytes | None]], cuts: list[int]) -> None:
    """Level 3: in SELECT, WHERE, keys and joins, whatever time is cut into; what is no UTF-8 is replaced."""
    framed, plain = [], []
    for at_us, v, value in drawn:
        framed.append(Event(0, at_us, frame_payload([("h", value)] if value is not None else [], b'{"v":%d}' % v)))
        text = None if value is None else value.decode(errors="replace")
        plain.append(Event(0, at_us, json.dumps({"v": v, "h": text}).encode()))
    found = answers_of(written(query, member=False), {"a": framed}, cuts, schemas=[KEPT], payloads=FRAMED)
    wanted = answers_of(written(query, member=True), {"a": plain}, schemas=[InputSchema("a", fields={"h": "nvarchar(max)"})])
    assert (found.results, found.reasons) == (wanted.results, wanted.reasons)


def test_a_payload_that_passes_on_has_no_frame() -> None:
    """``SELECT *`` gives the bytes of the producer, with a header in WHERE too."""
    sql = "SELECT * FROM a WHERE GetMetadataPropertyValue(a, '[User].[h]') = 'x'"
    events = [Event(0, at, frame_payload([("h", value)], b' {"v" : %d}' % at)) for at, value in enumerate((b"x", b"y", b"x"))]
    assert answers_of(sql, {"a": events}, schemas=[KEPT], payloads=FRAMED).values() == [' {"v" : 0}', ' {"v" : 2}']


def test_a_header_is_read_although_the_payload_is_bad() -> None:
    """A query that reads no field of the payload has no use for it, and no dead letter."""
    sql = "SELECT GetMetadataPropertyValue(a, '[User].[h]') AS h FROM a"
    answers = answers_of(sql, {"a": [Event(0, 1, frame_payload([("h", b"x")], b"broken"))]}, schemas=[KEPT], payloads=FRAMED)
    assert (answers.values(), answers.reasons) == (['{"h":"x"}'], [])


def test_events_are_routed_by_a_header_as_by_a_member() -> None:
    """An exchange gives equal keys to one bucket, whatever they were read from."""
    values = [b"x", b"y", None, b"z", b"x"]
    framed = [frame_payload([] if value is None else [("h", value)], b"{}") for value in values]
    plain = [b"{}" if value is None else b'{"h":"%b"}' % value for value in values]
    routed = []
    for payloads, key, of in ((framed, Header("h"), FRAMED), (plain, Field(("h",)), {})):
        columns = {name: pa.nulls(5, DECODED_SCHEMA.field(name).type) for name in DECODED_SCHEMA.names}
        table = pa.table({**columns, "value": pa.array(payloads, pa.binary())}, schema=DECODED_SCHEMA)
        routed.append(Router(Exchange({"a": (key,)}, 5), of).buckets_of("a", table).tolist())
    assert routed[0] == routed[1]
    assert routed[0][0] == routed[0][4]


def test_the_dead_letter_of_a_row_has_its_payload_alone() -> None:
    """As its producer wrote it; the CTI of a topic that is read with headers is read like any other."""
    sql = "SELECT CAST(GetMetadataPropertyValue(a, '[User].[h]') AS bigint) AS n FROM a"
    bucket = MergedBucket(
        program_of(sql, [KEPT], payloads=FRAMED), BucketConfig([SourceTopic("a", 1, {0: 0})], 0, Roster(1, 1, Spread.ONE, False))
    )
    one = np.ones(1, dtype=np.int64)
    (event,) = encode_event_headers(0 * one, SECOND * one, SECOND * one, SECOND * one, 7 * one, np.zeros(1, np.uint16), 0)
    promise, body = encode_cti(Cti(0, 0, 2 * SECOND, 1, 0, 8, SECOND, SECOND, Roster(1, 1, Spread.ONE, False), Cause.EVENT))
    values = [frame_payload([("h", b"soon")], b'{"v":1}'), frame_payload([], body)]
    header = pa.array([event, promise], pa.binary())
    records = Records(np.arange(2), one.repeat(2), pa.nulls(2, pa.binary()), pa.array(values, pa.binary()), header, is_framed=True)
    bucket.accept_records(0, DecodedRange.of(decode(records, "t", 0)))
    bucket.settle()
    (bad,) = bucket.pop_bad_rows()
    assert (bad.value, bad.offset) == (b'{"v":1}', 7)
    assert bucket.frontier_us == 2 * SECOND > TICK_MIN


def test_a_query_reads_the_headers_that_it_names_and_no_others(tmp_path: Path) -> None:
    """Of each input its own; of an input without any nothing is read beside the payload."""
    sql = """
    WITH s AS (SELECT GetMetadataPropertyValue(a, '[User].[other]') AS o, v FROM a WHERE GetMetadataPropertyValue(a, '[User].[h]') > 'x')
    SELECT o, COUNT(*) AS n INTO one FROM s GROUP BY o, TumblingWindow(second, 1)
    SELECT v INTO two FROM b
    """
    schemas = [KEPT, InputSchema("b", headers=("h",))]
    plans = program_of(sql, schemas).plans
    assert [headers_read(plans, name) for name in "ab"] == [("h", "other"), ()]
    file = tmp_path / "tidegate.toml"
    file.write_text('[inputs.a]\nheaders = ["h", "other", "third"]\n[inputs.b]\nheaders = ["h"]\n')
    settings = load(file, env={})
    assert [payload_format(settings, plans, name).headers for name in "ab"] == [("h", "other"), ()]
