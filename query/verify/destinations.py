"""
The tables of stores and the plain topic that an output writes beside its topic and files.

Law: they are read before the ends of the topics, so they cannot be ahead of the computed results. They are compared only if all results are
computed: rows of tables have no numbers, so nothing shows which rows belong to a part of the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from query.plan.nodes import Plan
from query.verify.plain_rows import PlainTopicCheck, make_plain_check
from query.verify.table_rows import TableCheck, make_store_check, refused_positions
from sinks.stores.base import StoreContext, Stream
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.settings.load import Settings
from tidegate.platform.settings.tables.outputs import OutputSettings
from tidegate.records.result_columns import are_known


@dataclass
class Destinations:
    """The checks of each output, by the number of the output; *notes* name the destinations that are not compared."""

    checks: dict[int, list[TableCheck]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, settings: Settings, admin: Admin, plans: Sequence[Plan]) -> Destinations:
        """Read the rows in the destinations of a script's outputs. Raises like
        :func:`query.verify.table_rows.make_store_check`."""
        destinations = cls()
        kafka = settings.kafka.client_properties()
        for number, plan in enumerate(plans):
            output = settings.output(plan.output)
            if output.stores:
                destinations._read_stores(output, plan, number, admin, kafka)
            topic = admin.find(output.plain_topic) if output.plain_topic else None
            if topic is not None:
                check = make_plain_check(admin, kafka, topic, output.file_span_us)
                destinations._add(number, check, f"retention has deleted the beginning of {topic.name}: it is not compared")
        return destinations

    def leave_out(self) -> None:
        """Compare no destination, because the first results are not computed."""
        left_out = [check for checks in self.checks.values() for check in checks]
        for check in left_out:
            check.close()
        self.checks = {}
        if left_out:
            names = ", ".join(check.name for check in left_out)
            self.notes.append(f"{names} cannot be compared: the results are not computed from their beginning")

    def leave_out_plain(self, number: int) -> None:
        """Compare no plain topic of an output: nothing tells which of its rows are from spans that can be computed."""
        checks = self.checks.get(number, [])
        for check in checks:
            if isinstance(check, PlainTopicCheck):
                check.close()
        self.checks[number] = [check for check in checks if not isinstance(check, PlainTopicCheck)]

    def _read_stores(self, output: OutputSettings, plan: Plan, number: int, admin: Admin, kafka: dict[str, str]) -> None:
        topic = admin.find(str(output.topic))
        columns = output.columns_of(plan.columns)
        if topic is None or not are_known(columns):
            return
        context = StoreContext(output.name, Stream(topic.name, topic.topic_id, topic.partitions), columns)
        refused = refused_positions(admin, kafka, topic.name)
        for kind, store in output.stores.items():
            self._add(number, make_store_check(kind, store, context, refused), f"the store {kind} cannot be read: it is not compared")

    def _add(self, number: int, check: TableCheck | None, why_not: str) -> None:
        if check is None:
            self.notes.append(why_not)
        else:
            self.checks.setdefault(number, []).append(check)
