"""A checkpoint that was damaged, set back or taken from elsewhere: the job stops by a name that
says what to do, or goes on exactly as it should; never is one message wrong or sent twice.

One real run makes the checkpoint. Its last batch was sent but not noted by Spark, as if the job
had died there, so that every start repeats it: a state that is not what it was gives other bytes.
Each fault is put to a fresh copy, at the path the checkpoint had, in one session of Spark's.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.events import Event, Policy, TopicCreate
from spu_assigner.stream.common.release import RELEASE
from spu_assigner.stream.job import sink
from spu_assigner.stream.job.checkpoint.files import CheckpointDamagedError, CheckpointError
from spu_assigner.stream.job.lifecycle import Job, start_query
from spu_assigner.stream.job.marker_check import DigestMismatchError, MarkerGapError
from spu_assigner.stream.job.session import build_session, ensure_jars
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.topic_admin import create_topics
from spu_assigner.stream.kafka.topics import TOPICS, topic_name
from spu_assigner.stream.local.jvm.java import Java
from support.events.builders import Events
from support.events.one_cluster import picture
from support.kafka.shared_broker import SharedBroker
from support.kafka.traffic import PATIENCE_SECONDS, Kafka, expected_maps
from support.shard.checkpoint_state import checkpoint_clusters

PREFIX = "checkpoint-faults."
CLUSTERS = ("c1", "c2")
OUTPUTS = [spec.name for spec in TOPICS if not spec.name.endswith("-events")] + ["ring-events"]
SNAPSHOTS = 3
FLIPS_AT_ONCE = 4
TRIALS = 10  # at least: until each outcome was seen
TRIALS_MAX = 60
SEED = 5


@dataclass
class World:
    """A checkpoint as it should be, an older copy of it, and the session that starts on them."""

    spark: SparkSession
    settings: Settings
    kafka: Kafka
    events: list[Event]  # that were answered
    pristine: Path
    older: Path
    batch: int  # the last one: sent, and not noted
    makers: dict[str, Events] = field(default_factory=dict)

    @property
    def checkpoint(self) -> Path:
        return Path(self.settings.checkpoint)

    def creates(self, count: int) -> list[Event]:
        """That many more, one cluster after the other, sent."""
        names = [CLUSTERS[number % len(CLUSTERS)] for number in range(count)]
        made: list[Event] = [
            self.makers[name].create(f"t{len(self.events) + number}", 4, 2)
            for number, name in enumerate(names)
        ]
        self.kafka.send(made)
        self.events += made
        return made

    def bring_back(self, copy: Path | None = None) -> None:
        shutil.rmtree(self.checkpoint, ignore_errors=True)
        shutil.copytree(copy or self.pristine, self.checkpoint)

    @staticmethod
    def snapshots(checkpoint: Path) -> list[int]:
        """The versions of the state that are there as a whole."""
        return sorted(int(path.stem) for path in checkpoint.glob("state/0/0/*.zip"))

    def path(self, name: str) -> Path:
        """A file by its name: N the last batch, V the state before it, S the last snapshot up to V,
        M the last note about the operator."""
        snapshot = max(each for each in self.snapshots(self.pristine) if each <= self.batch)
        notes = (int(path.name) for path in self.pristine.glob("state/0/_metadata/v2/[0-9]*"))
        numbers = {"N": self.batch, "V": self.batch, "S": snapshot, "M": max(notes)}
        name = re.sub(
            r"\b([NVSM])(?:-(\d))?\b", lambda m: str(numbers[m[1]] - int(m[2] or 0)), name
        )
        (found,) = self.checkpoint.glob(name)
        return found

    def files(self) -> list[str]:
        """All files of the checkpoint, hidden sums as well."""
        found = (path for path in self.pristine.rglob("*") if path.is_file())
        return sorted(str(path.relative_to(self.pristine)) for path in found)

    def ends(self) -> dict[str, int]:
        """Where the output topics end: what is aborted counts as well."""
        consumer = Consumer({"bootstrap.servers": self.settings.bootstrap_servers, "group.id": "x"})
        names = [topic_name(name, prefix=self.settings.topic_prefix) for name in OUTPUTS]
        found = {}
        for name in names:
            for partition in consumer.list_topics(name, 10).topics[name].partitions:
                place = TopicPartition(name, partition)
                found[f"{name}-{partition}"] = consumer.get_watermark_offsets(place, timeout=10)[1]
        consumer.close()
        return found

    def run(
        self, settings: Settings | None = None, until: Callable[[], bool] = lambda: True
    ) -> None:
        """Start, repeat what is to be repeated, answer what is there, and stop.

        Raises:
            AssignerError: what the job ended with.
        """
        job = start_query(self.spark, settings or self.settings)
        try:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not self._is_done(job) or not until():
                job.await_termination(0.05)
                assert time.monotonic() < deadline
        finally:
            job.end_query()

    def _is_done(self, job: Job) -> bool:
        """Whether the last request was answered, or repeated, and Spark has noted it."""
        creates = sum(isinstance(event, TopicCreate) for event in self.events)
        last = job.sink.last
        if last is None or len(self.kafka.read("topic-status")) < creates:
            return False
        newest = max(int(path.name) for path in self.checkpoint.glob("offsets/[0-9]*"))
        return last.batch == newest and (self.checkpoint / f"commits/{newest}").exists()

    def check_state(self) -> None:
        """All that the checkpoint knows is what the core knows."""
        assigner = Assigner()
        for event in self.events:
            assigner.apply(event)
        found = checkpoint_clusters(self.checkpoint, self.spark)
        assert {*found} == {*CLUSTERS}
        for name in found:
            assert picture(found[name]) == picture(assigner.clusters[name])


@pytest.fixture(scope="module")
def world(
    kafka: SharedBroker, java: Java, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("faults")
    create_topics({"bootstrap.servers": kafka.bootstrap_servers}, prefix=PREFIX)
    settings = Settings.load(
        flags={
            "bootstrap_servers": kafka.bootstrap_servers,
            "topic_prefix": PREFIX,
            "checkpoint": str(folder / "checkpoint"),
            "shards": 1,
            "ui_port": 0,
            "master": "local[2]",
            "topic_events_per_batch": 2,
        },
        environ={},
    )
    spark = build_session(settings, java=java, jars=ensure_jars(settings.checkpoint))
    # Some snapshots among few batches.
    spark.conf.set("spark.sql.streaming.stateStore.minDeltasForSnapshot", "3")
    spark.conf.set("spark.sql.streaming.stateStore.maintenanceInterval", "500ms")
    makers = {name: Events(name) for name in CLUSTERS}
    joins: list[Event] = [event for maker in makers.values() for event in maker.joins(0, 1, 2)]
    made = World(
        spark=spark,
        settings=settings,
        kafka=Kafka(settings),
        events=[*joins],
        pristine=folder / "pristine",
        older=folder / "older",
        batch=0,
        makers=makers,
    )
    made.kafka.send(joins)
    made.creates(6)
    made.run()
    shutil.copytree(made.checkpoint, made.older)
    # Spark makes snapshots by and by, and of several that are due the newest alone.
    while (count := len(made.snapshots(made.checkpoint))) < SNAPSHOTS:
        made.creates(6)  # three versions: one snapshot is due
        made.run(until=lambda count=count: len(made.snapshots(made.checkpoint)) > count)
    made.batch = max(int(path.name) for path in (made.checkpoint / "commits").glob("[0-9]*"))
    (made.checkpoint / f"commits/{made.batch}").unlink()
    shutil.move(made.checkpoint, made.pristine)
    spark.conf.set("spark.sql.streaming.stateStore.minDeltasForSnapshot", "1000")  # no more of them
    yield made
    spark.stop()


def damage(world: World, kind: str, name: str) -> None:
    """Damage a file or folder of the checkpoint."""
    path = world.path(name)
    size = path.stat().st_size
    match kind:
        case "deleted" if path.is_dir():
            shutil.rmtree(path)
        case "deleted":
            path.unlink()
        case "empty":
            os.truncate(path, 0)
        case "cut":
            os.truncate(path, size // 2)
        case "cut at a block":  # where the sums that Hadoop keeps beside a file do not show it
            os.truncate(path, (size - 1) // 512 * 512)
        case "flipped":
            flip(path, size // 2, bit=0)
        case "flipped, its sum lost":  # so that Hadoop does not see it
            flip(path, size // 2, bit=0)
            path.with_name(f".{path.name}.crc").unlink()
        case "a folder":
            path.unlink()
            path.mkdir()
        case _:
            raise ValueError(kind)


def flip(path: Path, position: int, *, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


CHANGELOG = "state/0/0/V.changelog"
SNAPSHOT = "state/0/0/S.zip"
OPERATOR = "state/0/_metadata/v2/M"
SCHEMA = "state/0/_stateSchema/default/0_*"

REFUSED: dict[str, Sequence[str]] = {
    "metadata": ["deleted", "empty", "cut", "flipped", "a folder"],
    "offsets/N": ["empty", "cut", "cut at a block", "flipped", "a folder"],
    "offsets/N-1": ["deleted", "cut at a block", "flipped"],
    "offsets": ["deleted"],
    "commits/N-1": ["empty", "flipped"],
    CHANGELOG: ["deleted", "empty", "cut", "flipped, its sum lost"],
    "state": ["deleted"],
    "state/0/0": ["deleted"],
    "state/0/_metadata/v2": ["deleted"],
    OPERATOR: ["empty", "flipped, its sum lost"],
    SCHEMA: ["deleted", "empty", "flipped"],
    "input-topics": ["flipped", "empty"],
    "each snapshot": ["damaged"],
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(name, kind, marks=pytest.mark.smoke if name == "metadata" else ())
        for name, kinds in REFUSED.items()
        for kind in kinds
    ],
)
def test_a_damaged_checkpoint_is_refused_by_name(world: World, name: str, kind: str) -> None:
    """Whatever Spark says of it, the error names what is damaged and both ways back."""
    world.bring_back()
    if name == "each snapshot":
        kinds = cycle(["empty", "cut", "flipped", "flipped, its sum lost"])
        for number, each in zip(world.snapshots(world.checkpoint), kinds, strict=False):
            damage(world, each, f"state/0/0/{number}.zip")
    else:
        damage(world, kind, name)
    before = world.ends()
    with pytest.raises(CheckpointDamagedError) as refused:
        world.run()
    reported = str(refused.value)
    assert f"checkpoint {world.checkpoint} is damaged: " in reported
    assert "Bring back the latest copy of the checkpoint" in reported
    assert "spu-assigner recover --checkpoint NEW" in reported
    assert world.ends() == before


@pytest.mark.parametrize(
    "faults",
    [
        [("deleted", "commits")],
        [("deleted", "offsets/N")],
        [("deleted", name) for name in ("offsets/N-3", "commits/N-3", "input-topics", OPERATOR)],
        [("deleted", SNAPSHOT)],
        [("cut at a block", SNAPSHOT)],
        [("flipped, its sum lost", SNAPSHOT)],
    ],
    ids=str,
)
def test_what_is_not_needed_is_done_without(world: World, faults: list[tuple[str, str]]) -> None:
    """Spark has it twice or reads it no more: it goes on, with the state that it should have."""
    world.bring_back()
    for kind, name in faults:
        damage(world, kind, name)
    before = world.ends()
    world.run()
    assert world.ends() == before
    world.check_state()


@pytest.mark.long("a job is started on many damaged checkpoints")
def test_no_flipped_bits_ever_give_a_wrong_output(world: World) -> None:
    """Bits anywhere in the checkpoint, also in the sums: a named error, or the state as it was."""
    generator = random.Random(SEED)
    files = [name for name in world.files() if (world.pristine / name).stat().st_size]
    before = world.ends()
    outcomes: list[str] = []
    while len(outcomes) < TRIALS or len({*outcomes}) < 2:
        trial = len(outcomes)
        assert trial < TRIALS_MAX, outcomes
        world.bring_back()
        flips = [
            (generator.choice(files), generator.random(), generator.randrange(8))
            for _ in range(FLIPS_AT_ONCE)
        ]
        for name, part, bit in flips:
            path = world.checkpoint / name
            flip(path, int(path.stat().st_size * part), bit=bit)
        try:
            world.run()
        except CheckpointDamagedError:
            outcomes.append("refused")
        else:
            world.check_state()
            outcomes.append("as it was")
        assert world.ends() == before, f"trial {trial} of seed {SEED}: {flips}"
    assert {*outcomes} == {"refused", "as it was"}


def test_a_copy_that_is_batches_old_is_refused(world: World) -> None:
    """What it would do next was done already, by the job that made the later one."""
    world.bring_back(world.older)
    before = world.ends()
    with pytest.raises(MarkerGapError, match=r"older copy .* bring back the latest.*recover"):
        world.run()
    assert world.ends() == before


def test_the_checkpoint_of_another_query_is_refused(world: World) -> None:
    """By the topics that it has read, before anything is asked of them."""
    create_topics({"bootstrap.servers": world.settings.bootstrap_servers}, prefix="other-faults.")
    world.bring_back()
    before = world.ends()
    with pytest.raises(CheckpointError, match=r"has read checkpoint-faults.*prefix it had"):
        world.run(replace(world.settings, topic_prefix="other-faults."))
    assert world.ends() == before


@pytest.mark.parametrize(
    ("release", "reported"),
    [
        ("0.3.1", "was sent by release .*, this is 0.3.1.*start once with release .*recover"),
        (RELEASE, "default_policy balanced, now it is fluvio; start once with the former"),
    ],
)
def test_a_repeated_batch_that_comes_out_otherwise_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch, release: str, reported: str
) -> None:
    """Another release or setting between sending and repeating: the error names it."""
    world.bring_back()
    before = world.ends()
    monkeypatch.setattr(sink, "RELEASE", release)
    with pytest.raises(DigestMismatchError, match=reported):
        world.run(replace(world.settings, default_policy=Policy.FLUVIO))
    assert world.ends() == before


def test_a_copy_that_is_a_batch_old_and_cuts_another_one_is_refused(world: World) -> None:
    """Its number fits the marker; what it has read does not."""
    world.bring_back()
    damage(world, "deleted", "offsets/N")
    world.creates(2)
    before = world.ends()
    with pytest.raises(DigestMismatchError, match="other messages than before, so an older copy"):
        world.run(replace(world.settings, topic_events_per_batch=10))
    assert world.ends() == before


def test_the_original_brought_back_goes_on_to_the_right_end(world: World) -> None:
    """After all these faults: every request answered once, the maps are the core's."""
    world.bring_back()
    world.creates(6)
    world.run()
    answered = world.kafka.read("topic-status")
    assert len({dict(message.headers() or [])["ce_id"] for message in answered}) == len(answered)
    assert len(answered) == sum(isinstance(event, TopicCreate) for event in world.events)
    assert world.kafka.maps() == expected_maps(world.events)
    batches = [marker.batch for marker in world.kafka.markers()]
    assert batches == list(range(len(batches)))
    world.check_state()
