"""What a query's checkpoint is bound to: everything that decides its results, and the ids of the topics it reads and writes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from ordering.errors import SettingError
from ordering.ticks import INFINITY
from query.config import QueryPlan
from query.javascript.declarations import functions_binding
from query.operators.joins.pair_limits import JOIN_PAIRS_MAX
from query.plan.nodes import Join, Plan, ReferenceJoin, exprs_in, walk
from query.start.bound_geography import geography_binding
from query.start.bound_zones import zones_binding
from query.start.bucket_layout import exchange_binding
from query.start.output_start import start_binding
from query.start.result_limits import RESULT_BYTES_MAX
from tidegate.language.expressions.functions.catalog import VERSIONS
from tidegate.language.expressions.tree import Call, CaseFolded, Cast, Expr
from tidegate.platform.checkpoint.binding import TASKS
from tidegate.platform.checkpoint.output_start import Start
from tidegate.platform.settings.tables.outputs import OutputSettings
from tidegate.records.payloads.formats import PayloadFormat

_TOPIC_IDS = "topic_ids"
RESULT_TOPIC_IDS = "result_topic_ids"


def make_binding(plan: QueryPlan, topic_ids: Mapping[str, str], start: Start) -> dict[str, str]:
    """Return the fields to which the checkpoint of a job is bound; SettingError if the outputs of one script have different paces."""
    outputs = plan.outputs
    if len({str(output.pace()) for output in outputs}) > 1:
        where = ", ".join(f"outputs.{output.name}" for output in outputs)
        fix = "give them the same cti_every_events, cti_every and cti_delay, or run each SELECT as its own query"
        raise SettingError("the outputs of one script must have the same CTI pacing", code="TG-SETTING-PACE", where=where, fix=fix)
    return {
        "plan": "\n".join(output_plan.explain() for output_plan in plan.plans),
        **types_and_case(plan.plans),
        **zones_binding(plan.plans),
        **geography_binding(plan.plans),
        **functions_binding(plan.plans),
        **versions_binding(plan.plans),
        **_join_binding(plan),
        **start_binding(start),
        # A bounded recount leaves out later results, so no other run can continue it in the order of the log.
        "until": "" if plan.until_us == INFINITY else str(plan.until_us),
        "reads": ",".join(feed.topic for feed in plan.feeds),
        "partitions": ",".join(str(feed.partitions) for feed in plan.feeds),
        _TOPIC_IDS: json.dumps(dict(topic_ids), sort_keys=True),
        **{f"payloads.{feed.input}": _payload_binding(feed.payloads) for feed in plan.feeds},
        "output": _outputs_binding(outputs),
        RESULT_BYTES_MAX: json.dumps(plan.result_bytes_max),
        "pace": str(outputs[0].pace()),
        "exchange": exchange_binding(plan.exchange),
        TASKS: str(plan.shuffle_partitions),
    }


def query_text(plans: Sequence[Plan], reads: Iterable[str]) -> str:
    """Return which query computes results, from which ordered topics, as text: two runs with the same text compute the same."""
    types = types_and_case(plans)
    functions = [f"{name} {text}" for name, text in (functions_binding(plans) | versions_binding(plans)).items()]
    head = [f"reads {', '.join(reads)}", f"types {types['types']}; case {types['case']}", *functions]
    return "\n".join([*head, *(plan.explain() for plan in plans)])


def types_and_case(plans: Sequence[Plan]) -> dict[str, str]:
    """
    Return what the text of plans does not show: declared types of fields, and whether comparisons of texts ignore case. Two scripts whose
    plans print alike and that agree in this compute the same.
    """
    exprs = _exprs_in(plans)
    types = dict.fromkeys(f"{expr.arg} {expr.kind.asa_name}" for expr in exprs if isinstance(expr, Cast) and expr.declared)
    folds = any(isinstance(expr, CaseFolded) for expr in exprs)
    return {"types": ", ".join(types), "case": "ignored" if folds else "distinguished"}


def versions_binding(plans: Sequence[Plan]) -> dict[str, str]:
    """Return the field that holds the versions of the functions that a query calls; nothing if none of them ever gave other values."""
    called = sorted({expr.name for expr in _exprs_in(plans) if isinstance(expr, Call)} & VERSIONS.keys())
    return {"function_versions": ", ".join(f"{name} {VERSIONS[name]}" for name in called)} if called else {}


def _exprs_in(plans: Sequence[Plan]) -> list[Expr]:
    nodes = dict.fromkeys(node for plan in plans for node in walk(plan.root))
    return [expr for node in nodes for expr in exprs_in(node)]


def bound_topic_ids(binding: Mapping[str, str]) -> dict[str, str]:
    """Return the ids of the ordered topics that a checkpoint is bound to, by name."""
    return dict(json.loads(binding.get(_TOPIC_IDS, "{}")))


def result_topics(outputs: Sequence[OutputSettings]) -> set[str]:
    """Return the names of the topics that hold the results of *outputs*, plain ones too: made anew, each would lack what stood in it."""
    return {topic for output in outputs for topic in (output.topic, output.plain_topic) if topic}


def result_binding(topic_ids: Mapping[str, str]) -> dict[str, str]:
    """Return the part of a binding that names result topics with these ids."""
    return {RESULT_TOPIC_IDS: json.dumps(dict(topic_ids), sort_keys=True)}


def bound_result_ids(binding: Mapping[str, str]) -> dict[str, str]:
    """Return the ids of the result topics that a checkpoint is bound to, by name."""
    return dict(json.loads(binding.get(RESULT_TOPIC_IDS, "{}")))


def _outputs_binding(outputs: Sequence[OutputSettings]) -> str:
    return json.dumps(
        [
            [
                *(output.topic, output.files, output.file_format, output.file_span_us, output.plain_topic, output.sink),
                *([] if output.file_folders == "none" else [output.file_folders]),
            ]
            for output in outputs
        ]
    )


def _join_binding(plan: QueryPlan) -> dict[str, str]:
    """Return the limit of joins, if the query has a join and the limit is not the default one."""
    has_join = any(isinstance(node, (Join, ReferenceJoin)) for output_plan in plan.plans for node in walk(output_plan.root))
    return {"join_pairs_max": str(plan.join_pairs_max)} if has_join and plan.join_pairs_max != JOIN_PAIRS_MAX else {}


def _payload_binding(payloads: PayloadFormat) -> str:
    columns = {"csv": f"csv {payloads.csv_delimiter} {','.join(payloads.csv_columns)}"}
    return json.dumps({"format": columns.get(payloads.name, payloads.name), **payloads.fingerprint()}, sort_keys=True)
