"""
Where else an output's results stand, beside its topic and files: tables of stores, and a plain topic.

Law: what stands is read before it is known how far the topics go, so it cannot be ahead of what is computed. It is compared only if all
results are computed: rows of tables have no numbers, so nothing tells those of a part from others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from query.plan.nodes import Plan
from sinks.parquet_columns import are_known
from sinks.stores.base import StoreContext, Stream
from tidegate.kafka.admin import Admin
from tidegate.settings.load import Settings
from tidegate.settings.tables.outputs import OutputSettings
from tidegate.verify.plain_rows import make_plain_check
from tidegate.verify.table_rows import TableCheck, make_store_check, refused_positions


@dataclass
class Destinations:
    """The checks of each output, by its number; *notes* say what is not compared."""

    checks: dict[int, list[TableCheck]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, settings: Settings, admin: Admin, plans: Sequence[Plan]) -> Destinations:
        """Read what stands in the destinations of a script's outputs. Raises like :func:`tidegate.verify.table_rows.make_store_check`."""
        found = cls()
        kafka = settings.kafka.client_properties()
        for number, plan in enumerate(plans):
            output = settings.output(plan.output)
            if output.stores:
                found._read_stores(output, plan, number, admin, kafka)
            topic = admin.find(output.plain_topic) if output.plain_topic else None
            if topic is not None:
                check = make_plain_check(admin, kafka, topic, output.file_span_us)
                found._add(number, check, f"retention has deleted the beginning of {topic.name}: it is not compared")
        return found

    def leave_out(self, reason: str) -> None:
        """Compare none of them."""
        names = [check.name for checks in self.checks.values() for check in checks]
        for checks in self.checks.values():
            for check in checks:
                check.close()
        self.checks = {}
        if names:
            self.notes.append(f"{', '.join(names)} cannot be compared: {reason}")

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
