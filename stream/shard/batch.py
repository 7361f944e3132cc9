"""What is done with one shard's part of a batch: order, decode, decide, encode, pack.

This is the only place where undecodable messages are caught: each becomes one dead letter, and its
neighbours are answered. Decisions are the core's; there is none here. Nor is there any Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, assert_never

import numpy as np
from spu_assigner.core.base.errors import InvariantError
from spu_assigner.core.base.events import Event, Policy
from spu_assigner.core.base.records import (
    ChainEntry,
    Entry,
    EntryGone,
    EntryKind,
    GrantedCreate,
    ReplicaMap,
    RingEvent,
    SeenEntry,
    SpuChanged,
    TopicStatus,
    Waiting,
)
from spu_assigner.core.decision.answers import answering_records
from spu_assigner.core.decision.machine import step
from spu_assigner.core.state.figures import figures_of
from spu_assigner.schemas.errors import DeadLetterCode, DecodeError
from spu_assigner.schemas.messages.codec import (
    EventKind,
    decode_event,
    encode_granted_create,
    encode_record,
)
from spu_assigner.schemas.messages.wire import DeadLetter, Wire
from spu_assigner.stream.kafka.topics import TOPICS
from spu_assigner.stream.shard.bundle import (
    SOURCE_TOPICS,
    Bundler,
    InputSource,
    MessageKind,
    SourceRange,
    unpacked_size,
)
from spu_assigner.stream.shard.clusters import ENTRY, MAP, Clusters
from spu_assigner.stream.shard.columns import BytesColumn
from spu_assigner.stream.shard.merge import Longs, merge_order
from spu_assigner.stream.shard.state_log import Shard, Store, read_entries
from spu_assigner.stream.shard.tally import (
    GRANTED,
    MEASURED_MAX,
    REQUESTS,
    Answered,
    RequestKind,
    Tally,
)

if TYPE_CHECKING:
    from pandas import DataFrame
    from spu_assigner.stream.shard.arrow_rows import Rows

HELD_SIZE_MAX: Final = 64 * 1024 * 1024  # bytes of entries before some are written
DEAD_LETTER_KEY_SIZE_MAX: Final = 1024  # four times what a legal key may have

SOURCE_KINDS: Final[dict[int, EventKind]] = {
    InputSource.SPU_EVENTS: "spu",
    InputSource.TOPIC_EVENTS: "topic",
}
KINDS_GONE: Final = {
    EntryKind.SPU: MessageKind.SPU_STATE,
    EntryKind.WAITING: MessageKind.WAITING_STATE,
}

_REPLICA_MAP: Final = MessageKind.REPLICA_MAP.value  # plain numbers are looked up and packed faster
_TOPIC_STATUS: Final = MessageKind.TOPIC_STATUS.value
_RING_EVENT: Final = MessageKind.RING_EVENT.value
_TOPIC_RELEASED: Final = MessageKind.TOPIC_RELEASED.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the workers need of the settings."""

    query_name: str
    topic_prefix: str
    default_policy: Policy
    wire: Wire
    # The run's secret, by which its shard servers are found; None: process in this process.
    server_secret: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Messages of one shard, in any order; one array or list a column."""

    source: Longs
    partition: Longs
    offset: Longs
    time_ms: Longs
    keys: list[bytes | None] | BytesColumn
    values: list[bytes | None] | BytesColumn

    @classmethod
    def of_columns(cls, pieces: Iterable[Rows]) -> Batch:
        """From the pieces in which Spark hands them over, column by column."""
        batches = [piece.columns for piece in pieces]
        numbers = {
            name: np.concatenate(
                [batch.column(name).to_numpy() for batch in batches], dtype=np.int64
            )
            for name in _NUMBERS
        }
        keys, values = (
            BytesColumn.of_arrays(batch.column(name) for batch in batches)
            for name in ("key", "value")
        )
        return cls(keys=keys, values=values, **numbers)

    @classmethod
    def of_frames(cls, frames: Iterable[DataFrame]) -> Batch:
        """The same of DataFrames."""
        numbers: dict[str, list[Longs]] = {name: [] for name in _NUMBERS}
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        for frame in frames:
            for name, parts in numbers.items():
                parts.append(frame[name].to_numpy(dtype=np.int64))
            keys += frame["key"].tolist()
            values += frame["value"].tolist()
        columns = {
            name: parts[0] if len(parts) == 1 else np.concatenate(parts)
            for name, parts in numbers.items()
        }
        return cls(keys=keys, values=values, **columns)

    def ranges(self) -> list[SourceRange]:
        """What was read of each input partition."""
        places = self.source << 32 | self.partition
        found = []
        for place in np.unique(places).tolist():
            offsets = self.offset[places == place]
            found.append(
                SourceRange(
                    source=InputSource(place >> 32),
                    partition=place & 0xFFFFFFFF,
                    first=int(offsets.min()),
                    last=int(offsets.max()),
                    count=len(offsets),
                )
            )
        return found


def _listed(column: list[bytes | None] | BytesColumn) -> list[bytes | None]:
    return column if isinstance(column, list) else column.tolist()


_NUMBERS: Final = ("source", "partition", "offset", "time_ms")


class ShardBatch:
    """Applies one batch to a shard's clusters and collects what goes out and what is kept."""

    def __init__(self, clusters: Clusters, options: Options) -> None:
        self.entries: dict[bytes, bytes | None] = {}  # for the state
        self._clusters = clusters
        self._options = options
        self._reserved_names = own_names(options.topic_prefix)
        self._bundler = Bundler()
        self._full: list[bytes] = []  # bundles that are to be given
        self._topics = {
            source: options.topic_prefix + topic for source, topic in SOURCE_TOPICS.items()
        }
        self._places = {source: f"{topic}/".encode() for source, topic in self._topics.items()}
        self._touched: dict[str, tuple[bytes, int, int]] = {}  # by its last event: id, ordinal, ms
        self._answers: Counter[Answered] = Counter()  # but for those of granted creates
        self._repeated = self._granted = 0
        self._dead_letters: Counter[str] = Counter()

    def apply(self, batch: Batch) -> Iterator[bytes]:
        """Answer every message; gives bundles as they fill, the last one when all are answered."""
        order = merge_order(
            source=batch.source,
            partition=batch.partition,
            offset=batch.offset,
            time_ms=batch.time_ms,
        )
        sources, partitions = batch.source.tolist(), batch.partition.tolist()
        offsets, times = batch.offset.tolist(), batch.time_ms.tolist()
        keys, values, full = _listed(batch.keys), _listed(batch.values), self._full
        leads: dict[tuple[int, int], bytes] = {}  # of the ids of an input partition's events
        for index in order.tolist():
            source = sources[index]
            partition = source, partitions[index]
            lead = leads.get(partition)
            if lead is None:
                lead = leads[partition] = b"%b%d/" % (self._places[source], partition[1])
            place = b"%b%d/" % (lead, offsets[index])
            try:
                self._answer(source, keys[index], values[index], place, times[index])
            except DecodeError as error:
                letter = DeadLetter.of_value(
                    values[index],
                    source_topic=self._topics[source],
                    source_partition=partitions[index],
                    source_offset=offsets[index],
                    source_timestamp_ms=times[index],
                    code=error.code,
                    message=error.message,
                )
                # Any key may have come, as large as a message; a dead letter has a limit too.
                key = keys[index]
                key = None if key is None else key[:DEAD_LETTER_KEY_SIZE_MAX]
                data = encode_record(letter, wire=self._options.wire)
                self._put(MessageKind.DEAD_LETTER, place + b"0", key, data, times[index])
                self._dead_letters[str(error.code)] += 1
            if full:
                yield from full
                full.clear()
        self._put_state()
        yield from full
        full.clear()
        yield self._bundler.close(batch.ranges(), self._tally(len(sources)).to_bytes())

    def _tally(self, events: int) -> Tally:
        """What the batch came to, when all is answered."""
        if self._granted:
            self._answers[GRANTED] += self._granted
        unmeasured = self._clusters.unmeasured
        unmeasured |= dict.fromkeys(self._touched)
        names = list(islice(unmeasured, MEASURED_MAX))
        for name in names:
            del unmeasured[name]
        return Tally(
            events=events,
            answers=self._answers,
            dead_letters=self._dead_letters,
            repeated=self._repeated,
            clusters={name: figures_of(self._clusters.of(name)) for name in names},
            cluster_count=len(self._clusters),
        )

    def _put(
        self, kind: int, event_id: bytes, key: bytes | None, value: bytes | None, time_ms: int
    ) -> None:
        """Pack a message."""
        bundle = self._bundler.put(kind, event_id, key, value, time_ms)
        if bundle is not None:
            self._full.append(bundle)

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
        self._repeated += not records
        ordinal, put, wire = 0, self._put, self._options.wire
        for record in answering_records(records):  # Other changes are published at the batch's end.
            match record:
                case GrantedCreate():
                    name = b"%b/%b" % (key, record.event.topic.encode())
                    map_value, status_value = encode_granted_create(record, wire=wire)
                    self.entries[map_key(name)] = map_value
                    put(_REPLICA_MAP, place + b"0", name, map_value, time_ms)
                    put(_TOPIC_STATUS, place + b"1", name, status_value, time_ms)
                    self._granted += 1
                    ordinal += 1
                case ReplicaMap():
                    name = b"%b/%b" % (key, record.topic.encode())
                    data = None if record.replicas is None else encode_record(record, wire=wire)
                    self.entries[map_key(name)] = data
                    kind = _TOPIC_RELEASED if record.is_released else _REPLICA_MAP
                    put(kind, b"%b%d" % (place, ordinal), name, data, time_ms)
                case TopicStatus():
                    name = b"%b/%b" % (key, record.topic.encode())
                    value = encode_record(record, wire=wire)
                    put(_TOPIC_STATUS, b"%b%d" % (place, ordinal), name, value, time_ms)
                    self._answers[_answered(event, record)] += 1
                case RingEvent():
                    value = encode_record(record, wire=wire)
                    put(_RING_EVENT, b"%b%d" % (place, ordinal), key, value, time_ms)
            ordinal += 1
        if records:
            self._touched[cluster_id] = (place, ordinal, time_ms)

    def _put_state(self) -> None:
        """Pack what `assigner-state` is to say of clusters that changed, in the order of names."""
        for cluster_id in sorted(self._touched):
            place, ordinal, time_ms = self._touched[cluster_id]
            for entry in self._clusters.of(cluster_id).take_entries():
                kind, name = _place_of(entry)
                key = f"{cluster_id}/{name}".encode()
                value = None
                if not isinstance(entry, EntryGone):
                    value = encode_record(entry, wire=self._options.wire)
                self.entries[state_key(key)] = value
                self._put(kind, b"%b%d" % (place, ordinal), key, value, time_ms)
                ordinal += 1


def own_names(prefix: str) -> frozenset[str]:
    """The product's topics in Kafka, of one prefix: names that no create may take."""
    return frozenset(f"{prefix}{spec.name}" for spec in TOPICS)


def _answered(event: Event, status: TopicStatus) -> Answered:
    """What an answer counts as."""
    is_its_own = status.cause == event.event_id
    request = REQUESTS[type(event)] if is_its_own else RequestKind.EARLIER
    return request.value, status.status.value, "" if status.code is None else status.code.value


def map_key(key: bytes) -> bytes:
    """The key in a shard's state of a message of `replica-map`."""
    return MAP + key


def state_key(key: bytes) -> bytes:
    """The key in a shard's state of a message of `assigner-state`."""
    return ENTRY + key


def entry_key(record: ReplicaMap | Entry) -> bytes:
    """The key in a shard's state under which a record belongs."""
    if isinstance(record, ReplicaMap):
        return map_key(f"{record.cluster_id}/{record.topic}".encode())
    return state_key(f"{record.cluster_id}/{_place_of(record)[1]}".encode())


def _place_of(entry: Entry | EntryGone) -> tuple[MessageKind, str]:
    """The kind of an entry's message, and its key without the cluster."""
    match entry:
        case SpuChanged():
            return MessageKind.SPU_STATE, f"{EntryKind.SPU}/{entry.spu_id}"
        case Waiting():
            return MessageKind.WAITING_STATE, f"{EntryKind.WAITING}/{entry.topic}"
        case ChainEntry():
            return MessageKind.CHAIN_STATE, "chains/all"
        case SeenEntry():
            return MessageKind.SEEN_STATE, f"seen/{entry.block}"
        case EntryGone():
            return KINDS_GONE[entry.kind], f"{entry.kind}/{entry.name}"
    assert_never(entry)


def process(shard: Shard, store: Store, batch: Batch, options: Options) -> Iterator[bytes]:
    """A shard's part of a batch, from the state before it to the state after: gives bundles.

    The state is written before the last bundle is given, that of a large batch piece by piece. If
    anything raises, nothing is trusted of the copy, and Spark drops what was written.
    """
    clusters = shard.copy
    if not isinstance(clusters, Clusters):
        raise InvariantError(f"the copy of a shard is a {type(clusters).__name__}")
    shard.begin(store)
    shard_batch = ShardBatch(clusters, options)
    last = None
    size = 0
    for bundle in shard_batch.apply(batch):
        if last is not None:
            yield last
        last = bundle
        size += unpacked_size(bundle)
        if size >= HELD_SIZE_MAX:
            entries, shard_batch.entries = shard_batch.entries, {}
            shard.write_ahead(store, entries)
            size = 0
    shard.commit(store, shard_batch.entries)
    if last is not None:
        yield last


def read_shards(rows: Iterable[tuple[int, str, bytes]]) -> Clusters:
    """The clusters that a checkpoint's state holds.

    Args:
        rows: (shard, key, value) of the state variable, as Spark's `statestore` reader gives them.
    """
    stored: dict[int, list[tuple[str, bytes]]] = {}
    for label, key, value in rows:
        stored.setdefault(label, []).append((key, bytes(value)))
    clusters = Clusters()
    for label in sorted(stored):
        for name, entry in read_entries(stored[label]).items():
            clusters.restore(name, entry)
    return clusters
