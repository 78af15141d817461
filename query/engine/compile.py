"""From a plan's node to the operator that computes it; :mod:`query.engine.program` combines them."""

from __future__ import annotations

from collections.abc import Mapping

from query.operators.analytic.analysis import Analysis
from query.operators.joins.pair_limits import JOIN_PAIRS_MAX
from query.operators.joins.reference_join import ReferenceTableJoin
from query.operators.joins.temporal_join import TemporalJoin
from query.operators.patterns.recognition import Recognition
from query.operators.rows.apply import Expansion
from query.operators.rows.event_fields import EventFields
from query.operators.rows.project import EncodedProjection, Projection
from query.operators.rows.union import UnionOfRows
from query.operators.windows.windowed_aggregate import WindowAggregation
from query.plan.columns_read import ColumnNumbers
from query.plan.nodes import Analyze, Apply, Custom, Join, Project, Recognize, ReferenceJoin, Rows, Union, WindowedAggregate
from query.plan.operator import Operator
from query.reference.tables import NO_REFERENCES, ReferenceTable


def make_operator(
    node: Rows,
    fields: EventFields | None = None,
    needed: ColumnNumbers = None,
    *,
    is_last: bool = False,
    references: Mapping[str, ReferenceTable] = NO_REFERENCES,
    join_pairs_max: int = JOIN_PAIRS_MAX,
) -> Operator:
    """
    Return the operator that computes a node.

    *fields* extracts the fields of events if the node takes events, *needed* are the columns that other nodes read; *is_last* means that it
    takes events and only its encoded results are needed; *join_pairs_max*: most pairs of one key that a join makes at one instant, and of
    one row with reference data.
    """
    if isinstance(node, WindowedAggregate):
        return WindowAggregation(node, fields or EventFields())
    if isinstance(node, Union):
        return UnionOfRows(node)
    if isinstance(node, Join):
        return TemporalJoin(node, join_pairs_max, needed)
    if isinstance(node, ReferenceJoin):
        return ReferenceTableJoin(node, references[node.name], join_pairs_max)
    if isinstance(node, Analyze):
        return Analysis(node)
    if isinstance(node, Apply):
        return Expansion(node)
    if isinstance(node, Recognize):
        return Recognition(node)
    if isinstance(node, Custom):
        return node.operator
    assert isinstance(node, Project), f"no operator for {node.describe()}"
    return (EncodedProjection if is_last else Projection)(node, fields or EventFields(), needed)
