"""Ways to damage topics: each does one thing that neither compaction nor retention does.

Without the inputs nobody can distinguish a compacted message from a lost one, nor know whether an
event that was not answered was ever there; where they have expired, such damage is not done.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from spu_assigner.schemas.messages.codec import decode_record, encode_record
from spu_assigner.schemas.messages.wire import CommitMarker, PartitionPosition
from spu_assigner.stream.audit.verify.marker_chain import wire_of
from spu_assigner.stream.audit.verify.model import COMPACTED, OUTPUTS, Read
from spu_assigner.stream.kafka.topics import INPUTS
from support.events.histories import MARKERS, Log, Topics

AUDIT: Log = ("assigner-audit", 0)
COMMITS: Log = ("assigner-commits", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    what: str
    topic: str


Corruption = Callable[[Topics, random.Random, bool], Damage | None]  # None: not possible here


def dropped(topics: Topics, draw: random.Random, inputs: bool) -> Damage | None:
    names = [*OUTPUTS, *MARKERS, *(INPUTS if inputs else ())]
    log, at = _any(topics, draw, names)
    if not _is_needed(topics, log, at, inputs):
        return None
    del topics.logs[log][at]
    return Damage(what=f"dropped {log}[{at}]", topic=log[0])


def doubled(topics: Topics, draw: random.Random, inputs: bool) -> Damage | None:
    """A message is there a second time: beside the first, or anywhere behind it."""
    log, at = _any(topics, draw, [*OUTPUTS, *MARKERS])
    to = draw.randint(at + 1, len(topics.logs[log]))
    _insert(topics, log, to, topics.logs[log][at])
    return Damage(what=f"doubled {log}[{at}] at {to}", topic=log[0])


def swapped(topics: Topics, draw: random.Random, inputs: bool) -> Damage | None:
    """Two messages have changed places: neighbours of a partition, or any of two partitions."""
    one = log, at = _any(topics, draw, OUTPUTS)
    if draw.random() < 0.5:
        other = (log, at + 1)
        if at + 1 == len(topics.logs[log]):
            return None
    else:
        other = _any(topics, draw, OUTPUTS)
        if log == other[0]:
            return None
        if log[0] == other[0][0] and not (_at(topics, one).key and _at(topics, other).key):
            return None  # Without a key it may lie in any partition.
    first, second = _at(topics, one), _at(topics, other)
    for (place, number), here, there in ((one, first, second), (other, second, first)):
        moved = there._replace(topic=place[0], partition=place[1], offset=here.offset)
        topics.logs[place][number] = moved
    return Damage(what=f"swapped {one} and {other}", topic=log[0])


def torn(topics: Topics, draw: random.Random, inputs: bool) -> Damage | None:
    """Only a part of a batch is there, its marker too."""
    log, at = _any(topics, draw, ["topic-status", "ring-events", "dead-letter"])
    reads = topics.logs[log]
    end = at
    while end < len(reads) and reads[end].offset == reads[at].offset + end - at:
        end += 1
    del reads[at:end]
    return Damage(what=f"tore {log}[{at}:{end}] out", topic=log[0])


def unmarked(topics: Topics, draw: random.Random, inputs: bool) -> Damage | None:
    at = draw.randrange(len(topics.logs[AUDIT]))
    gone = topics.logs[AUDIT][at]
    marker = decode_record(gone.value or b"")
    assert isinstance(marker, CommitMarker)
    if at + 1 == len(topics.logs[AUDIT]) and marker.count == 0:
        return None  # A batch that read and wrote nothing new is as if it were still to come.
    del topics.logs[AUDIT][at]
    topics.logs[COMMITS] = [read for read in topics.logs[COMMITS] if read.value != gone.value]
    return Damage(what=f"no marker of batch {marker.batch}", topic=AUDIT[0])


def altered(topics: Topics, draw: random.Random, inputs: bool) -> Damage | None:
    """One byte of a message is another."""
    log, at = _any(topics, draw, OUTPUTS)
    read = topics.logs[log][at]
    part = draw.choice(["value", "key", "header"])
    if not inputs and log[0] in COMPACTED and part == "key" and _compacted(topics, log):
        return None
    if part == "header":
        number = draw.randrange(len(read.headers))
        name, value = read.headers[number]
        changed = [*read.headers]
        changed[number] = (name, _flipped(value or b"", draw))
        read = read._replace(headers=tuple(changed))
    else:
        given = read.value if part == "value" else read.key
        if not given:
            return None
        read = read._replace(**{part: _flipped(given, draw)})
    topics.logs[log][at] = read
    return Damage(what=f"altered the {part} of {log}[{at}]", topic=log[0])


def replaced(topics: Topics, draw: random.Random, inputs: bool) -> Damage | None:
    """A message of another batch lies in a message's place, under its `ce_id` or its own."""
    log, at = _any(topics, draw, ["topic-status", "ring-events"])
    _, other = _any(topics, draw, [log[0]], number=log[1])
    mine, its = topics.logs[log][at], topics.logs[log][other]
    if at == other or (mine.key, mine.value) == (its.key, its.value):
        return None
    headers = draw.choice([mine.headers, its.headers])
    topics.logs[log][at] = its._replace(offset=mine.offset, headers=headers)
    return Damage(what=f"{log}[{at}] replaced by [{other}]", topic=log[0])


def strange(topics: Topics, draw: random.Random, inputs: bool) -> Damage | None:
    """Somebody else has written a message: with no `ce_id`, or one that he made up."""
    log, at = _any(topics, draw, OUTPUTS)
    made_up = draw.choice(
        [b"7", b"p-topic-events/0/999999/0", b"p-topic-events/0/0/777", b"x/0/0/0"]
    )
    headers = draw.choice([(), (("ce_id", made_up),)])
    _insert(topics, log, at + 1, topics.logs[log][at]._replace(headers=headers))
    return Damage(what=f"strange {made_up!r} at {log}[{at + 1}]", topic=log[0])


def marked_otherwise(topics: Topics, draw: random.Random, inputs: bool) -> Damage | None:
    """A field of a marker says something else, on the audit alone or on both topics."""
    at = draw.randrange(len(topics.logs[AUDIT]))
    read = topics.logs[AUDIT][at]
    marker = decode_record(read.value or b"")
    assert isinstance(marker, CommitMarker)
    field = draw.choice(["count", "digest", "offsets", "positions", "batch", "checkpoint_id"])
    changed = _otherwise(marker, field, draw, inputs)
    if changed is None:
        return None
    value = encode_record(changed, wire=wire_of(read.value or b""))
    for log in draw.choice([[AUDIT], [AUDIT, COMMITS]]):
        topics.logs[log] = [
            each._replace(value=value) if each.value == read.value else each
            for each in topics.logs[log]
        ]
    return Damage(what=f"{field} of batch {marker.batch}", topic=AUDIT[0])


CORRUPTIONS: tuple[Corruption, ...] = (
    dropped,
    doubled,
    swapped,
    torn,
    unmarked,
    altered,
    replaced,
    strange,
    marked_otherwise,
)


def _otherwise(
    marker: CommitMarker, field: str, draw: random.Random, inputs: bool
) -> CommitMarker | None:
    match field:
        case "count":
            return replace(marker, count=marker.count + draw.choice([-1, 1, 2]))
        case "digest":
            digest = f"{int(marker.digest[:1], 16) ^ 1:x}{marker.digest[1:]}"
            return replace(marker, digest=digest)
        case "batch":
            return replace(marker, batch=marker.batch + draw.choice([-1, 1, 5]))
        case "checkpoint_id":
            return replace(marker, checkpoint_id=marker.checkpoint_id + "x")
    by_topic: dict[str, tuple[Any, ...]] = dict(getattr(marker, field))
    if not by_topic:
        return None
    topic = draw.choice(sorted(by_topic))
    parts = [*by_topic[topic]]
    number = draw.randrange(len(parts))
    parts[number] = _shifted(parts[number], draw, inputs)
    return replace(marker, **{field: {**by_topic, topic: tuple(parts)}})


def _shifted(part: Any, draw: random.Random, inputs: bool) -> Any:
    if isinstance(part, PartitionPosition):
        # Of what lies behind the last message a mark takes one.
        return replace(part, next=part.next + draw.choice([-2, 1]))
    match draw.choice(["first", "last", "count"] if inputs else ["last"]):
        case "first":
            return replace(part, first=part.first + 1)
        case "last":
            return replace(part, last=part.last + draw.choice([-1, 1]))
    return replace(part, count=part.count - 1)


def _any(
    topics: Topics,
    draw: random.Random,
    names: list[str] | tuple[str, ...],
    number: int | None = None,
) -> tuple[Log, int]:
    """Some message of these topics."""
    logs = [
        log
        for log, reads in topics.logs.items()
        if log[0] in names and reads and number in (None, log[1])
    ]
    log = draw.choice(logs)
    return log, draw.randrange(len(topics.logs[log]))


def _at(topics: Topics, place: tuple[Log, int]) -> Read:
    return topics.logs[place[0]][place[1]]


def _is_needed(topics: Topics, log: Log, at: int, inputs: bool) -> bool:
    """Whether neither compaction nor retention could have taken it."""
    if log[0] not in {*COMPACTED, "assigner-commits"}:
        return True
    reads = topics.logs[log]
    key = reads[at].key
    if any(read.key == key for read in reads[at + 1 :]):
        return False
    if log == COMMITS:
        return True
    return inputs and (reads[at].value is not None or any(read.key == key for read in reads[:at]))


def _compacted(topics: Topics, log: Log) -> bool:
    reads = topics.logs[log]
    return log == COMMITS or len(reads) < topics.ends[log]


def _insert(topics: Topics, log: Log, at: int, read: Read) -> None:
    reads = topics.logs[log]
    offset = reads[at - 1].offset + 1
    later = [each._replace(offset=each.offset + 1) for each in reads[at:]]
    topics.logs[log] = [*reads[:at], read._replace(offset=offset), *later]
    topics.ends[log] += 1


def _flipped(data: bytes, draw: random.Random) -> bytes:
    """One bit of it; nothing becomes one byte."""
    changed = bytearray(data or b"\0")
    changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)
