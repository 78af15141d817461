"""
The runs that have written an output's results, each with the recount that computes its part again.

A query that was changed has written one topic with several scripts. The history of the topic has each of them, and where its run began
(:mod:`tidegate.platform.checkpoint.query_history`). Law: a run's results are those from the number at which it went on up to the number at
which the next run did; a file or a transaction is of the run in which its span was open. So each is computed by its own script, whatever
the query is. If an earlier script means another query by now, only the runs after it are computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from ordering.errors import QueryError, RefusedError, SettingError
from ordering.model.step import Released
from ordering.ticks import DAY_US, INFINITY, NEVER, SECOND_US, format_tick
from query.buckets.result_channel import Sheet
from query.javascript.declarations import declare_recorded
from query.plan.nodes import UNBOUNDED, Plan
from query.script_plans import bind_plans
from query.start.binding import query_text
from query.start.recount import KnownRun, Recount, plan_recount
from query.start.run_history import first_us, is_readable, output_key, own_from_us, promises_of, written_places
from query.start.survey import survey_topics
from query.verify.recompute import Computed
from tidegate.language.expressions.syntax.parse import parse_script
from tidegate.ordered_topic.compare.sides import complete_from_us
from tidegate.platform.checkpoint.output_start import Start
from tidegate.platform.checkpoint.query_history import RecordedRun, known_runs
from tidegate.platform.kafka.admin import Admin, Topic
from tidegate.platform.settings.load import Settings
from tidegate.platform.settings.tables.outputs import OutputSettings
from tidegate.records.result_columns import Column

# The last step, doubled from a second on, by which a later instant is tried if results cannot be computed from an instant on.
_STEP_MAX_US = 40 * DAY_US


@dataclass(frozen=True, slots=True)
class RunBounds:
    """Of one output of a run, by bucket: where the parts of this run and of the next one meet."""

    # The number of the first result that the next run wrote.
    numbers: Mapping[int, int]
    # The start of the first span whose file the next run wrote, microseconds.
    files_us: Mapping[int, int]
    # The first span that the plain topic lacked when the run, and when the next one, began.
    published: tuple[Mapping[int, int], Mapping[int, int] | None]


@dataclass(frozen=True)
class RunPart:
    """The part that one run has written."""

    # Computes its results.
    recount: Recount
    # Results from here on are none of its; None: it is the last run, or no limit is asked for.
    until_us: int | None
    # For each output of the run the number of the same output in the query that is verified; None: that has it no more.
    outputs: Sequence[int | None]
    # By the number in the query that is verified; empty for the last run.
    bounds: Mapping[int, RunBounds] = field(default_factory=dict)
    # Whether the history knows a run after it.
    is_last: bool = True
    # Results from here on are this run's or a later one's, microseconds.
    own_from_us: int = NEVER

    def limit(self, output: int, bucket: int) -> int | None:
        """Return the number of the first result in a channel that a later run wrote; None: none did."""
        return None if self.is_last or output not in self.bounds else self.bounds[output].numbers.get(bucket, 0)

    def columns(self, output: int) -> Sequence[Column] | None:
        """Return the columns of an output in this run's query; None if it has no such output."""
        return self.recount.plan.plans[self.outputs.index(output)].columns if output in self.outputs else None

    def own(self, computed: Computed) -> Computed | None:
        """Return this run's part of what its query gives, under the output's number in the query that is verified."""
        output, bucket = self.outputs[computed.output], computed.bucket
        if output is None:
            return None
        limit, results, sheets = self.limit(output, bucket), computed.results, computed.sheets
        if limit is not None and results is not None and self.recount.from_us is None:
            results = _first_results(results, int(np.searchsorted(results.seq, limit)))
        if limit is not None:
            until_us = self.bounds[output].files_us.get(bucket, NEVER)
            sheets = [sheet for sheet in sheets if sheet.start_us < until_us]
        return replace(computed, output=output, results=results, sheets=sheets)

    def published(self, computed: Computed, span_us: int) -> Computed | None:
        """Return the sheets that this run has published in a plain topic, numbered likewise."""
        output = self.outputs[computed.output]
        if output is None or output not in self.bounds:
            return None if output is None else replace(computed, output=output)
        first, below = self.bounds[output].published
        least, limit = first.get(computed.bucket, 0), None if below is None else below.get(computed.bucket, 0)

        def is_own(sheet: Sheet) -> bool:
            number = sheet.start_us // span_us
            return number >= least and (limit is None or number < limit)

        return replace(computed, output=output, results=None, sheets=list(filter(is_own, computed.sheets)))


def _first_results(results: Released, count: int) -> Released:
    if count >= len(results):
        return results
    names = ("output_partition", "seq", "system_us", "event_time_us", "arrival_us", "offset", "flags", "key", "value")
    return replace(results, **{name: getattr(results, name)[:count] for name in names})


@dataclass
class RunParts:
    """
    The parts of the runs in their order; results from *since_us* on are computed, microseconds, None: all. *changed_places* has, by output,
    the instant before which files and plain topic were written otherwise than now; *notes* say what is not checked.
    """

    parts: list[RunPart]
    since_us: int | None
    changed_places: dict[int, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Query:
    """What the runs of one output are computed from."""

    settings: Settings
    admin: Admin
    plans: tuple[Plan, ...]
    requested: Start | None


def plan_runs(
    settings: Settings,
    admin: Admin,
    plans: tuple[Plan, ...],
    requested: Start | None,
    since_us: int | None,
    until_us: int | None,
) -> RunParts:
    """
    Return the parts of the runs with results from *since_us* on and before *until_us*, microseconds, None: no limit. If records of
    the topics that they read or wrote are gone, they begin at a later instant. RefusedError: see :func:`query.start.recount.plan_recount`.
    """
    query = _Query(settings, admin, plans, requested)
    outputs = [settings.output(plan.output) for plan in plans]
    runs = _runs_of(query)
    if len(runs) < 2:
        recount = _plan_recount(query, since_us, None)
        from_us = recount.from_us
        since_us = from_us if since_us is None else max(since_us, NEVER if from_us is None else from_us)
        return RunParts([RunPart(recount, until_us, range(len(plans)))], since_us)
    found = RunParts([], since_us)
    queries = [_read_query(query, run) for run in runs[:-1]] + [plans]
    first = max((index + 1 for index, each in enumerate(queries) if each is None), default=0)
    if first:
        found.since_us = _later(found.since_us, own_from_us(runs[first]))
        what = "a script that wrote earlier results means another query, or reads other topics, by now"
        found.notes.append(f"{what}: results before {format_tick(own_from_us(runs[first]))} are not checked")
    topics = survey_topics(settings, plans, admin)
    kafka = settings.kafka.client_properties()
    # Not the plain topics, which have no CTIs.
    written = [topic for output in outputs if (topic := topics.results.get(output.topic or "")) is not None]
    output_from_us = max((complete_from_us(admin, kafka, topic) for topic in written), default=NEVER)
    if output_from_us > NEVER:
        found.since_us = _later(found.since_us, output_from_us)
    last = len(runs) - 1
    while last > first and until_us is not None and first_us(runs[last]) >= until_us:
        last -= 1
    for index in range(first, last + 1):
        known = KnownRun(runs[index], index > 0, index == len(runs) - 1)
        of_run = replace(query, plans=queries[index] or plans, requested=requested if known.is_present else None)
        following = runs[index + 1 :]
        if following and (NEVER if found.since_us is None else found.since_us) >= own_from_us(following[0]) > NEVER:
            continue
        begun = _plan_run(of_run, known, found)
        if begun is None:
            # Nothing of an earlier run can be computed.
            found.parts, found.since_us = [], _later(found.since_us, own_from_us(following[0]))
        else:
            found.parts.append(_part_of(begun, runs[index], following, outputs, until_us))
    _note_changed_places(found, runs[first : last + 1], outputs)
    return found


def _later(one_us: int | None, other_us: int) -> int:
    return other_us if one_us is None else max(one_us, other_us)


def _plan_run(query: _Query, known: KnownRun, found: RunParts) -> Recount | None:
    """
    Return the recount of a run: as it began, or from the instant on from which results are wanted or can be computed. None: of an earlier
    run nothing can be.
    """
    own_us = own_from_us(known.run) if known.goes_on else NEVER
    is_first = not found.parts
    since_us = found.since_us if is_first and found.since_us is not None and found.since_us >= own_us else None
    try:
        return plan_recount(query.settings, query.plans, query.admin, query.requested, since_us, known=known)
    except RefusedError as error:
        if error.code != "TG-RETENTION":
            raise
        try:
            rest = _plan_rest(query, max(own_us, NEVER if found.since_us is None else found.since_us), error, known)
        except RefusedError as refusal:
            if known.is_present or refusal.code != "TG-RETENTION":
                raise
            return None
        found.parts, found.since_us = [], _later(found.since_us, NEVER if rest.from_us is None else rest.from_us)
        return rest


def _part_of(
    recount: Recount, run: RecordedRun, following: Sequence[RecordedRun], outputs: Sequence[OutputSettings], until_us: int | None
) -> RunPart:
    keys = [output_key(output) for output in outputs]
    numbers = [keys.index(key) if (key := output_key(output)) in keys else None for output in recount.plan.outputs]
    bounds = dict(_bounds_of(run, following, outputs))
    if following:
        # A plain topic may have taken spans beyond the last CTI.
        ends_us = [span * outputs[number].file_span_us for number, bound in bounds.items() for span in (bound.published[1] or {}).values()]
        end_us = max(own_from_us(following[0]), *ends_us, NEVER)
        until_us = min(end_us, INFINITY if until_us is None else until_us)
    return RunPart(recount, until_us, numbers, bounds, not following, own_from_us(run))


def _bounds_of(run: RecordedRun, following: Sequence[RecordedRun], outputs: Sequence[OutputSettings]) -> Iterator[tuple[int, RunBounds]]:
    for number, output in enumerate(outputs):
        key = output_key(output)
        # An output may be left out of a script and come back later.
        later = next((each for each in following if key in (each.promises or {})), None)
        promises = {} if later is None else promises_of(later, key)
        files_us = {bucket: promise.c // output.file_span_us * output.file_span_us for bucket, promise in promises.items()}
        published = tuple(
            None if each is None else {int(bucket): span for bucket, span in each.published.get(key, {}).items()} for each in (run, later)
        )
        yield number, RunBounds({bucket: promise.n for bucket, promise in promises.items()}, files_us, (published[0] or {}, published[1]))


def _note_changed_places(found: RunParts, runs: Sequence[RecordedRun], outputs: Sequence[OutputSettings]) -> None:
    """Note from which instant on files and plain topics are those of the present settings."""
    for number, output in enumerate(outputs):
        for run, following in pairwise(runs):
            places = run.places.get(output_key(output))
            if places is not None and list(places) != written_places(output) and (output.files or output.plain_topic):
                found.changed_places[number] = max(own_from_us(following), found.changed_places.get(number, NEVER))
    if found.changed_places:
        latest = format_tick(max(found.changed_places.values()))
        found.notes.append(f"files and plain topics were written otherwise before {latest}: they are not checked before that")


def _runs_of(query: _Query) -> list[RecordedRun]:
    """Return the runs into a query's first topic, the present one last; none if the history has no such."""
    topics = survey_topics(query.settings, query.plans, query.admin)
    topic = topics.results.get(topics.outputs[0].topic or "")
    if topic is None:
        return []
    runs = known_runs(query.settings.redis, topics.folder, topic.name, topic.topic_id)
    # What else is said of the present query than that it is this one is no help.
    is_present = bool(runs) and runs[-1].plan == query_text(query.plans, (read.name for read in topics.ordered.values()))
    return runs if is_present and all(map(is_readable, runs)) else []


def _read_query(query: _Query, run: RecordedRun) -> tuple[Plan, ...] | None:
    """Return the plans of an earlier run's script; None if it means another query by now."""
    if not run.script:
        return None
    try:
        plans = bind_plans(query.settings, declare_recorded(parse_script(run.script, "history"), run.functions), run.into, "history")
        reads = [read.name for read in survey_topics(query.settings, plans, query.admin).ordered.values()]
    except (QueryError, RefusedError, SettingError):
        # Something that it names or reads is gone.
        return None
    return plans if query_text(plans, reads) == run.plan else None


def _plan_recount(query: _Query, since_us: int | None, known: KnownRun | None) -> Recount:
    """Return the recount. If records of the topics that it reads or wrote are gone, it begins at a later instant."""
    refusal: RefusedError | None = None
    try:
        recount = plan_recount(query.settings, query.plans, query.admin, query.requested, since_us, known=known)
        if all(complete_from_us(query.admin, recount.plan.kafka, topic) == NEVER for topic in _result_topics(recount)):
            return recount
    except RefusedError as error:
        if error.code != "TG-RETENTION":
            raise
        refusal = error
    return _plan_rest(query, since_us, refusal, known)


def _plan_rest(query: _Query, since_us: int | None, refusal: RefusedError | None, known: KnownRun | None) -> Recount:
    """
    Return the recount from the first instant on that can be computed and compared; *refusal* is the error of the recount from *since_us*
    on. Raises RefusedError (TG-RETENTION): there is no such instant.
    """
    admin, plans, properties = query.admin, query.plans, query.settings.kafka.client_properties()
    topics = survey_topics(query.settings, plans, admin)
    lookback_us = max(plan.lookback_us for plan in plans)
    input_from_us = max(complete_from_us(admin, properties, topic) for topic in topics.ordered.values())
    output_from_us = max((complete_from_us(admin, properties, topic) for topic in topics.results.values()), default=NEVER)
    if INFINITY in (input_from_us, output_from_us) or (refusal is not None and lookback_us == UNBOUNDED):
        raise refusal or RefusedError("retention has deleted what was to be verified", code="TG-RETENTION", where=plans[0].output)
    computable_from_us = input_from_us + lookback_us if input_from_us > NEVER else NEVER
    from_us = max(computable_from_us, output_from_us, NEVER if since_us is None else since_us)
    step_us = SECOND_US
    while True:
        try:
            return plan_recount(query.settings, plans, admin, query.requested, from_us, known=known)
        except RefusedError as error:
            # Events that lie ahead of the first CTI that is left may have been deleted: a later instant needs fewer of them.
            if error.code != "TG-RETENTION" or step_us > _STEP_MAX_US:
                raise
        from_us, step_us = from_us + step_us, 2 * step_us


def _result_topics(recount: Recount) -> list[Topic]:
    return [topic for output in recount.plan.outputs if (topic := recount.topics.results.get(output.topic or "")) is not None]
