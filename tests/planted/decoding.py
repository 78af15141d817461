"""Planted bugs in the decoder of JSON payloads, in C and beside it, in what needs no SQL and in the writer (spec sections 1 and 5)."""

from __future__ import annotations

from planted.bug import FIELDS, Bug

_WALK = "tidegate/json_columns/json_fields.c"
_SCAN = "tidegate/json_columns/json_scan.h"
_PYTHON = FIELDS + "test_members_are_those_that_pythons_parser_reads"
_INGEST = FIELDS + "test_ingest_reads_the_same_with_the_native_parts_switched_off"
_LEFT = FIELDS + "test_of_all_others_nothing_is_said"

DECODING = [
    Bug(
        "json-the-last-name-counts",
        "Of members with equal names the first counts.",
        1,
        _WALK,
        "if (*found >= match)",
        "if (*found > match)",
        _PYTHON,
    ),
    Bug(
        "json-case-before-name",
        "A member of the very name counts before one that differs in case.",
        1,
        _WALK,
        "if (*found >= match)",
        "if (*found)",
        FIELDS + "test_what_counts_less_leaves_nothing_behind",
    ),
    Bug(
        "json-void-values-stay",
        "Of a member that does not count nothing is read.",
        1,
        _WALK,
        "        r->kinds[slot][r->row] = NONE;",
        "        (void)slot;",
        FIELDS + "test_what_counts_less_leaves_nothing_behind",
    ),
    Bug(
        "json-exact-names-by-case",
        "Ingest's paths are exact.",
        1,
        _WALK,
        "return !wanted->is_exact && is_same_by_case",
        "return is_same_by_case",
        _INGEST,
    ),
    Bug(
        "json-letters-beyond-ascii",
        "A name with a letter beyond ASCII may differ in case only.",
        1,
        _WALK,
        "            kelvins |= memmem(name, length, KELVIN, 3) != NULL;",
        "            kelvins |= 0;",
        _LEFT,
    ),
    Bug(
        "json-integer-wraps",
        "An integer beyond 64 bits is a float.",
        1,
        _SCAN,
        "digits <= (uint64_t)INT64_MAX + negative",
        "digits <= (uint64_t)INT64_MAX + 1",
        FIELDS + "test_integers_beyond_64_bits_are_floats",
    ),
    Bug(
        "json-float-rounded-twice",
        "A float is the nearest one to the number as it is written.",
        1,
        _SCAN,
        "digits > EXACT_INTEGER ||",
        "digits > 512 * EXACT_INTEGER ||",
        FIELDS + "test_floats_are_rounded_as_python_rounds_them",
    ),
    Bug(
        "json-brackets-of-two-kinds",
        "A payload that is no JSON is malformed, in what nobody reads too.",
        1,
        _SCAN,
        "            if (*at != (objects & 1 ? '}' : ']'))",
        "            if (*at != '}' && *at != ']')",
        _LEFT,
    ),
    Bug(
        "json-half-a-surrogate",
        "A lone surrogate makes a payload malformed.",
        1,
        _SCAN,
        "low <= 0xdfff ? at + 6 : NULL;",
        "low <= 0xdfff ? at + 6 : at;",
        _LEFT,
    ),
    Bug(
        "json-zeros-kept",
        "A record is the compact text that a query writes.",
        1,
        "tidegate/json_columns/json_texts.h",
        "    while (is_fraction && to[-1] == '0' && to[-2] != '.')\n        to--;\n",
        "    (void)is_fraction;\n",
        FIELDS + "test_records_and_exact_members_are_written_as_duckdb_writes_them",
    ),
    Bug(
        "json-twins-not-told",
        "Two wanted names may be one member.",
        1,
        "tidegate/json_columns/json_fields.py",
        "folded.count(key[0].lower()) > 1",
        "folded.count(key[0].lower()) > 2",
        _INGEST,
    ),
    Bug(
        "json-others-keys-mixed-up",
        "A payload that C leaves has the key that the parser reads.",
        1,
        "ingest/fields/json_source.py",
        "others.indices.to_numpy() + len(keys.dictionary)",
        "others.indices.to_numpy()",
        _INGEST,
    ),
    Bug(
        "time-of-null-has-no-kind",
        "A cast gives even NULL its kind: whether a row fails does not depend on how the text beside it is written.",
        5,
        "tidegate/expressions/evaluation/without_sql.py",
        " and read.valid_mask().all():",
        ":",
        "tests/tidegate/expressions/evaluation/test_evaluate.py::test_the_time_in_a_text_does_not_depend_on_the_rows_around_it",
    ),
    Bug(
        "years-of-centuries-leap",
        "A datetime is written as the same day in every year.",
        5,
        "tidegate/json_columns/json_rows.c",
        "century * 146097 / 4;",
        "century * 146100 / 4;",
        "tests/tidegate/json_columns/test_json_rows.py::test_times_of_every_day_are_written_as_numpy_writes_them",
    ),
    Bug(
        "joint-statement-by-place",
        "An expression has the value that it has alone.",
        5,
        "tidegate/expressions/evaluation/evaluate.py",
        "(kind, values[names[plain]])",
        '(kind, values["v0"])',
        "tests/tidegate/expressions/evaluation/test_evaluate.py::test_expressions_side_by_side_have_the_values_and_failures_that_each_has_alone",
    ),
]
