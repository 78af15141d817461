"""
The queries in Quix Streams: a process a core in one consumer group, exactly once, state in RocksDB with a change log.

The join has one process: with two, 3.28 stands still once the second has joined the group and partitions change hands.

Usage: QUIX-PYTHON quix_job.py ASKED, see asked.py. It has no end of input: it is stopped once all events are taken, and
windows that no later event of their key has closed stay open. It puts nothing in order: LAG is the value seen before.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from datetime import timedelta
from typing import Any

from asked import Asked, asked, tell
from quixstreams import Application
from quixstreams.dataframe import StreamingDataFrame
from quixstreams.dataframe.windows.aggregations import Count, Sum

_LAST_S = 3.0
"""After the last event is taken, its results are made; a stop then writes and commits them."""


def application(job: Asked, place: int) -> Application:
    """Return one process's part."""
    return Application(
        job.bootstrap,
        consumer_group=job.sink,
        auto_offset_reset="earliest",
        state_dir=f"{job.scratch}/{place}",
        processing_guarantee="exactly-once",
        producer_extra_config={"compression.type": "lz4", "linger.ms": 20},
        loglevel="ERROR",
    )


def results(job: Asked, sides: list[StreamingDataFrame]) -> StreamingDataFrame:
    """Return what the query finds."""
    events, bound = sides[0], timedelta(milliseconds=job.bound_ms)
    if job.query == "tumbling":
        return _closed(events.tumbling_window(timedelta(seconds=10), grace_ms=bound).agg(n=Count(), total=Sum("value")).final())
    if job.query == "hopping":
        hops = events.hopping_window(timedelta(seconds=60), timedelta(seconds=1), grace_ms=bound)
        return _closed(hops.agg(n=Count()).final())
    if job.query == "join":
        left, right = (side.apply(lambda event, key, ms, headers: {**event, "second": ms // 1000}, metadata=True) for side in sides)
        near = {"backward_ms": 999, "forward_ms": 1999, "grace_ms": 1999 + job.bound_ms}
        pairs = left.join_interval(right, on_merge=_pair, **near)
        return pairs.filter(lambda pair: 0 <= pair["crossed"] <= 1).apply(lambda pair: {k: v for k, v in pair.items() if k != "crossed"})
    return events.apply(_with_before, stateful=True)


def _closed(windows: StreamingDataFrame) -> StreamingDataFrame:
    return windows.apply(
        lambda window, key, ms, headers: {
            "device": key,
            "window_end": window["end"],
            **{name: value for name, value in window.items() if name in ("n", "total")},
        },
        metadata=True,
    )


def _pair(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    return {
        "device": left["device"],
        "at": left["ts"],
        "followed": right["ts"],
        "value": left["value"],
        "following": right["value"],
        "crossed": right["second"] - left["second"],
    }


def _with_before(event: dict[str, Any], state: Any) -> dict[str, Any]:
    before = state.get("before")
    state.set("before", event["value"])
    return {**event, "before": before}


def work(job: Asked, place: int, taken: Any) -> None:
    """Run one process's part, counting in *taken*, until it is terminated."""
    app = application(job, place)

    def moment_ms(value: Any, headers: Any, stamp_ms: int, kind: Any) -> int:
        return int(stamp_ms if job.by_record else value["ts"]) - job.shift_ms

    def count(event: Any) -> None:
        taken.value += 1

    sides = [
        app.dataframe(app.topic(topic, key_deserializer="str", value_deserializer="json", timestamp_extractor=moment_ms)).update(count)
        for topic in job.topics
    ]
    results(job, sides).to_topic(app.topic(job.sink, key_serializer="str", value_serializer="json"))
    app.run()


def main() -> None:
    """Run one query until all events are taken."""
    job = asked()
    processes = 1 if job.query == "join" else job.cores
    counters = [multiprocessing.Value("q", 0, lock=False) for _ in range(processes)]
    workers = [multiprocessing.Process(target=work, args=(job, place, counter)) for place, counter in enumerate(counters)]
    for worker in workers:
        worker.start()
    while (taken := sum(counter.value for counter in counters)) < job.events:
        tell(taken)
        if any(not worker.is_alive() for worker in workers):
            sys.exit("a process has ended early")
        time.sleep(0.1)
    tell(taken)
    time.sleep(_LAST_S)
    for worker in workers:
        worker.terminate()
        worker.join()
    tell(taken)


if __name__ == "__main__":
    main()
