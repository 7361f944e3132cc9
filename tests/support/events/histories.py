"""Topics of a job as lists, without a broker: what was sent, what a job would have written for it,
and what compaction and retention leave of that.

The answers are made by the parts of the job; only Kafka's logs are stood in for, with their
offsets: a transaction ends with a mark that takes one in each partition it wrote to.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from spu_assigner.core.base.events import Policy
from spu_assigner.schemas.messages.codec import encode_record
from spu_assigner.schemas.messages.wire import CommitMarker, PartitionPosition, RecoveredFrom, Wire
from spu_assigner.stream.audit.verify.history import History
from spu_assigner.stream.audit.verify.model import COMPACTED, OUTPUTS, Read
from spu_assigner.stream.job.batch_buffer import BatchBuffer, summary_of
from spu_assigner.stream.job.marker import offsets_read
from spu_assigner.stream.job.query import server_of, shard_labels
from spu_assigner.stream.job.shard.batch import ShardBatch
from spu_assigner.stream.job.shard.clusters import Clusters
from spu_assigner.stream.job.shard.input_batch import Batch, Row
from spu_assigner.stream.job.shard.options import Options
from spu_assigner.stream.job.sink import TransactionalSink
from spu_assigner.stream.kafka.cloud_events import marker_headers
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.topics import INPUTS
from support.events import story
from support.job.streams import Outgoing

PREFIX = "p-"
PARTITIONS = 2  # of each topic but those of markers
MARKERS = ("assigner-commits", "assigner-audit")
Log = tuple[str, int]  # a topic without the prefix, a partition
Story = partial(story.Story, clusters=4, partitions=PARTITIONS)


@dataclass
class Topics:
    """All messages by topic and partition; `begins`: where what is older was deleted."""

    logs: dict[Log, list[Read]] = field(default_factory=dict)
    ends: dict[Log, int] = field(default_factory=dict)
    begins: dict[Log, int] = field(default_factory=dict)
    compacted: set[Log] = field(default_factory=set)

    @classmethod
    def empty(cls) -> Topics:
        names = [(name, number) for name in (*INPUTS, *OUTPUTS) for number in range(PARTITIONS)]
        names += [(name, 0) for name in MARKERS]
        return cls({name: [] for name in names}, dict.fromkeys(names, 0), dict.fromkeys(names, 0))

    def copy(self) -> Topics:
        logs = {name: list(reads) for name, reads in self.logs.items()}
        return Topics(logs, dict(self.ends), dict(self.begins), set(self.compacted))

    def append(self, log: Log, **given: object) -> None:
        read = Read(topic=log[0], partition=log[1], offset=self.ends[log], **given)  # type: ignore[arg-type]
        self.logs[log].append(read)
        self.ends[log] += 1

    def history(self, query: str = "q") -> History:
        history = History(query, PREFIX)
        history.spans = {log: (self.begins[log], self.ends[log]) for log in self.logs}
        for reads in self.logs.values():
            for read in reads:
                history.add(read)
        return history

    def expire(self, draw: random.Random, names: Sequence[str]) -> None:
        """Delete the oldest messages of topics, as retention does."""
        for log, reads in self.logs.items():
            if log[0] in names and reads:
                gone = draw.randint(1, len(reads))
                self.begins[log] = reads[gone - 1].offset + 1
                del reads[:gone]

    def compact(self, draw: random.Random) -> None:
        """Drop some of what is superseded, and tombstones behind which nothing is left."""
        for log, reads in self.logs.items():
            if log[0] not in {*COMPACTED, "assigner-commits"}:
                continue
            last = {read.key: read.offset for read in reads}
            kept = [read for read in reads if last[read.key] == read.offset or draw.random() < 0.4]
            earlier = {read.key for read in kept if last[read.key] != read.offset}
            self.logs[log] = [
                read
                for read in kept
                if read.value is not None or read.key in earlier or draw.random() < 0.5
            ]


class Writer:
    """A producer, a broker and a job in one."""

    def __init__(self, seed: int, *, shards: int = 2, wire: Wire = Wire.CONFLUENT) -> None:
        self.topics = Topics.empty()
        self.clusters = Clusters()
        self.release: str | None = None  # written into markers in place of this one
        self._random = random.Random(seed)
        self._clock = 1_700_000_000_000
        self._shards = shards
        self._options = Options(
            topic_prefix=PREFIX,
            default_policy=self._random.choice([Policy.FLUVIO, Policy.BALANCED]),
            wire=wire,
        )
        flags = {"query_name": "q", "topic_prefix": PREFIX}
        self._sink = TransactionalSink(Settings.load(flags=flags, environ={}), shards=shards)
        self._checkpoint_id = f"checkpoint-{seed}"
        self._marker: CommitMarker | None = None
        self._read: dict[Log, int] = {}

    def send(self, messages: Sequence[Outgoing]) -> None:
        """Now and then the broker's clock steps back, or a mark takes an offset."""
        for message in messages:
            self._clock += self._random.choice([0, 0, 1, 5, 40, -30])
            number = message.partition
            if number is None:
                number = zlib.crc32(message.key or b"") % PARTITIONS
            log = (message.topic, number)
            given = {"key": message.key, "value": message.value, "headers": ()}
            self.topics.append(log, time_ms=self._clock, **given)
            if self._random.random() < 0.05:
                self.topics.ends[log] += 1

    def batch(self) -> None:
        """Answer all that was sent and not yet answered."""
        shares: dict[int, list[Row]] = {}
        labels = shard_labels(self._shards)
        for log in self.topics.logs:
            if log[0] in INPUTS:
                for read in self.topics.logs[log]:
                    if read.offset >= self._read.get(log, 0):
                        number = server_of(read.key or b"", labels)
                        place = (INPUTS.index(log[0]), log[1], read.offset, read.time_ms)
                        shares.setdefault(number, []).append((*place, read.key, read.value))
                self._read[log] = self.topics.ends[log]
        with BatchBuffer() as buffer:
            for number, share in shares.items():
                bundles = ShardBatch(self.clusters, self._options).apply(Batch.of_rows(share))
                for sequence, bundle in enumerate(bundles):
                    buffer.add(number, sequence, bundle)
            summary = summary_of(buffer)
            offsets = offsets_read(summary.ranges, PREFIX)
            positions = {
                f"{PREFIX}{topic}": tuple(
                    PartitionPosition(partition=number, next=self._read[topic, number])
                    for number in range(PARTITIONS)
                )
                for topic in INPUTS
            }
            before = self._marker
            marker = CommitMarker(
                query="q",
                checkpoint_id=self._checkpoint_id,
                batch=0 if before is None else before.batch + 1,
                count=summary.count,
                digest=summary.digest,
                offsets=offsets,
                positions=positions,
                **self._common(),
            )
            written = set()
            for topic, key, value, headers in self._sink._outgoing(buffer):
                number = zlib.crc32(key) % PARTITIONS if key else self._random.randrange(PARTITIONS)
                log = (topic.removeprefix(PREFIX), number)
                given = {"key": key, "value": value, "headers": tuple(headers)}
                self.topics.append(log, time_ms=self._clock, **given)
                written.add(log)
        for log in written:
            self.topics.ends[log] += 1
        self._mark(marker)

    def recover(self) -> None:
        """The checkpoint is lost; another one goes on."""
        assert self._marker is not None
        lost = RecoveredFrom(checkpoint_id=self._marker.checkpoint_id, batch=self._marker.batch)
        self._checkpoint_id += "-again"
        self._mark(
            CommitMarker(
                query="q",
                checkpoint_id=self._checkpoint_id,
                batch=-1,
                count=0,
                digest="",
                offsets={},
                positions=self._marker.positions,
                recovered_from=lost,
                **self._common(),
            )
        )

    def _common(self) -> dict[str, object]:
        from spu_assigner.stream.common.release import RELEASE

        return {
            "release": RELEASE if self.release is None else self.release,
            "shards": self._shards,
            "default_policy": self._options.default_policy.value,
            "topic_ids": {},
        }

    def _mark(self, marker: CommitMarker) -> None:
        self._marker = marker
        value = encode_record(marker, wire=self._options.wire)
        for name in MARKERS:
            headers = tuple(marker_headers(marker, self._clock))
            given = {"key": b"q", "value": value, "headers": headers}
            self.topics.append((name, 0), time_ms=self._clock, **given)
            self.topics.ends[name, 0] += 1


def written(seed: int, *, batches: int = 5, recover: bool = False) -> Writer:
    """A history of some batches, made of this seed."""
    draw = random.Random(seed)
    wire = draw.choice(list(Wire))
    writer, messages = Writer(seed, shards=draw.choice([1, 2, 3]), wire=wire), Story(seed)
    writer.send(messages.beginning())
    for number in range(batches):
        writer.batch()
        if recover and number == batches // 2:
            writer.recover()
        writer.send(messages.part(draw.randint(2, 8)))
    writer.batch()
    return writer
