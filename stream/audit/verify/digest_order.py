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
from itertools import islice, product
from typing import Final

import numpy as np
from spu_assigner.schemas.messages.wire import CommitMarker
from spu_assigner.stream.audit.verify.batch_walk import OutputMessages, Placed
from spu_assigner.stream.audit.verify.model import Headers, Read
from spu_assigner.stream.job.shard.batch import DEAD_LETTER_KEY_SIZE_MAX
from spu_assigner.stream.job.shard.bundle import KINDS, Message, MessageKind, message_bytes
from spu_assigner.stream.job.shard.input_batch import merge_order
from spu_assigner.stream.job.source import shard_labels
from spu_assigner.stream.kafka.cloud_events import rfc3339

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


def has_expected_headers(placed: Placed, query: str) -> bool:
    """Whether a message has the headers of its kind, and a time as this job writes it."""
    time_ms = _time_ms(dict(placed.read.headers).get("ce_time"))
    return (
        placed.kind is not None
        and time_ms is not None
        and placed.read.headers == expected_headers(query, placed.kind, placed.ce_id, time_ms)
    )


def order_by_digest(
    messages: OutputMessages,
    placed: Sequence[Placed],
    marker: CommitMarker,
    inputs: Mapping[Event, Read] | None,
) -> list[Placed] | None:
    """The order in which a batch was sent, proved by the marker's digest; None: there is none.

    Args:
        messages: where the values are.
        placed: all messages of the batch; each has its expected headers.
        marker: the batch's.
        inputs: all events of the batch; None: the inputs are not there any more.
    """
    keys: dict[Event, bytes | None] = {each.origin[:3]: _source_key(each) for each in placed}
    times = {each.origin[:3]: _time_of(each) for each in placed}
    if inputs is not None:
        keys = {event: read.key or b"" for event, read in inputs.items()}
        times = {event: read.time_ms for event, read in inputs.items()}
    guesses_max = max(GUESSES_MIN, GUESSED_MAX // max(1, len(placed)))
    guesses = (
        (labels, guess)
        for labels in _possible_labels(keys, max(1, marker.shards))
        for guess in (_possible_times(times) if inputs is None else [times])
    )
    tried: set[tuple[bytes, ...]] = set()
    for labels, guess in islice(guesses, guesses_max):
        order = _order(placed, labels, guess)
        ids = tuple(each.ce_id for each in order)
        if ids not in tried:
            tried.add(ids)
            if _digest(messages, order) == marker.digest:
                return order
    return None


def _source_key(placed: Placed) -> bytes | None:
    """The key of the event behind a message; None: longer than what a dead letter keeps of it."""
    key = placed.read.key or b""
    if placed.kind is not MessageKind.DEAD_LETTER:
        return key.partition(b"/")[0]
    return key if len(key) < DEAD_LETTER_KEY_SIZE_MAX else None


def _possible_labels(keys: Mapping[Event, bytes | None], shards: int) -> Iterator[dict[Event, int]]:
    """The shard of each event: any, where its key is not known."""
    labels = shard_labels(shards)
    known = {
        event: labels[zlib.crc32(key) % shards] for event, key in keys.items() if key is not None
    }
    unknown = [event for event, key in keys.items() if key is None]
    for guess in product(labels, repeat=len(unknown)):
        yield known | dict(zip(unknown, guess, strict=True))


def _possible_times(times: Mapping[Event, int]) -> Iterator[Mapping[Event, int]]:
    """The times, then those if an event that was not answered was later than the one behind it."""
    yield times
    levels = sorted(set(times.values()))
    for event in sorted(times):
        if (event[0], event[1], event[2] - 1) in times:
            continue  # Nothing went unanswered before it.
        for level in levels:
            for time_ms in (level, level + 1):
                if time_ms > times[event]:
                    yield {**times, event: time_ms}


def _order(
    placed: Sequence[Placed], labels: Mapping[Event, int], times: Mapping[Event, int]
) -> list[Placed]:
    """Shard by shard, in each the events merged by their times, then the state by cluster."""
    ranks: dict[Event, int] = {}  # each event's place in the order of its shard
    for label in set(labels.values()):
        events = [event for event in times if labels[event] == label]
        source, partition, offset = np.array(events, dtype=np.int64).T
        order = merge_order(
            source=source,
            partition=partition,
            offset=offset,
            time_ms=np.array([times[event] for event in events], dtype=np.int64),
        )
        ranks |= {events[at]: rank for rank, at in enumerate(order.tolist())}

    def sort_key(each: Placed) -> tuple[int, bool, int, bytes, int]:
        event = each.origin[:3]
        if each.kind in STATE_KINDS:
            cluster_id = (each.read.key or b"").partition(b"/")[0]
            return labels[event], True, 0, cluster_id, each.origin.ordinal
        return labels[event], False, ranks[event], b"", each.origin.ordinal

    return sorted(placed, key=sort_key)


def _digest(messages: OutputMessages, order: Sequence[Placed]) -> str:
    digest = hashlib.sha256()
    for each in order:
        value = messages.value(each.ce_id)
        message = Message(each.kind or 0, each.ce_id, each.read.key, value, _time_of(each))
        for piece in message_bytes(message):
            digest.update(piece)
    return digest.hexdigest()


def _time_of(placed: Placed) -> int:
    return _time_ms(dict(placed.read.headers).get("ce_time")) or 0


@lru_cache(maxsize=4_096)
def _time_ms(ce_time: bytes | None) -> int | None:
    """The milliseconds; None: it is no time as this job writes it."""
    try:
        moment = datetime.fromisoformat((ce_time or b"").decode())
        time_ms = round(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
    return time_ms if rfc3339(time_ms) == ce_time else None
