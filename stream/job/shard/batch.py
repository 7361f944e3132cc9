"""What is done with one shard's part of a batch: order, decode, decide, encode, pack.

This is the only place where undecodable messages are caught: each becomes one dead letter, and its
neighbours are answered. Decisions are the core's; there is none here. Nor is there any Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from spu_assigner.core.base.events import Event, Policy
from spu_assigner.core.base.records import (
    Answer,
    ChainEntry,
    Entry,
    EntryGone,
    EntryKind,
    ReplicaMap,
    RingEvent,
    SeenEntry,
    SpuChanged,
    TopicStatus,
    Waiting,
)
from spu_assigner.core.decision.answers import answers
from spu_assigner.core.decision.machine import step
from spu_assigner.schemas.errors import DeadLetterCode, DecodeError
from spu_assigner.schemas.messages.codec import (
    EventKind,
    decode_event,
    encode_record,
)
from spu_assigner.schemas.messages.wire import DeadLetter, Wire
from spu_assigner.stream.job.shard.bundle import (
    SOURCE_TOPICS,
    Bundler,
    InputSource,
    MessageKind,
)
from spu_assigner.stream.job.shard.clusters import MAP, Clusters, entry_name, state_key
from spu_assigner.stream.job.shard.figures import figures_of
from spu_assigner.stream.job.shard.input_batch import Batch
from spu_assigner.stream.job.shard.state_log import Shard, Write
from spu_assigner.stream.job.shard.tally import (
    MEASURED_MAX,
    REQUESTS,
    Answered,
    RequestKind,
    Tally,
)
from spu_assigner.stream.kafka.topics import TOPICS

HELD_SIZE_MAX: Final = 64 * 1024 * 1024  # bytes of entries before some are written
DEAD_LETTER_KEY_SIZE_MAX: Final = 1024  # four times what a legal key may have

SOURCE_KINDS: Final[dict[int, EventKind]] = {
    InputSource.SPU_EVENTS: "spu",
    InputSource.TOPIC_EVENTS: "topic",
}
KINDS_GONE: Final = {
    EntryKind.SPU: MessageKind.SPU_STATE,
    EntryKind.WAITING: MessageKind.WAITING_STATE,
    EntryKind.CHAINS: MessageKind.CHAIN_STATE,
    EntryKind.SEEN: MessageKind.SEEN_STATE,
}
_ENTRY_KINDS: Final[dict[type[Entry], MessageKind]] = {
    SpuChanged: MessageKind.SPU_STATE,
    Waiting: MessageKind.WAITING_STATE,
    ChainEntry: MessageKind.CHAIN_STATE,
    SeenEntry: MessageKind.SEEN_STATE,
}

_REPLICA_MAP: Final = MessageKind.REPLICA_MAP.value  # plain numbers are looked up and packed faster
_TOPIC_STATUS: Final = MessageKind.TOPIC_STATUS.value
_RING_EVENT: Final = MessageKind.RING_EVENT.value
_TOPIC_RELEASED: Final = MessageKind.TOPIC_RELEASED.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a shard needs of the settings."""

    topic_prefix: str
    default_policy: Policy
    wire: Wire


def _nothing() -> None:
    """Nobody wants to know whether events are still decided."""


class ShardBatch:
    """Applies one batch to a shard's clusters and collects what goes out and what is kept."""

    def __init__(self, clusters: Clusters, options: Options) -> None:
        self.entries: dict[bytes, bytes | None] = {}  # for the state
        self._clusters = clusters
        self._options = options
        self._reserved_names = own_names(options.topic_prefix)
        self._bundler = Bundler()
        self._wire = options.wire
        self._topics = {
            source: options.topic_prefix + topic for source, topic in SOURCE_TOPICS.items()
        }
        self._touched: dict[str, tuple[bytes, int, int]] = {}  # by its last event: id, ordinal, ms
        self._answers: Counter[Answered] = Counter()
        self._repeated = 0
        self._dead_letters: Counter[str] = Counter()

    def apply(self, batch: Batch, alive: Callable[[], None] = _nothing) -> Iterator[bytes]:
        """Answer every message; gives bundles as they fill, the last one when all are answered.

        `alive` is called between two messages.
        """
        sources, partitions = batch.source.tolist(), batch.partition.tolist()
        offsets, times = batch.offset.tolist(), batch.time_ms.tolist()
        keys, values, bundler = batch.keys, batch.values, self._bundler
        leads: dict[tuple[int, int], bytes] = {}  # of the ids of an input partition's events
        for index in batch.order():
            alive()
            source, value, time_ms = sources[index], values[index], times[index]
            partition = source, partitions[index]
            lead = leads.get(partition)
            if lead is None:
                lead = leads[partition] = b"%b/%d/" % (self._topics[source].encode(), partition[1])
            place = b"%b%d/" % (lead, offsets[index])
            try:
                self._answer(source, keys[index], value, place, time_ms)
            except DecodeError as error:
                letter = DeadLetter.of_value(
                    value,
                    source_topic=self._topics[source],
                    source_partition=partitions[index],
                    source_offset=offsets[index],
                    source_timestamp_ms=time_ms,
                    code=error.code,
                    message=error.message,
                )
                # Any key may have come, as large as a message; a dead letter has a limit too.
                key = keys[index]
                key = None if key is None else key[:DEAD_LETTER_KEY_SIZE_MAX]
                data = encode_record(letter, wire=self._wire)
                bundler.put(MessageKind.DEAD_LETTER, place + b"0", key, data, time_ms)
                self._dead_letters[str(error.code)] += 1
            if bundler.full:
                yield from bundler.take_full()
        self._put_state()
        yield from bundler.take_full()
        yield bundler.close(batch.ranges(), self._tally(len(sources)).to_bytes())

    def _tally(self, events: int) -> Tally:
        """What the batch came to, when all is answered."""
        unmeasured = self._clusters.unmeasured
        unmeasured |= dict.fromkeys(self._touched)
        names = list(islice(unmeasured, MEASURED_MAX))
        for name in names:
            del unmeasured[name]
        states = {name: self._clusters.of(name) for name in names}
        shares = {name: each.ledger.largest_shares() for name, each in states.items()}
        self._clusters.forget_empty({**dict.fromkeys(self._touched), **states})
        return Tally(
            events=events,
            answers=self._answers,
            dead_letters=self._dead_letters,
            repeated=self._repeated,
            clusters={name: figures_of(each) for name, each in states.items()},
            shares={name: by_resource for name, by_resource in shares.items() if by_resource},
            cluster_count=len(self._clusters),
        )

    def _answer(
        self, source: int, key: bytes | None, value: bytes | None, place: bytes, time_ms: int
    ) -> None:
        """Decide one message.

        Raises:
            DecodeError: it is no event under its own key; nothing has changed.
        """
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
        answered = answers(records)  # The other changes are published at the batch's end.
        for ordinal, answer in enumerate(answered):
            self._put(event, answer, key, b"%b%d" % (place, ordinal), time_ms)
        self._touched[cluster_id] = (place, len(answered), time_ms)

    def _put(self, event: Event, answer: Answer, key: bytes, event_id: bytes, time_ms: int) -> None:
        """Pack one of the answers to an event."""
        put, wire = self._bundler.put, self._wire
        match answer:
            case ReplicaMap():
                name = b"%b/%b" % (key, answer.topic.encode())
                data = None if answer.replicas is None else encode_record(answer, wire=wire)
                self.entries[MAP + name] = data
                kind = _TOPIC_RELEASED if answer.is_released else _REPLICA_MAP
                put(kind, event_id, name, data, time_ms)
            case TopicStatus():
                name = b"%b/%b" % (key, answer.topic.encode())
                put(_TOPIC_STATUS, event_id, name, encode_record(answer, wire=wire), time_ms)
                self._answers[_answered(event, answer)] += 1
            case RingEvent():
                put(_RING_EVENT, event_id, key, encode_record(answer, wire=wire), time_ms)

    def _put_state(self) -> None:
        """Pack what `assigner-state` is to say of clusters that changed, in the order of names."""
        for cluster_id in sorted(self._touched):
            place, ordinal, time_ms = self._touched[cluster_id]
            for entry in self._clusters.of(cluster_id).take_entries():
                key = f"{cluster_id}/{entry_name(entry)}".encode()
                if isinstance(entry, EntryGone):
                    kind, value = KINDS_GONE[entry.kind], None
                else:
                    kind, value = _ENTRY_KINDS[type(entry)], encode_record(entry, wire=self._wire)
                self.entries[state_key(key)] = value
                self._bundler.put(kind, b"%b%d" % (place, ordinal), key, value, time_ms)
                ordinal += 1


def own_names(prefix: str) -> frozenset[str]:
    """The product's topics in Kafka, of one prefix: names that no create may take."""
    return frozenset(f"{prefix}{spec.name}" for spec in TOPICS)


def _answered(event: Event, status: TopicStatus) -> Answered:
    """What an answer counts as."""
    is_its_own = status.cause == event.event_id
    request = REQUESTS[type(event)] if is_its_own else RequestKind.EARLIER
    return request, status.status, "" if status.code is None else status.code.value


def process(
    shard: Shard[Clusters],
    batch: Batch,
    options: Options,
    alive: Callable[[], None] = _nothing,
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
