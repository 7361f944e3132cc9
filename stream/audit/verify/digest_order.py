"""The order of a batch's messages, out of their headers, and the digest of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final

from spu_assigner.stream.audit.verify.batch_walk import OutputMessages, Placed
from spu_assigner.stream.job.batch_buffer import SHARD
from spu_assigner.stream.job.shard.bundle import KINDS, Message, MessageKind, message_bytes
from spu_assigner.stream.kafka.cloud_events import output_headers, rfc3339

STATE_KINDS: Final = frozenset(
    {
        MessageKind.SPU_STATE,
        MessageKind.CHAIN_STATE,
        MessageKind.SEEN_STATE,
        MessageKind.WAITING_STATE,
    }
)


def order_of(placed: Placed) -> tuple[int, int]:
    """Shard and sequence, as the headers say."""
    headers = dict(placed.read.headers)
    return _number(headers.get("shard")), _number(headers.get("sequence"))


def has_expected_headers(placed: Placed, query: str) -> bool:
    """Whether a message has the headers of its kind, and a time as this job writes it."""
    time_ms = _time_ms(dict(placed.read.headers).get("ce_time"))
    if placed.kind is None or time_ms is None:
        return False
    shard, sequence = order_of(placed)
    name = KINDS[placed.kind][1]
    return placed.read.headers == output_headers(
        query, name, placed.ce_id, time_ms, shard=shard, sequence=sequence
    )


def order_by_digest(
    messages: OutputMessages, placed: Sequence[Placed], expected: str
) -> list[Placed] | None:
    """The messages in their order; None: they are not those of the digest."""
    digest = hashlib.sha256()
    last, following = None, 0
    ordered = sorted(placed, key=order_of)
    for each in ordered:
        shard, sequence = order_of(each)
        if shard != last:
            digest.update(SHARD.pack(shard))
            last, following = shard, 0
        if sequence != following:
            return None
        following += 1
        value = messages.value(each.ce_id)
        time_ms = _time_ms(dict(each.read.headers).get("ce_time")) or 0
        for piece in message_bytes(
            Message(each.kind or 0, each.ce_id, each.read.key, value, time_ms)
        ):
            digest.update(piece)
    return ordered if digest.hexdigest() == expected else None


def _number(text: bytes | None) -> int:
    return int(text) if text is not None and text.isdigit() and len(text) < 10 else -1


@lru_cache(maxsize=4_096)
def _time_ms(ce_time: bytes | None) -> int | None:
    """The milliseconds; None: it is no time as this job writes it."""
    try:
        moment = datetime.fromisoformat((ce_time or b"").decode())
        time_ms = round(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
    return time_ms if rfc3339(time_ms) == ce_time else None
