"""Planted bugs in batches that stay open: facts, acknowledgements, positions and their ends."""

from __future__ import annotations

from planted.bug import Bug

_OPEN = "tests/ingest/stage/test_open_batch.py::"
_CUT = _OPEN + "test_events_do_not_depend_on_where_open_batches_are_cut"
_QUERY = "tests/query/stage/test_open_batch.py::test_results_do_not_depend_on_where_open_batches_are_cut"
_ESTIMATES = _OPEN + "test_estimates_of_open_batches_and_of_the_planner_hold"

OPENING = [
    Bug(
        "facts-unused-while-open",
        "An estimate that the journal has where an open batch reads counts there.",
        3,
        "ingest/stage/range_walk.py",
        "skips=(), **end.range_fields())\n",
        'skips=(), **end.range_fields() | {"marks": ()})\n',
        _CUT,
    ),
    Bug(
        "judged-before-closed",
        "A record of an open batch is judged only after the journal has closed its position: no later estimate may count below it.",
        3,
        "ingest/stage/open_batch.py",
        "        closed = self._close(",
        "        closed = {place: PlannedPosition(end) for place, end in ends.items()} or self._close(",
        _CUT,
    ),
    Bug(
        "cti-before-acknowledgement",
        "A CTI is sent only after the broker has acknowledged every event below it.",
        4,
        "ingest/stage/range_output.py",
        '    producer.flush(topic)\n    pause_at("events acknowledged")\n',
        '    pause_at("events acknowledged")\n',
        _CUT,
    ),
    Bug(
        "saved-past-what-was-written",
        "A batch is committed only after all that it has written is acknowledged.",
        6,
        "ingest/stage/processor.py",
        "                write_ctis(WORKER.producer(self._plan.kafka), self._plan.settings.ordered_topic, self._ctis)\n",
        "                self._ctis = []\n",
        _CUT,
    ),
    Bug(
        "open-batch-read-again",
        "A range begins where the state stands: an open batch has gone on beyond the offset that Spark has logged.",
        6,
        "ingest/stage/range_walk.py",
        "        start = min(max(planned.start, self.next_offset), end)\n",
        "        start = planned.start\n",
        _CUT,
    ),
    Bug(
        "position-of-a-torn-batch",
        "Where a batch that was not committed had come to is no position to read from.",
        6,
        "ingest/planner/planner.py",
        "                start=first.next_offset,\n",
        "                start=judged_positions({partition: first}, read_stage_progress(self._folder))[partition].next_offset,\n",
        _OPEN + "test_the_report_of_a_batch_that_was_not_committed_is_no_position",
    ),
    Bug(
        "open-estimate-not-journaled",
        "An open batch uses the estimate that the journal has agreed to, none of its own.",
        3,
        "ingest/stage/open_batch.py",
        "        self.walk.go_on(None, end)\n",
        "        self.walk.go_on(None, replace(end, frontier_us=end.frontier_us + 1_000_000))\n",
        _ESTIMATES,
    ),
    Bug(
        "open-estimate-counted-from-the-end-seen",
        "The planner counts on from an open batch's estimate from when it was made, not from when the end was first seen.",
        3,
        "ingest/planner/idle_estimates.py",
        "            elif partition in stages.current and stages.current[partition].estimated_us:\n",
        "            elif False:\n",
        _ESTIMATES,
    ),
    Bug(
        "open-estimate-as-an-arrival",
        "An estimate of an open batch is no arrival that shows the brokers' clock.",
        3,
        "ingest/stage/open_batch.py",
        "        self.seen_us, self.estimated_us, self.frontier_us = 0, boottime_us(), end.frontier_us\n",
        "        self.estimated_us, self.frontier_us = boottime_us(), end.frontier_us\n",
        _ESTIMATES,
    ),
    Bug(
        "open-before-a-skip",
        "No batch stays open while offsets to skip lie ahead.",
        6,
        "ingest/planner/opening.py",
        "all(until <= position.next_offset for _, until in",
        "all(until >= 0 for _, until in",
        _OPEN + "test_a_batch_stays_open_only_at_the_ends_of_logs_without_skips_ahead",
    ),
    Bug(
        "query-cti-before-acknowledgement",
        "A CTI of an open query is sent only after the broker has acknowledged every result below it.",
        5,
        "query/stage/open_batch.py",
        "        if any(have_results):\n            self._flush()\n",
        "",
        _QUERY,
    ),
    Bug(
        "open-query-not-saved",
        "The state of an open batch is saved before Spark commits it.",
        6,
        "query/stage/processor.py",
        "        for run in runs:\n            run.save()\n",
        "",
        _QUERY,
    ),
    Bug(
        "query-position-of-a-torn-batch",
        "Where an open batch of a query that was not committed had come to is no position to read from.",
        6,
        "query/stage/planner.py",
        "                start=start.positions[log],\n",
        "                start=min(read_to(Path(self._plan.checkpoint), start.positions, math.inf)[log], until),\n",
        _QUERY,
    ),
    Bug(
        "open-query-passes-a-log",
        "A round of an open query goes on where its last one ended, in each of its logs.",
        6,
        "query/stage/open_batch.py",
        "        self._positions[log] = int(records.offset[-1]) + 1\n",
        "        self._positions[log] = int(records.offset[-1]) + 2\n",
        _QUERY,
    ),
]
