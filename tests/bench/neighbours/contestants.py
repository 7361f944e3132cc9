"""Who is measured: how each is prepared, what it reads and writes, and how it is started.

A neighbour reads joins and creates from one topic of four partitions, keyed by cluster, so that no
create overtakes a join; the product has a topic for each. All write to topics of four partitions.
"""

from __future__ import annotations

import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic
from spu_assigner.core.base.events import Policy
from spu_assigner.schemas.avro.registry import Registry
from spu_assigner.schemas.messages.codec import encode_event
from spu_assigner.stream.local.jvm.java import ensure_java
from support.bench.preparing import compiled, environment
from support.bench.workload import creates, joins
from support.project.jars_lock import ROOTS

HERE: Final = Path(__file__).parent
PARTITIONS: Final = 4
TOPIC_SECONDS: Final = 30.0
EVENTS: Final = "events"
MAPS: Final = "maps"
STATE: Final = "state"

STREAMS_SOURCE: Final = HERE / "java" / "StreamsAssigner.java"
STREAMS_THREADS: Final = 2
STREAMS_LOG: Final = "-Dorg.apache.logging.log4j.level=WARN"
QUIX_LOCK: Final = HERE / "quix.lock"

EXACTLY_ONCE: Final = "exactly once"
AT_LEAST_ONCE: Final = "at least once"


class Answers(Enum):
    """What a contestant writes."""

    MAPS_WITH_REASONS = auto()
    MAPS = auto()
    COPIES = auto()  # of each event; it decides nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one run of a contestant takes place."""

    bootstrap: str
    prefix: str  # of its topics
    folder: Path  # for its files, new


class Contestant(ABC):
    """One that does the work; a subclass says what differs."""

    name: str
    guarantee: str  # of answers and state, should it crash
    policy: Policy = Policy.FLUVIO
    answers: Answers = Answers.MAPS
    spu_events: str = EVENTS
    topic_events: str = EVENTS
    maps: str = MAPS
    joined: str | None = None  # the topic on which each join is answered

    def prepare(self) -> None:  # noqa: B027  # most need nothing
        """Bring or make what it needs, once, before anything is measured.

        Raises:
            CannotRunError: it cannot be had here.
        """

    def made_of(self) -> dict[str, str]:
        """What it stands on, with versions, beyond what the results name anyway."""
        return {}

    def make_topics(self, place: Place) -> None:
        """Make the topics that it reads and writes."""
        admin = AdminClient({"bootstrap.servers": place.bootstrap})
        topics = [
            NewTopic(place.prefix + EVENTS, PARTITIONS, 1),
            NewTopic(place.prefix + MAPS, PARTITIONS, 1),
            NewTopic(place.prefix + STATE, PARTITIONS, 1, config={"cleanup.policy": "compact"}),
        ]
        for future in admin.create_topics(topics).values():
            future.result(TOPIC_SECONDS)

    @abstractmethod
    def command(self, place: Place) -> Sequence[str]:
        """The program and its arguments."""

    def environ(self, place: Place) -> Mapping[str, str]:
        """What its environment has besides this process's."""
        return {}


class Product(Contestant):
    """The job as a user runs it, all defaults but the policy."""

    guarantee = EXACTLY_ONCE
    answers = Answers.MAPS_WITH_REASONS
    spu_events = "spu-events"
    topic_events = "topic-events"
    maps = "replica-map"
    joined = "ring-events"

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.name = f"spu-assigner {policy}"
        self._program = str(Path(sys.executable).with_name("spu-assigner"))

    def make_topics(self, place: Place) -> None:
        subprocess.run(
            [self._program, "topics", "create"],
            env={**os.environ, **self.environ(place)},
            stdout=subprocess.DEVNULL,
            check=True,
        )

    def command(self, place: Place) -> Sequence[str]:
        checkpoint = str(place.folder / "checkpoint")
        return [self._program, "run", "--checkpoint", checkpoint]

    def environ(self, place: Place) -> Mapping[str, str]:
        return {
            "KAFKA_BOOTSTRAP_SERVERS": place.bootstrap,
            "SPU_ASSIGNER_TOPIC_PREFIX": place.prefix,
            "SPU_ASSIGNER_DEFAULT_POLICY": self.policy.value,
        }


class RawEcho(Contestant):
    """What the broker and its client cost: each event is sent on in a transaction."""

    name = "raw echo"
    guarantee = EXACTLY_ONCE
    answers = Answers.COPIES
    joined = MAPS

    def command(self, place: Place) -> Sequence[str]:
        script = str(HERE.parent / "echo.py")
        topics = [place.prefix + EVENTS, place.prefix + MAPS]
        return [sys.executable, script, place.bootstrap, *topics]


class PlainLoop(Contestant):
    """A plain Python process with its changelog in Kafka."""

    guarantee = EXACTLY_ONCE

    def __init__(self, core: Policy | None = None) -> None:
        self.name, self._options = "plain loop", []
        if core is not None:  # the same core decides in it
            self.name, self._options = f"plain loop with core {core}", ["--core", core]
            self.policy, self.answers = core, Answers.MAPS_WITH_REASONS

    def command(self, place: Place) -> Sequence[str]:
        script = str(HERE / "plain_loop.py")
        return [sys.executable, script, place.bootstrap, place.prefix, *self._options]


class SparkProgram(Contestant):
    """A program for Spark, in the product's session."""

    guarantee = AT_LEAST_ONCE  # Spark's sink to Kafka

    def __init__(self, name: str, script: str, *, echo: bool = False) -> None:
        self.name = name
        self._script = str(HERE / script)
        if echo:
            self.answers, self.joined = Answers.COPIES, MAPS

    def command(self, place: Place) -> Sequence[str]:
        checkpoint = str(place.folder / "checkpoint")
        return [sys.executable, self._script, place.bootstrap, place.prefix, checkpoint]

    def environ(self, place: Place) -> Mapping[str, str]:
        # What Spark's Python workers import has to be on their path.
        paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {"PYTHONPATH": os.pathsep.join(paths)}


class KafkaStreams(Contestant):
    """A Java program with Kafka Streams, its state in RocksDB with a changelog."""

    guarantee = EXACTLY_ONCE

    def __init__(self, *, commit_ms: int) -> None:
        self.name = f"Kafka Streams {commit_ms} ms"
        self._commit_ms = commit_ms

    def prepare(self) -> None:
        self._java = ensure_java()
        self._classes, self._jars = compiled(STREAMS_SOURCE, self._java)

    def made_of(self) -> dict[str, str]:
        return {"library": ROOTS["kafka-streams"][0].coordinate}

    def command(self, place: Place) -> Sequence[str]:
        path = os.pathsep.join(map(str, [self._classes, *self._jars]))
        joined, created = encode_event(joins()[0]), encode_event(creates(0, 1)[0])
        ids = [int.from_bytes(each[1:5], "big") for each in (joined, created)]
        ids.append(Registry.load().current("ReplicaMap").id)
        return [
            *(str(self._java.executable), STREAMS_LOG, "-cp", path, STREAMS_SOURCE.stem),
            *(place.bootstrap, place.prefix, str(place.folder / "state")),
            *(str(self._commit_ms), str(STREAMS_THREADS), *map(str, ids)),
        ]


class QuixStreams(Contestant):
    """A Python program with Quix Streams, its state in RocksDB with a changelog."""

    name = "Quix Streams 100 ms"
    guarantee = EXACTLY_ONCE

    def prepare(self) -> None:
        self._python = environment(QUIX_LOCK)

    def made_of(self) -> dict[str, str]:
        lines = QUIX_LOCK.read_text(encoding="utf-8").splitlines()
        return {"library": next(line.split()[0] for line in lines if line.startswith("quix"))}

    def command(self, place: Place) -> Sequence[str]:
        script = str(HERE / "quix_app.py")
        folder = str(place.folder / "state")
        return [str(self._python), script, place.bootstrap, place.prefix, folder]

    def environ(self, place: Place) -> Mapping[str, str]:
        return {"PYTHONPATH": ""}  # The environment's own packages, and no others.


CONTESTANTS: Final[tuple[Contestant, ...]] = (
    Product(Policy.FLUVIO),
    Product(Policy.BALANCED),
    RawEcho(),
    PlainLoop(),
    PlainLoop(Policy.FLUVIO),
    PlainLoop(Policy.BALANCED),
    KafkaStreams(commit_ms=100),
    KafkaStreams(commit_ms=1),
    QuixStreams(),
    SparkProgram("Spark stateless echo", "spark_echo.py", echo=True),
    SparkProgram("naive transformWithState", "spark_naive.py"),
)
