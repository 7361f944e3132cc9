"""The replica maps that `plan` and `apply` go by: of the job's topics, or of `simulate`'s output.

Of one cluster id, and of topics whose names match; the latest map of each. What cannot be read is
an error and no gap: a topic that looked as if it had no map would be left out in silence.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO, Final

from confluent_kafka import Message
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.limits import MAP_SIZE_MAX, SPU_ID_MAX, is_legal_name, name_fault
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

LINE_SIZE_MAX: Final = 4 * MAP_SIZE_MAX  # an id takes more room as text than in Avro
TYPES: Final = ("replica_map", "topic_status", "ring_event", "explanation")

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
    topics: dict[str, Wanted] = {}
    for topic, message in latest[REPLICA_MAP].items():
        found = checked_record(message, ReplicaMap, output_key)
        lists = None if found is None else found.replicas
        topics[topic] = Wanted(
            replicas=None if lists is None else tuple(map(tuple, lists.tolist())),
            replication_factor=0 if found is None or lists is None else found.replication_factor,
            lengths=None if found is None or lists is None else found.wanted_lengths,
            is_released=_is_release(message),
            is_adopted=found is not None
            and found.reason is not None
            and found.reason.mode is Mode.ADOPTED,
            says_bytes=found is not None
            and found.need is not None
            and BYTES in dict(found.need.demand),
            released_at=released.get(topic),
        )
    waiting = {
        topic: f"its create of {entry.partitions} partitions waits for room for "
        f"{entry.replication_factor} replicas of each"
        for topic, message in latest[ASSIGNER_STATE].items()
        if (entry := checked_record(message, Waiting, output_key)) is not None
        and entry.kind is Wait.CREATE
    }
    return Maps(cluster_id=cluster_id, topics=topics, waiting=waiting)


def _is_release(message: Message) -> bool:
    return message.value() is None and tombstone_is_release(message.headers())


def maps_of_file(
    source: BinaryIO, file: Path, cluster_id: str, is_meant: Callable[[str], bool]
) -> Maps:
    """What `simulate` printed.

    Such lines do not say how many replicas were asked for: a list is short if another of its map
    is longer, or if the topic's last status is `waiting`; then it is at least one replica short.
    Of a topic that was adopted and does not wait, each list has the length that it is to have.

    Raises:
        MapsError: a line is none of `simulate`'s, or there is nothing of this cluster.
    """
    reading = _SimulatedLines(cluster_id)
    number = 0
    for lines in chunks_of_lines(source, size_max=LINE_SIZE_MAX):
        for line in lines:
            number += 1
            try:
                if line.strip():
                    reading.take(line)
            except ValueError as fault:
                raise MapsError(
                    f"line {number} of {file} {printable(str(fault))}; expected the output of "
                    "`spu-assigner simulate`"
                ) from fault
    if not reading.is_known:
        others = printable(listed(sorted(reading.others)))
        raise MapsError(f"{file} has no cluster {cluster_id!r}; it has {others}")
    return reading.maps(is_meant)


def answer_of_line(line: bytes) -> dict[str, Any]:
    """A line of `simulate`'s as JSON.

    Raises:
        ValueError: it is none; the text says what it is.
    """
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as reason:
        raise ValueError("is no JSON") from reason
    kind = found.get("type") if isinstance(found, dict) else None
    if kind == "dead_letter":
        raise ValueError(
            f"is a dead letter: line {found.get('line')} of the events was not understood; "
            "fix that and simulate again"
        )
    if kind not in TYPES:
        raise ValueError(f"has type {kind!r:.80}")
    members: dict[str, Any] = found
    return members


class _SimulatedLines:
    """Lines of `simulate` become maps."""

    def __init__(self, cluster_id: str) -> None:
        self.is_known = False  # whether there was a line of the cluster
        self.others: set[str] = set()  # other clusters
        self._cluster_id = cluster_id
        self._lists: dict[str, Rows | None] = {}
        self._waits: dict[str, str] = {}  # topic: what its last status says
        self._released: dict[str, bool] = {}  # topics that were once: whether they are so now
        self._adopted: set[str] = set()  # their lists may differ in length

    def take(self, line: bytes) -> None:
        """Take over a line.

        Raises:
            ValueError: it is none of `simulate`'s.
        """
        if len(line) > LINE_SIZE_MAX:
            raise ValueError(f"is longer than {LINE_SIZE_MAX} bytes")
        found = answer_of_line(line)
        kind = found["type"]
        if found.get("cluster_id") != self._cluster_id:
            self.others.add(str(found.get("cluster_id")))
            return
        self.is_known = True
        topic, status = found.get("topic"), found.get("status")
        if kind == "replica_map":
            if not isinstance(topic, str) or not is_legal_name(topic):
                fault = name_fault(topic) if isinstance(topic, str) else ""
                raise ValueError(f"has a topic that Kafka would not take ({topic!r:.80}{fault})")
            lists = found.get("replicas")
            self._lists[topic] = None if lists is None else checked_rows(lists)
            if topic in self._released:
                self._released[topic] = False
        elif kind == "topic_status" and isinstance(topic, str):
            self._take_status(topic, str(status), str(found.get("message")))

    def _take_status(self, topic: str, status: str, message: str) -> None:
        if status == Status.WAITING:
            self._waits[topic] = message
        elif status in _SETTLING:
            self._waits.pop(topic, None)  # A refusal of something else settles nothing.
        if status == Status.ADOPTED:
            self._adopted.add(topic)
        elif status in (Status.DELETED, Status.RELEASED):
            self._adopted.discard(topic)
        if status == Status.RELEASED:
            self._released[topic] = True

    def maps(self, is_meant: Callable[[str], bool]) -> Maps:
        """All that the lines say."""
        topics: dict[str, Wanted] = {}
        for topic, rows in self._lists.items():
            widths = {len(row) for row in rows or ((),)}
            is_short = topic in self._waits and len(widths) == 1
            is_whole = topic in self._adopted and topic not in self._waits
            if is_meant(topic):
                topics[topic] = Wanted(
                    replicas=rows,
                    replication_factor=max(widths) + is_short,
                    lengths=tuple(map(len, rows)) if is_whole and rows is not None else None,
                    is_released=self._released.get(topic, False),
                    released_at=0 if topic in self._released else None,
                )
        waiting = {
            topic: f"its create waits: {printable(message)}"
            for topic, message in self._waits.items()
            if is_meant(topic) and self._lists.get(topic) is None
        }
        return Maps(cluster_id=self._cluster_id, topics=topics, waiting=waiting, is_live=False)


def checked_rows(found: Any) -> Rows:
    """Replica lists out of JSON.

    Raises:
        ValueError: they are none.
    """
    if not isinstance(found, list) or not found:
        raise ValueError("has no replica lists: expected a list of lists of SPU ids")
    for number, row in enumerate(found):
        if not isinstance(row, list) or not row:
            raise ValueError(f"has no list of SPU ids for partition {number}")
        if any(type(each) is not int or not 0 <= each <= SPU_ID_MAX for each in row):
            raise ValueError(f"has an id in partition {number} that is none of an SPU")
        if len(set(row)) < len(row):
            raise ValueError(f"has an SPU twice in partition {number}")
    return tuple(map(tuple, found))
