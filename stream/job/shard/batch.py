"""What is done with one shard's part of a batch: order, decode, decide, encode, pack.

This is the only place where undecodable messages are caught: each becomes one dead letter, and its
neighbours are answered. Decisions are the core's; there is none here. Nor is there any Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from spu_assigner.core.base.events import Event
from spu_assigner.core.base.records import (
    Answer,
    EntryGone,
    EntryKind,
    ReplicaMap,
    RingEvent,
    TopicStatus,
)
from spu_assigner.core.decision.answers import answers
from spu_assigner.core.decision.machine import step
from spu_assigner.schemas.errors import DeadLetterCode, DecodeError
from spu_assigner.schemas.messages.codec import EventKind, decode_event, encode_record
from spu_assigner.schemas.messages.wire import DeadLetter
from spu_assigner.stream.job.shard.bundle import SOURCE_TOPICS, Bundler, InputSource, MessageKind
from spu_assigner.stream.job.shard.clusters import Clusters, entry_name, map_key, state_key
from spu_assigner.stream.job.shard.input_batch import Batch, Row
from spu_assigner.stream.job.shard.options import Options
from spu_assigner.stream.job.shard.state_log import Shard, Write
from spu_assigner.stream.job.shard.tally import (
    EARLIER,
    MEASURED_MAX,
    REQUESTS,
    Answered,
    Tally,
    figures_of,
    search,
)
from spu_assigner.stream.kafka.topics import TOPICS

HELD_SIZE_MAX: Final = 64 * 1024 * 1024  # bytes of entries before some are written
DEAD_LETTER_KEY_SIZE_MAX: Final = 1024  # four times what a legal key may have

SOURCE_KINDS: Final[dict[int, EventKind]] = {
    InputSource.SPU_EVENTS: "spu",
    InputSource.TOPIC_EVENTS: "topic",
}
STATE_KINDS: Final = {
    EntryKind.SPU: MessageKind.SPU_STATE,
    EntryKind.WAITING: MessageKind.WAITING_STATE,
    EntryKind.CHAINS: MessageKind.CHAIN_STATE,
    EntryKind.SEEN: MessageKind.SEEN_STATE,
}


class ShardBatch:
    """Applies one batch to a shard's clusters and collects what goes out and what is kept."""

    def __init__(self, clusters: Clusters, options: Options) -> None:
        self.entries: dict[bytes, bytes | None] = {}  # for the state
        self._clusters = clusters
        self._options = options
        self._reserved_names = own_names(options.topic_prefix)
        self._topics = {
            int(source): options.topic_prefix + name for source, name in SOURCE_TOPICS.items()
        }
        self._bundler = Bundler()
        self._touched: dict[str, tuple[bytes, int, int]] = {}  # by its last event: id, ordinal, ms
        self._answers: Counter[Answered] = Counter()
        self._repeated = 0
        self._dead_letters: Counter[str] = Counter()

    def apply(self, batch: Batch, alive: Callable[[], None] = lambda: None) -> Iterator[bytes]:
        """Answer every message; gives bundles as they fill, the last one when all are answered.
        `alive` is called between two messages."""
        full = self._bundler.full
        for row in batch.ordered():
            alive()
            try:
                self._answer(row)
            except DecodeError as error:
                self._put_dead_letter(row, error)
            while full:
                yield full.pop(0)
        self._put_state()
        yield from full
        yield self._bundler.close(batch.ranges(), self._tally())

    def _answer(self, row: Row) -> None:
        """Decide one message; raises DecodeError, with nothing changed, for no event of its key."""
        source, _, _, time_ms, key, value = row
        if key is None:
            raise DecodeError(
                DeadLetterCode.KEY_MISSING, "the message has no key; expected its cluster_id"
            )
        event = decode_event(value, kind=SOURCE_KINDS[source])
        cluster_id = event.cluster_id
        if cluster_id.encode() != key:
            raise DecodeError(
                DeadLetterCode.KEY_MISMATCH,
                f"the key is {key[:250]!r}; expected the event's cluster_id, {cluster_id!r}",
            )
        records = step(
            self._clusters.of(cluster_id),
            event,
            default_policy=self._options.default_policy,
            reserved_names=self._reserved_names,
        )
        if not records:
            self._repeated += 1
            return
        place = self._place(row)
        answered = answers(records)  # The other changes are published at the batch's end.
        for ordinal, answer in enumerate(answered):
            self._put(event, answer, key, b"%b%d" % (place, ordinal), time_ms)
        self._touched[cluster_id] = (place, len(answered), time_ms)

    def _place(self, row: Row) -> bytes:
        """What the ids of an event's answers begin with."""
        return f"{self._topics[row[0]]}/{row[1]}/{row[2]}/".encode()

    def _put(self, event: Event, answer: Answer, key: bytes, event_id: bytes, time_ms: int) -> None:
        """Pack one of the answers to an event."""
        data: bytes | None = None
        match answer:
            case ReplicaMap():
                key = b"%b/%b" % (key, answer.topic.encode())
                if answer.replicas is not None:
                    data = encode_record(answer, wire=self._options.wire)
                self.entries[map_key(key)] = data
                released = answer.is_released
                kind = MessageKind.TOPIC_RELEASED if released else MessageKind.REPLICA_MAP
            case TopicStatus():
                key = b"%b/%b" % (key, answer.topic.encode())
                data = encode_record(answer, wire=self._options.wire)
                kind = MessageKind.TOPIC_STATUS
                request = REQUESTS[type(event)] if answer.cause == event.event_id else EARLIER
                code = "" if answer.code is None else answer.code.value
                self._answers[request, answer.status, code] += 1
            case RingEvent():
                data = encode_record(answer, wire=self._options.wire)
                kind = MessageKind.RING_EVENT
        self._bundler.put(kind, event_id, key, data, time_ms)

    def _put_dead_letter(self, row: Row, error: DecodeError) -> None:
        source, partition, offset, time_ms, key, value = row
        letter = DeadLetter.of_value(
            value,
            source_topic=self._topics[source],
            source_partition=partition,
            source_offset=offset,
            source_timestamp_ms=time_ms,
            code=error.code,
            message=error.message,
        )
        # Any key may have come, as large as a message; a dead letter has a limit too.
        key = None if key is None else key[:DEAD_LETTER_KEY_SIZE_MAX]
        data = encode_record(letter, wire=self._options.wire)
        self._bundler.put(MessageKind.DEAD_LETTER, self._place(row) + b"0", key, data, time_ms)
        self._dead_letters[str(error.code)] += 1

    def _put_state(self) -> None:
        """Pack what `assigner-state` is to say of clusters that changed, in the order of names."""
        for cluster_id in sorted(self._touched):
            place, ordinals, time_ms = self._touched[cluster_id]
            entries = self._clusters.of(cluster_id).take_entries()
            for ordinal, entry in enumerate(entries, ordinals):
                kind, name = entry_name(entry)
                key = f"{cluster_id}/{kind}/{name}".encode()
                value = None
                if not isinstance(entry, EntryGone):
                    value = encode_record(entry, wire=self._options.wire)
                self.entries[state_key(key)] = value
                event_id = b"%b%d" % (place, ordinal)
                self._bundler.put(STATE_KINDS[kind], event_id, key, value, time_ms)

    def _tally(self) -> Tally:
        """What the batch came to, when all is answered."""
        unmeasured = self._clusters.unmeasured
        unmeasured |= dict.fromkeys(self._touched)
        self._clusters.unsearched |= dict.fromkeys(self._touched)
        could = search(self._clusters)
        names = list(islice(unmeasured, MEASURED_MAX))
        for name in names:
            del unmeasured[name]
        states = {name: self._clusters.of(name) for name in names}
        shares = {name: each.ledger.largest_shares() for name, each in states.items()}
        self._clusters.forget_empty({**self._touched, **states})
        return Tally(
            answers=self._answers,
            dead_letters=self._dead_letters,
            repeated=self._repeated,
            clusters={name: figures_of(each, could.get(name)) for name, each in states.items()},
            shares={name: by_resource for name, by_resource in shares.items() if by_resource},
            cluster_count=len(self._clusters),
        )


def own_names(prefix: str) -> frozenset[str]:
    """The product's topics in Kafka, of one prefix: names that no create may take."""
    return frozenset(f"{prefix}{spec.name}" for spec in TOPICS)


def process(
    shard: Shard[Clusters], batch: Batch, options: Options, alive: Callable[[], None] = lambda: None
) -> Iterator[bytes | Write]:
    """A shard's part of a batch: gives bundles, and what is to be written to the state.

    Of a large batch the state is written piece by piece. If anything raises, the copy is not
    trusted again, and Spark drops what was written.
    """
    shard_batch = ShardBatch(shard.copy, options)
    size = 0
    for bundle in shard_batch.apply(batch, alive):
        yield bundle
        size += len(bundle)
        if size >= HELD_SIZE_MAX:
            entries, shard_batch.entries = shard_batch.entries, {}
            yield from shard.write_ahead(entries)
            size = 0
    yield from shard.commit(shard_batch.entries)
