"""The replica maps that `plan` and `apply` go by: of the job's topics, or of `simulate`'s output.

Of one cluster id, and of topics whose names match; the latest map of each. What cannot be read is
an error and no gap: a topic that looked as if it had no map would be left out in silence.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO, Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.limits import MAP_SIZE_MAX, SPU_ID_MAX, is_legal_name
from spu_assigner.core.base.records import EntryKind, ReplicaMap, Status, Wait, Waiting
from spu_assigner.stream.common.json_line_reading import chunks_of_lines
from spu_assigner.stream.common.printable import printable
from spu_assigner.stream.config.connection import Connection
from spu_assigner.stream.kafka.cloud_events import tombstone_is_release
from spu_assigner.stream.kafka.topics import ASSIGNER_STATE, REPLICA_MAP, topic_name
from spu_assigner.stream.plan.model import Maps, Rows, Wanted

LINE_SIZE_MAX: Final = 4 * MAP_SIZE_MAX  # an id takes more room as text than in Avro
TYPES: Final = ("replica_map", "topic_status", "ring_event", "explanation")
QUOTE_LENGTH_MAX: Final = 80
CLUSTERS_REPORTED_MAX: Final = 5


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
        MapsError: there is nothing of this cluster.
    """
    from spu_assigner.stream.kafka.client import Reader

    own = f"{cluster_id}/".encode()
    creates = f"{cluster_id}/{EntryKind.WAITING}/".encode()
    latest: dict[tuple[str, bytes], tuple[bytes | None, tuple[int, int]]] = {}
    released: dict[bytes, int] = {}  # of each key the last release that is still to be read
    last_released: set[bytes] = set()  # keys of which that is the last message
    is_known = False
    with Reader(connection, [REPLICA_MAP, ASSIGNER_STATE], from_beginning=True) as reader:
        for name, message in reader.drain_messages():
            key = message.key() or b""
            is_known = is_known or key.startswith(own)
            if key.startswith(own if name == REPLICA_MAP else creates):
                place = int(message.partition() or 0), int(message.offset() or 0)
                latest[name, key] = message.value(), place
                if name == REPLICA_MAP:
                    last_released.discard(key)
                    if message.value() is None and tombstone_is_release(message.headers()):
                        released[key] = max(1, message.timestamp()[1])
                        last_released.add(key)
    if not is_known:
        raise MapsError(
            f"no cluster {cluster_id!r} on {topic_name(REPLICA_MAP, prefix=connection.prefix)}; "
            "check its name, the brokers and the prefix"
        )
    topics: dict[str, Wanted] = {}
    waiting: dict[str, str] = {}
    for (name, key), (value, place) in latest.items():
        topic = key.removeprefix(own if name == REPLICA_MAP else creates).decode("utf-8", "replace")
        if not is_meant(topic):
            continue
        record = None if value is None else _record(connection, name, key, value, place)
        if name == REPLICA_MAP:
            wanted = Wanted(replicas=None) if record is None else _wanted(record)
            topics[topic] = replace(
                wanted, is_released=key in last_released, released_at=released.get(key)
            )
        elif isinstance(record, Waiting) and record.kind is Wait.CREATE:
            waiting[topic] = (
                f"its create of {record.partitions} partitions waits for room for "
                f"{record.replication_factor} replicas of each"
            )
    return Maps(cluster_id=cluster_id, topics=topics, waiting=waiting)


def _record(
    connection: Connection, name: str, key: bytes, value: bytes, place: tuple[int, int]
) -> ReplicaMap | Waiting:
    from spu_assigner.schemas.errors import DecodeError
    from spu_assigner.schemas.messages.codec import decode_record
    from spu_assigner.stream.recover.published import DamagedOutputError

    told = None
    try:
        record = decode_record(value)
    except DecodeError as reason:
        told = f"no record: {reason}"
    else:
        middle = "" if name == REPLICA_MAP else f"{EntryKind.WAITING}/"
        if isinstance(record, ReplicaMap if name == REPLICA_MAP else Waiting):
            if f"{record.cluster_id}/{middle}{record.topic}".encode() == key:
                return record
            told = "what belongs under another key"
        else:
            told = f"a {type(record).__name__}"
    raise DamagedOutputError(
        topic=topic_name(name, prefix=connection.prefix),
        partition=place[0],
        offset=place[1],
        key=key,
        told=told,
    )


def _wanted(record: ReplicaMap | Waiting) -> Wanted:
    lists = record.replicas if isinstance(record, ReplicaMap) else None
    if lists is None:
        return Wanted(replicas=None)
    rows = tuple(tuple(row) for row in lists.tolist())
    return Wanted(replicas=rows, replication_factor=record.replication_factor)


def maps_of_file(
    source: BinaryIO, file: Path, cluster_id: str, is_meant: Callable[[str], bool]
) -> Maps:
    """What `simulate` printed.

    Such lines do not tell how many replicas were asked for: a list is short if another of its map
    is longer, or if the topic's last status is `waiting`; then it is at least one replica short.

    Raises:
        MapsError: a line is none of `simulate`'s, or there is nothing of this cluster.
    """
    reading = _Lines(str(file), cluster_id)
    number = 0
    for lines in chunks_of_lines(source, size_max=LINE_SIZE_MAX):
        for line in lines:
            number += 1
            if line.strip():
                reading.take(number, line)
    return reading.done(is_meant)


class _Lines:
    """Lines of `simulate` become maps."""

    def __init__(self, file: str, cluster_id: str) -> None:
        self._file = file
        self._cluster_id = cluster_id
        self._others: set[str] = set()
        self._is_known = False
        self._maps: dict[str, Rows | None] = {}
        self._waits: dict[str, str] = {}  # topic: what its last status says
        self._released: set[str] = set()  # topics that were released at some time
        self._last_released: set[str] = set()  # and are so now

    def take(self, number: int, line: bytes) -> None:
        if len(line) > LINE_SIZE_MAX:
            raise self._error(number, f"is longer than {LINE_SIZE_MAX} bytes")
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as reason:
            raise self._error(number, "is no JSON") from reason
        kind = found.get("type") if isinstance(found, dict) else None
        if kind == "dead_letter":
            raise self._error(
                number,
                f"is a dead letter: line {found.get('line')} of the events was not understood; "
                "mend that and simulate again",
            )
        if kind not in TYPES:
            raise self._error(number, f"has type {kind!r}"[:QUOTE_LENGTH_MAX])
        cluster_id = found.get("cluster_id")
        if cluster_id != self._cluster_id:
            self._others.add(str(cluster_id))
            return
        self._is_known = True
        topic = found.get("topic")
        if kind == "replica_map":
            if not isinstance(topic, str) or not is_legal_name(topic):
                raise self._error(number, f"has a topic that Kafka would not take ({topic!r:.80})")
            self._maps[topic] = self._rows(number, found.get("replicas"))
            self._last_released.discard(topic)
        elif kind == "topic_status" and isinstance(topic, str):
            if found.get("status") == Status.WAITING:
                self._waits[topic] = str(found.get("message"))
            elif found.get("status") in (Status.ASSIGNED, Status.DELETED, Status.RELEASED):
                self._waits.pop(topic, None)  # A refusal of something else settles nothing.
            if found.get("status") == Status.RELEASED:
                self._released.add(topic)
                self._last_released.add(topic)

    def done(self, is_meant: Callable[[str], bool]) -> Maps:
        if not self._is_known:
            known = ", ".join(sorted(self._others)[:CLUSTERS_REPORTED_MAX]) or "none"
            raise MapsError(
                f"{self._file} has no cluster {self._cluster_id!r}; it has {printable(known)}"
            )
        topics: dict[str, Wanted] = {}
        for topic, rows in self._maps.items():
            width = max(map(len, rows)) if rows else 0
            is_even = all(len(row) == width for row in rows or ())
            asked = width + 1 if topic in self._waits and is_even else width
            if is_meant(topic):
                topics[topic] = Wanted(
                    replicas=rows,
                    replication_factor=asked,
                    is_released=topic in self._last_released,
                    released_at=0 if topic in self._released else None,
                )
        waiting = {
            topic: f"its create waits: {printable(told)}"
            for topic, told in self._waits.items()
            if is_meant(topic) and self._maps.get(topic) is None
        }
        return Maps(cluster_id=self._cluster_id, topics=topics, waiting=waiting)

    def _rows(self, number: int, found: Any) -> Rows | None:
        if found is None:
            return None
        try:
            return checked_rows(found)
        except ValueError as reason:
            raise self._error(number, f"has no replica lists: {reason}") from reason

    def _error(self, number: int, found: str) -> MapsError:
        return MapsError(
            f"line {number} of {self._file} {printable(found)}; expected the output of "
            "`spu-assigner simulate`"
        )


def checked_rows(found: Any) -> Rows:
    """Replica lists out of JSON.

    Raises:
        ValueError: they are none.
    """
    if not isinstance(found, list) or not found:
        raise ValueError("expected a list of lists of SPU ids, one for each partition")
    for number, row in enumerate(found):
        if not isinstance(row, list) or not row:
            raise ValueError(f"partition {number} has no list of SPU ids")
        if any(type(each) is not int or not 0 <= each <= SPU_ID_MAX for each in row):
            raise ValueError(f"partition {number} has an id that is none of an SPU")
        if len(set(row)) < len(row):
            raise ValueError(f"partition {number} has an SPU twice")
    return tuple(map(tuple, found))
