"""The replica maps that `plan` and `apply` go by: of the job's topics, or what the core gives.

Of one cluster id, and of topics whose names match; the latest map of each. What cannot be read is
an error and no gap: a topic that looked as if it had no map would be left out in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from confluent_kafka import Message
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.events import Event, TopicRelease
from spu_assigner.core.base.records import Answer, Mode, ReplicaMap, Wait, Waiting
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.stream.clusters.plan.model import Maps, Wanted
from spu_assigner.stream.common.json_line_reading import event_of_line, lines_of
from spu_assigner.stream.common.printable import listed, printable
from spu_assigner.stream.job.shard.clusters import output_key
from spu_assigner.stream.job.shard.published import checked_record, cluster_messages
from spu_assigner.stream.kafka.cloud_events import tombstone_is_release
from spu_assigner.stream.kafka.config.command_options import reading
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.topics import ASSIGNER_STATE, REPLICA_MAP


class EventsFileError(AssignerError):
    """A file of events holds something else, or has nothing of a cluster."""


def matcher(globs: Sequence[str]) -> Callable[[str], bool]:
    """Whether a topic is meant: all are where no glob is given."""
    return lambda topic: not globs or any(fnmatchcase(topic, glob) for glob in globs)


def read_maps(connection: Connection, cluster_id: str, is_meant: Callable[[str], bool]) -> Maps:
    """What the job has published, as far as it is committed now."""
    latest: dict[str, dict[str, Message]] = {REPLICA_MAP: {}, ASSIGNER_STATE: {}}
    released: set[str] = set()  # topics, now or before
    for name, topic, message in cluster_messages(connection, cluster_id):
        if is_meant(topic):
            latest[name][topic] = message
            if name == REPLICA_MAP and _is_release(message):
                released.add(topic)
    topics = {
        topic: _wanted(
            checked_record(message, ReplicaMap, output_key),
            is_released=_is_release(message),
            was_released=topic in released,
        )
        for topic, message in latest[REPLICA_MAP].items()
    }
    entries = (
        checked_record(each, Waiting, output_key) for each in latest[ASSIGNER_STATE].values()
    )
    return Maps(cluster_id=cluster_id, topics=topics, waiting=_waiting(entries))


def maps_of_events(file: Path, cluster_id: str, is_meant: Callable[[str], bool]) -> Maps:
    """What the core decides of the events of a file, as `simulate` does."""
    topics: dict[str, Wanted] = {}

    def take(event: Event, answers: Iterable[Answer]) -> None:
        is_release = isinstance(event, TopicRelease)
        for answer in answers:
            if isinstance(answer, ReplicaMap) and is_meant(answer.topic):
                before = topics.get(answer.topic, Wanted(replicas=None))
                topics[answer.topic] = _wanted(
                    answer, is_released=is_release, was_released=is_release or before.was_released
                )

    entries = state_of_events(file, cluster_id, take).waiting.values()
    waiting = _waiting(each for each in entries if is_meant(each.topic))
    return Maps(cluster_id=cluster_id, topics=topics, waiting=waiting, is_live=False)


def state_of_events(
    file: Path,
    cluster_id: str,
    take: Callable[[Event, Sequence[Answer]], None] = lambda event, answers: None,
) -> ClusterState:
    """The cluster after the events of a file; `take` is called with each of its events."""
    assigner = Assigner()
    with reading(file) as source:
        for number, line in enumerate(lines_of(source), start=1):
            try:
                event = event_of_line(line)
            except DecodeError as fault:
                raise EventsFileError(
                    f"line {number} of {file} is no event: {printable(fault.message)}; "
                    "`spu-assigner simulate --check` names all faults"
                ) from fault
            answers = () if event is None else assigner.apply(event)
            if event is not None and event.cluster_id == cluster_id:
                take(event, answers)
    if cluster_id not in assigner.clusters:
        known = printable(listed(sorted(assigner.clusters)))
        raise EventsFileError(f"{file} has no cluster {cluster_id!r}; it has {known}")
    return assigner.clusters[cluster_id]


def _wanted(found: ReplicaMap | None, *, is_released: bool, was_released: bool) -> Wanted:
    """A topic by its latest map; None: it is deleted."""
    if found is None or found.replicas is None:
        return Wanted(replicas=None, is_released=is_released, was_released=was_released)
    rows = tuple(map(tuple, found.replicas.tolist()))
    lengths = found.wanted_lengths or (found.replication_factor,) * len(rows)
    pairs = enumerate(zip(rows, lengths, strict=True))
    return Wanted(
        replicas=rows,
        short=frozenset(number for number, (row, length) in pairs if len(row) < length),
        is_adopted=found.reason is not None and found.reason.mode is Mode.ADOPTED,
        was_released=was_released,
    )


def _waiting(entries: Iterable[Waiting | None]) -> dict[str, str]:
    """Creates without a map, and for what they wait."""
    return {
        entry.topic: f"its create of {entry.partitions} partitions waits for room for "
        f"{entry.replication_factor} replicas of each"
        for entry in entries
        if entry is not None and entry.kind is Wait.CREATE
    }


def _is_release(message: Message) -> bool:
    return message.value() is None and tombstone_is_release(message.headers())
