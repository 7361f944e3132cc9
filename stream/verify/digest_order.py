"""The digest of a batch out of what it left in the output topics.

A digest is taken over a batch's messages in the order of the shards, in each shard in the order in
which its events were applied, its state messages last. Which shard a message is of follows from its
key, and the order from the places and times that each message names, so both can be found again
without the inputs.

Two things can be lost with the inputs: the time of an event that was not answered (it can matter
where the broker's clock stepped back), and a source key that a dead letter had to cut. Then several
orders are tried; a digest that fits is its own proof.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import islice, pairwise, product
from typing import Final, NamedTuple

import numpy as np
from spu_assigner.schemas.messages.wire import CommitMarker
from spu_assigner.stream.job.source import shard_labels
from spu_assigner.stream.kafka.cloud_events import rfc3339
from spu_assigner.stream.shard.batch import DEAD_LETTER_KEY_SIZE_MAX
from spu_assigner.stream.shard.bundle import KINDS, Message, MessageKind, message_bytes
from spu_assigner.stream.shard.merge import merge_order
from spu_assigner.stream.verify.batch_walk import Placed, Shelf
from spu_assigner.stream.verify.model import Headers

SHARDS_TRIED_MAX: Final = 64  # where a marker does not tell
GUESSES_MIN: Final = 64  # orders of a batch that are tried, however large it is
GUESSED_MAX: Final = 1_000_000  # messages in all of them

Event = tuple[int, int, int]  # source, partition, offset
STATE_KINDS: Final = frozenset(
    {
        MessageKind.SPU_STATE,
        MessageKind.CHAIN_STATE,
        MessageKind.SEEN_STATE,
        MessageKind.WAITING_STATE,
    }
)


class SourceEvent(NamedTuple):
    """What the input tells of an event: needed for the order."""

    time_ms: int
    key: bytes


def expected_headers(query: str, kind: int, ce_id: bytes, time_ms: int) -> Headers:
    """The headers of a message, all of them and in their order."""
    return (
        ("ce_specversion", b"1.0"),
        ("ce_id", ce_id),
        ("ce_source", f"/spu-assigner/{query}".encode()),
        ("ce_type", f"io.spuassigner.v1.{KINDS[MessageKind(kind)][1]}".encode()),
        ("ce_time", rfc3339(time_ms)),
        ("content-type", b"application/avro"),
    )


@lru_cache(maxsize=4_096)
def time_ms_of(ce_time: bytes | None) -> int | None:
    """The milliseconds; None: it is no time as this job writes it."""
    try:
        moment = datetime.fromisoformat((ce_time or b"").decode())
        time_ms = round(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
    return time_ms if rfc3339(time_ms) == ce_time else None


class DigestOrder:
    """The messages of one batch, all of them, and the orders in which they may have been sent."""

    def __init__(
        self,
        placed: Sequence[Placed],
        shelf: Shelf,
        *,
        query: str,
        sources: Mapping[Event, SourceEvent] | None,
    ) -> None:
        """Messages of which `faulty` is empty.

        Args:
            placed: the messages.
            shelf: where their values are.
            query: the query's name.
            sources: all events of the batch; None: the inputs are not there any more.
        """
        self.faulty = [each for each in placed if not _is_sound(each, query)]
        self._placed = placed
        self._shelf = shelf
        self._sources = sources
        self._keys = self._known_keys()
        self._times = self._known_times()

    def digest(self, marker: CommitMarker) -> list[Placed] | None:
        """The order whose digest is the marker's; None: there is none."""
        counts = (marker.shards,) if marker.shards > 0 else range(1, SHARDS_TRIED_MAX + 1)
        most = max(GUESSES_MIN, GUESSED_MAX // max(1, len(self._placed)))
        tried: set[tuple[bytes, ...]] = set()
        for shards in counts:
            for order in islice(self._orders(shards), most):
                ids = tuple(each.ce_id for each in order)
                if ids in tried:
                    continue
                tried.add(ids)
                if self._digest(order) == marker.digest:
                    return order
        return None

    def _orders(self, shards: int) -> Iterator[list[Placed]]:
        labels = shard_labels(shards)
        known = {
            event: labels[zlib.crc32(key) % shards]
            for event, key in self._keys.items()
            if key is not None
        }
        unknown = [event for event, key in self._keys.items() if key is None]
        for guess in product(labels, repeat=len(unknown)):
            label_of = known | dict(zip(unknown, guess, strict=True))
            yield self._order(label_of, self._times)
            if self._sources is None:
                yield self._as_they_lie(label_of)
                yield from (self._order(label_of, times) for times in self._other_times())

    def _order(self, label_of: Mapping[Event, int], times: Mapping[Event, int]) -> list[Placed]:
        """Shard by shard, in each the events merged by their times."""
        rank = _ranks(label_of, times)
        return sorted(self._placed, key=lambda each: self._sort_key(each, label_of, rank))

    def _as_they_lie(self, label_of: Mapping[Event, int]) -> list[Placed]:
        """As `_order`, but where messages of a shard lie otherwise in a partition, as they lie."""
        rank = _ranks(label_of, self._times)
        lists: dict[tuple[str, int], list[Placed]] = {}
        for each in self._placed:
            if each.kind not in STATE_KINDS:
                lists.setdefault((each.read.topic, each.read.partition), []).append(each)
        behind: dict[Event, set[Event]] = {}  # which events must come first
        for found in lists.values():
            for one, other in pairwise(found):
                first, second = one.origin[:3], other.origin[:3]
                if first != second and label_of[first] == label_of[second]:
                    behind.setdefault(second, set()).add(first)
        ordered: dict[Event, int] = {}
        waiting = sorted(rank, key=lambda event: rank[event])
        while waiting:
            ready = next((e for e in waiting if behind.get(e, set()) <= ordered.keys()), waiting[0])
            ordered[ready] = len(ordered)
            waiting.remove(ready)
        return sorted(self._placed, key=lambda each: self._sort_key(each, label_of, ordered))

    def _sort_key(
        self, each: Placed, label_of: Mapping[Event, int], rank: Mapping[Event, int]
    ) -> tuple[int, int, int, bytes, int]:
        event = each.origin[:3]
        if each.kind in STATE_KINDS:  # By cluster, when all its shard's events are answered.
            cluster = (each.read.key or b"").partition(b"/")[0]
            return label_of[event], 1, 0, cluster, each.origin.ordinal
        return label_of[event], 0, rank[event], b"", each.origin.ordinal

    def _other_times(self) -> Iterator[dict[Event, int]]:
        """The times, had an event that was not answered been later than the one behind it."""
        levels = sorted(set(self._times.values()))
        for event in sorted(self._times):
            if (event[0], event[1], event[2] - 1) in self._times:
                continue  # Nothing went unanswered before it.
            for level in levels:
                for time_ms in (level, level + 1):
                    if time_ms > self._times[event]:
                        yield self._times | {event: time_ms}

    def _known_times(self) -> dict[Event, int]:
        if self._sources is not None:
            return {event: source.time_ms for event, source in self._sources.items()}
        return {each.origin[:3]: _time_of(each) for each in self._placed}

    def _known_keys(self) -> dict[Event, bytes | None]:
        """The source key of each event; None: it is longer than a dead letter may tell."""
        if self._sources is not None:
            return {event: source.key for event, source in self._sources.items()}
        keys: dict[Event, bytes | None] = {}
        for each in self._placed:
            key = each.read.key or b""
            if each.kind is MessageKind.DEAD_LETTER:
                keys[each.origin[:3]] = key if len(key) < DEAD_LETTER_KEY_SIZE_MAX else None
            else:
                keys[each.origin[:3]] = key.partition(b"/")[0]
        return keys

    def _digest(self, order: Sequence[Placed]) -> str:
        digest = hashlib.sha256()
        for each in order:
            kind, value = each.kind or 0, self._shelf.value(each)
            message = Message(kind, each.ce_id, each.read.key, value, _time_of(each))
            for piece in message_bytes(message):
                digest.update(piece)
        return digest.hexdigest()


def _ranks(label_of: Mapping[Event, int], times: Mapping[Event, int]) -> dict[Event, int]:
    """Each event's place in the order of its shard."""
    ranks: dict[Event, int] = {}
    for label in set(label_of.values()):
        events = [event for event in times if label_of[event] == label]
        source, partition, offset = np.array(events, dtype=np.int64).T
        order = merge_order(
            source=source,
            partition=partition,
            offset=offset,
            time_ms=np.array([times[event] for event in events], dtype=np.int64),
        )
        ranks |= {events[at]: rank for rank, at in enumerate(order.tolist())}
    return ranks


def _is_sound(placed: Placed, query: str) -> bool:
    kind, headers = placed.kind, dict(placed.read.headers)
    time_ms = time_ms_of(headers.get("ce_time"))
    return (
        kind is not None
        and time_ms is not None
        and placed.read.headers == expected_headers(query, kind, placed.ce_id, time_ms)
    )


def _time_of(placed: Placed) -> int:
    return time_ms_of(dict(placed.read.headers).get("ce_time")) or 0
