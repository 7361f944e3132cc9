"""The replica maps that `plan` and `apply` go by: of the job's topics, or of `simulate`'s output.

Of one cluster id, and of topics whose names match; the latest map of each. What cannot be read is
an error and no gap: a topic that looked as if it had no map would be left out in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, Literal

import msgspec
from confluent_kafka import Message
from msgspec import Meta, Raw, Struct
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.limits import is_legal_name, name_fault
from spu_assigner.core.base.records import Mode, ReplicaMap, Status, Wait, Waiting
from spu_assigner.core.base.resources import BYTES
from spu_assigner.stream.clusters.plan.model import Maps, Rows, Wanted
from spu_assigner.stream.common.json_line_reading import chunks_of_lines
from spu_assigner.stream.common.printable import listed, printable
from spu_assigner.stream.job.shard.clusters import output_key
from spu_assigner.stream.job.shard.published import checked_record, cluster_messages
from spu_assigner.stream.kafka.cloud_events import tombstone_is_release
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.topics import ASSIGNER_STATE, REPLICA_MAP

_SETTLING: Final = (Status.ASSIGNED, Status.ADOPTED, Status.DELETED, Status.RELEASED)


class MapsError(AssignerError):
    """There are no replica maps to go by."""


def matcher(globs: Sequence[str]) -> Callable[[str], bool]:
    """Whether a topic is meant: all are where no glob is given."""
    return lambda topic: not globs or any(fnmatchcase(topic, glob) for glob in globs)


def read_maps(connection: Connection, cluster_id: str, is_meant: Callable[[str], bool]) -> Maps:
    """What the job has published, as far as it is committed now.

    Raises:
        ClientError: Kafka cannot be reached, or topics are missing.
        DamagedOutputError: a value is none that the job has written.
        ClusterUnknownError: there is nothing of this cluster.
    """
    latest: dict[str, dict[str, Message]] = {REPLICA_MAP: {}, ASSIGNER_STATE: {}}
    released: dict[str, int] = {}  # when a topic was released last
    for name, topic, message in cluster_messages(connection, cluster_id):
        if is_meant(topic):
            latest[name][topic] = message
            if name == REPLICA_MAP and _is_release(message):
                released[topic] = max(1, message.timestamp()[1])
    topics = {
        topic: _wanted(message, released.get(topic))
        for topic, message in latest[REPLICA_MAP].items()
    }
    waiting = {
        topic: f"its create of {entry.partitions} partitions waits for room for "
        f"{entry.replication_factor} replicas of each"
        for topic, message in latest[ASSIGNER_STATE].items()
        if (entry := checked_record(message, Waiting, output_key)) is not None
        and entry.kind is Wait.CREATE
    }
    return Maps(cluster_id=cluster_id, topics=topics, waiting=waiting)


def _wanted(message: Message, released_at: int | None) -> Wanted:
    """A topic by its latest map, or tombstone."""
    found = checked_record(message, ReplicaMap, output_key)
    if found is None or found.replicas is None:
        is_released = _is_release(message)
        return Wanted(replicas=None, is_released=is_released, released_at=released_at)
    rows = tuple(map(tuple, found.replicas.tolist()))
    lengths = found.wanted_lengths or (found.replication_factor,) * len(rows)
    pairs = enumerate(zip(rows, lengths, strict=True))
    return Wanted(
        replicas=rows,
        short=frozenset(number for number, (row, length) in pairs if len(row) < length),
        is_adopted=found.reason is not None and found.reason.mode is Mode.ADOPTED,
        says_bytes=found.need is not None and BYTES in dict(found.need.demand),
        released_at=released_at,
    )


def _is_release(message: Message) -> bool:
    return message.value() is None and tombstone_is_release(message.headers())


_Lists = Annotated[Rows, Meta(min_length=1)] | None


class _Line(Struct):
    """What is read of a line of `simulate`."""

    type: Literal["replica_map", "topic_status", "ring_event", "explanation", "dead_letter"]
    cluster_id: str = ""
    topic: str = ""
    replicas: Raw = Raw(b"null")
    status: Any = ""
    message: Any = ""
    line: Any = 0


def maps_of_file(
    source: BinaryIO, file: Path, cluster_id: str, is_meant: Callable[[str], bool]
) -> Maps:
    """What `simulate` printed.

    Such lines do not say how many replicas were asked for: a list is short if its topic's last
    status is `waiting`, and another of its map is longer or none is.

    Raises:
        MapsError: a line is none of `simulate`'s, or there is nothing of this cluster.
    """
    found = _SimulatedMaps()
    others: set[str] = set()
    number = 0
    for number, raw in enumerate(chain.from_iterable(chunks_of_lines(source)), start=1):
        if not raw.strip():
            continue
        try:
            line = msgspec.json.decode(raw, type=_Line)
            if line.cluster_id == cluster_id:
                found.take(line)
            elif line.type == "dead_letter":
                raise ValueError(f"line {line.line} of the events was not understood")
            others |= {line.cluster_id} - {""}
        except (msgspec.MsgspecError, ValueError, RecursionError) as fault:
            raise MapsError(
                f"line {number} of {file} cannot be used ({printable(str(fault))[:160]}); expected "
                "the output of `spu-assigner simulate`"
            ) from fault
    if cluster_id not in others:
        named = printable(listed(sorted(others)))
        raise MapsError(f"{file} has no cluster {cluster_id!r}; it has {named}")
    return found.maps(cluster_id, is_meant)


class _SimulatedMaps:
    """Lines of `simulate` become maps."""

    def __init__(self) -> None:
        self._lists: dict[str, Rows | None] = {}
        self._waits: dict[str, str] = {}  # topic: what its last status says
        self._released: dict[str, bool] = {}  # topics that were once: whether they are so now

    def take(self, line: _Line) -> None:
        """Take over a line of the cluster.

        Raises:
            ValueError: it has no replica lists, or of a topic that Kafka would not take.
        """
        topic = line.topic
        if line.type == "replica_map":
            rows = msgspec.json.decode(line.replicas, type=_Lists)
            if not is_legal_name(topic):
                raise ValueError(f"Kafka would not take topic {topic!r:.80}{name_fault(topic)}")
            if any(len(set(row)) < len(row) for row in rows or ()):
                raise ValueError(f"a list of topic {topic} has an SPU twice")
            self._lists[topic] = rows
            if topic in self._released:
                self._released[topic] = False
        elif line.type == "topic_status":
            if line.status == Status.WAITING:
                self._waits[topic] = str(line.message)
            elif line.status in _SETTLING:  # A refusal of something else settles nothing.
                self._waits.pop(topic, None)
            if line.status == Status.RELEASED:
                self._released[topic] = True

    def maps(self, cluster_id: str, is_meant: Callable[[str], bool]) -> Maps:
        """All that the lines say."""
        topics = {
            topic: Wanted(
                replicas=rows,
                short=_short(rows or ()) if topic in self._waits else frozenset(),
                is_released=self._released.get(topic, False),
                released_at=0 if topic in self._released else None,
            )
            for topic, rows in self._lists.items()
            if is_meant(topic)
        }
        waiting = {
            topic: f"its create waits: {printable(message)}"
            for topic, message in self._waits.items()
            if is_meant(topic) and self._lists.get(topic) is None
        }
        return Maps(cluster_id=cluster_id, topics=topics, waiting=waiting, is_live=False)


def _short(rows: Rows) -> frozenset[int]:
    longest = max(map(len, rows), default=0)
    is_even = all(len(row) == longest for row in rows)
    return frozenset(number for number, row in enumerate(rows) if is_even or len(row) < longest)
