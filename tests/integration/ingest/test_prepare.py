"""What a start finds out before Spark runs: where a topic begins and goes on, and what nothing can be gone on with."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]
from support.cutting_proxy import CuttingProxy
from support.stack.drawn_logs import START_MS, Raw
from support.stack.topics import create, delete, fresh, produce, topic_id, widen

from ingest import job
from ingest.config import IngestPlan
from ordering.errors import RefusedError, UnreachableError
from ordering.protocol.punctuation import Cause, Cti
from ordering.ticks import MINUTE_US, SECOND_US
from tidegate.platform.checkpoint.known_topics import LOOKS_UNTIL_DELETED
from tidegate.platform.checkpoint.output_start import Start, parse_start
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.kafka.writer import ChannelWriter, GaplessProducer
from tidegate.platform.observe.progress_store import ProgressPublisher
from tidegate.platform.observe.recovery_report import Recovery, RecoveryKind
from tidegate.platform.observe.reports import IngestReport
from tidegate.platform.settings.load import Settings, load

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

START_US = START_MS * 1000
EVENTS = 100
"""In each of two partitions, one a second."""


class Scene:
    """An input and its ordered topic, which nobody writes but the test."""

    def __init__(self, stack: Stack, folder: Path, **settings: str) -> None:
        self.topic = create(stack.bootstrap, fresh("prepared"), 2)
        self.ordered = f"{self.topic}.ordered"
        self.bootstrap = stack.bootstrap
        self.admin = AdminClient({"bootstrap.servers": stack.bootstrap})
        self.say()
        services = {"kafka.bootstrap": stack.bootstrap, "spark.checkpoint_dir": str(folder)}
        of_input = {"topic": self.topic, "timestamp_by": "at", "early": "10s", **settings}
        named = {f"inputs.events.{name}": value for name, value in of_input.items()}
        self.settings: Settings = load(None, {**services, **named}, env={"TIDEGATE_REDIS__URL": stack.redis_url})
        self.folder = folder / f"ingest-{self.ordered}"

    def say(self) -> None:
        """Produce one event a second."""
        raws = [Raw(partition, None, b"{}", START_MS + 1000 * second) for second in range(EVENTS) for partition in range(2)]
        produce(self.bootstrap, self.topic, raws)

    def prepare(self, start: str | None = None) -> tuple[IngestPlan, Recovery]:
        """Start, as far as Spark."""
        return job.prepare(self.settings, "events", False, parse_start(start, START_US + 20 * SECOND_US))

    def refused(self, start: str | None = None) -> RefusedError:
        """Start what must be refused."""
        with pytest.raises(RefusedError) as refusal:
            self.prepare(start)
        return refusal.value

    def positions(self, start: str | None = None) -> list[int]:
        """Start; return where the partitions are read from."""
        plan, recovery = self.prepare(start)
        assert [recovery.starts[partition] for partition in plan.partitions] == [plan.starts[each].next_offset for each in plan.partitions]
        return [plan.starts[partition].next_offset for partition in plan.partitions]

    def promise(self, plan: IngestPlan, *channels: tuple[int, int]) -> None:
        """Write a CTI (roster number, c) into each of some channels, as it stands five seconds later: that is how late events may be."""
        producer = GaplessProducer(plan.kafka)
        places = [(number, c, c + 5 * SECOND_US) for number, c in channels]
        ctis = [
            Cti(number, number, c, 0, 0, (arrival_us - START_US) // SECOND_US + 1, arrival_us, c, plan.roster, Cause.EVENT)
            for number, c, arrival_us in places
        ]
        ChannelWriter(producer, self.ordered).write_ctis(ctis)
        producer.flush(self.ordered)

    def planned(self, batches: Sequence[Sequence[int]], done: int) -> None:
        """Leave a checkpoint: the offsets at the end of each batch, the last of which may not be *done*."""
        for name in ("offsets", "commits"):
            (self.folder / "spark" / name).mkdir(parents=True, exist_ok=True)
        for batch, ends in enumerate(batches):
            places = ", ".join(f'"{self.topic}/{number}": {{"next_offset": {end}}}' for number, end in enumerate(ends))
            (self.folder / "spark" / "offsets" / str(batch)).write_text(
                f'v1\n{{}}\n{{"final": 0, "joins": {{}}, "partitions": {{{places}}}}}'
            )
            if batch <= done:
                (self.folder / "spark" / "commits" / str(batch)).write_text("v1\n{}")


def test_a_topic_is_begun_at_its_start_time_and_stays_bound_to_it(stack: Stack, tmp_path: Path) -> None:
    """S less early, by Kafka's time index; the same again and nothing said go on, until something is written anything may be asked for."""
    scene = Scene(stack, tmp_path)
    assert scene.positions() == [0, 0]
    assert scene.prepare()[1].kind is RecoveryKind.NEW
    assert scene.positions("2024-03-01T00:00:30Z") == [20, 20]
    plan, recovery = scene.prepare()
    assert (recovery.kind, plan.start_us, recovery.ahead) == (RecoveryKind.START, START_US + 30 * SECOND_US, 2 * (EVENTS - 20))
    assert scene.positions("now") == [10, 10], "nothing was written: another start may be asked for"
    scene.promise(plan, (0, START_US + 50 * SECOND_US))
    scene.planned([[15, 15], [40, 40], [60, 60]], done=1)
    plan, recovery = scene.prepare()
    assert (recovery.kind, recovery.batch, recovery.repeats_batch, recovery.ahead) == (RecoveryKind.CHECKPOINT, 1, True, 2 * (EVENTS - 40))
    assert plan.start_us == START_US + 20 * SECOND_US
    for same in ("now", "last-stopped"):
        assert scene.prepare(same)[1] == recovery
    for other in ("earliest", "2024-03-01T00:00:30Z"):
        assert scene.refused(other).code == "TG-START-BOUND"


def test_a_lost_checkpoint_is_made_up_for_from_promises_and_the_start_of_the_run(stack: Stack, tmp_path: Path) -> None:
    """Each channel from its c, one that has promised nothing from S; N stays that of the topic when the input has grown."""
    scene = Scene(stack, tmp_path, idle="off")
    plan, _ = scene.prepare("2024-03-01T00:00:30Z")
    scene.promise(plan, (0, START_US + 50 * SECOND_US))
    (scene.folder / "resumed.json").unlink()
    (scene.folder / "settings.json").unlink()
    assert scene.refused("now").code == "TG-START-BOUND"
    plan, recovery = scene.prepare()
    assert recovery.kind is RecoveryKind.CTIS
    assert [plan.starts[partition].next_offset for partition in plan.partitions] == [40, 20]
    states = [plan.first_state(plan.model(number)) for number in range(2)]
    starts = [state.output_start.start_us[number] for number, state in enumerate(states) if state.output_start is not None]
    assert starts == [START_US + 50 * SECOND_US, START_US + 30 * SECOND_US]
    widen(stack.bootstrap, scene.topic, 3)
    plan, _ = scene.prepare()
    assert plan.output_partitions == 2


def test_what_must_be_read_and_is_gone_is_named(stack: Stack, tmp_path: Path) -> None:
    """At an output start time, after a checkpoint, and after a first batch that never ended."""
    scene = Scene(stack, tmp_path)
    plan, _ = scene.prepare()
    scene.planned([[15, 15], [40, 40]], done=0)
    for future in scene.admin.delete_records([TopicPartition(scene.topic, 1, 30)]).values():
        future.result(30)
    after_a_batch = scene.refused()
    scene.planned([[15, 40]], done=-1)
    (scene.folder / "spark" / "commits" / "0").unlink()
    assert (after_a_batch.code, scene.refused().code) == ("TG-RETENTION", "TG-RETENTION")
    assert f"{scene.topic}-1 that are still to be read: needed from offset 15, there from offset 30" in after_a_batch.what
    other = replace_input(scene, "anew.ordered")
    told = refused(other, "2024-03-01T00:00:30Z")
    assert told.code == "TG-RETENTION"
    assert "all that arrived from 2024-03-01T00:00:20Z on" in told.what
    with ProgressPublisher(scene.settings.redis, f"{scene.topic}.anew.ordered", input="events") as published:
        published.publish([IngestReport(scene.topic, 0, complete_us=START_US + MINUTE_US)])
    plan, _ = job.prepare(other, "events", False, Start("last-stopped"))
    assert plan.start_us == START_US + MINUTE_US
    assert [plan.starts[partition].next_offset for partition in plan.partitions] == [50, 50]


def replace_input(scene: Scene, ordered: str) -> Settings:
    """Settings of the same input into another ordered topic."""
    inputs = {"events": scene.settings.inputs["events"].model_copy(update={"ordered_topic": f"{scene.topic}.{ordered}"})}
    return scene.settings.model_copy(update={"inputs": inputs})


def refused(settings: Settings, start: str) -> RefusedError:
    """Start under *settings* what must be refused."""
    with pytest.raises(RefusedError) as refusal:
        job.prepare(settings, "events", False, parse_start(start, START_US))
    return refusal.value


def test_topics_are_known_by_their_id_at_a_start_and_while_a_job_runs(stack: Stack, tmp_path: Path) -> None:
    """The raw topic made again, the ordered topic deleted or made again: refused by name; partitions may be added."""
    scene = Scene(stack, tmp_path)
    plan, _ = scene.prepare()
    look = job.make_end_lookup(plan)
    assert look(plan.partitions) == {(scene.topic, 0): EVENTS, (scene.topic, 1): EVENTS}
    widen(stack.bootstrap, scene.topic, 3)
    assert len(look(plan.partitions)) == 2
    scene.prepare()
    delete(stack.bootstrap, scene.ordered)
    create(stack.bootstrap, scene.ordered, 2)
    for refusal in (scene.refused(), refused_look(look, plan)):
        assert refusal.code == "TG-TOPIC-RECREATED"
        assert scene.ordered in refusal.what
    plan = replace(plan, ordered_topic_id=topic_id(stack.bootstrap, scene.ordered))
    look = job.make_end_lookup(plan)
    delete(stack.bootstrap, scene.ordered)
    assert "deleted (" in scene.refused().what
    for _ in range(LOOKS_UNTIL_DELETED - 1):
        with pytest.raises(UnreachableError, match="its brokers are coming back"):
            look(plan.partitions)
    assert "deleted (" in refused_look(look, plan).what
    (scene.folder / "settings.json").unlink()
    plan, _ = scene.prepare()
    delete(stack.bootstrap, scene.topic)
    create(stack.bootstrap, scene.topic, 3)
    for refusal in (scene.refused(), refused_look(job.make_end_lookup(plan), plan)):
        assert refusal.code == "TG-TOPIC-RECREATED"
        assert f"topic {scene.topic} has been deleted and made again" in refusal.what


def refused_look(look: Any, plan: IngestPlan) -> RefusedError:
    """Look as a running job does at topics that are not what they were."""
    with pytest.raises(RefusedError) as refusal:
        look(plan.partitions)
    return refusal.value


def test_a_question_is_answered_although_the_first_connection_is_given_up(stack: Stack) -> None:
    """
    librdkafka closes the connection to a bootstrap server with its first metadata, and loses what else was asked there: by itself it would
    ask again three seconds later.
    """
    topic = create(stack.bootstrap, fresh("connecting"), 1)
    proxy = CuttingProxy(int(stack.bootstrap.rpartition(":")[2]), delay_s=0.5)
    try:
        admin = Admin({"bootstrap.servers": f"127.0.0.1:{proxy.port}"})
        # It is connected and waits for the metadata.
        time.sleep(0.75)
        began_s = time.monotonic()
        assert admin.ends([(topic, 0)]) == {(topic, 0): 0}
        assert time.monotonic() - began_s < 2.9
    finally:
        proxy.close()
