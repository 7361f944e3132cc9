"""What a plan is made of: maps, topics, records of them; and a plan, made now or saved before.

The maps are those of one cluster id, and of topics whose names match; the latest map of each. What
cannot be read is an error and no gap: a topic that looked as if it had no map would be left out in
silence.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Final

import click
import msgspec
from confluent_kafka import Message
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.events import Event, TopicRelease
from spu_assigner.core.base.records import Answer, ReplicaMap, Wait
from spu_assigner.core.constraints.improvable import Improvable, improvable
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.topic import map_of
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.stream.clusters.plan.applied import AppliedRecords, Notes, notes, resolved, seen
from spu_assigner.stream.clusters.plan.applied_store import AppliedLedger
from spu_assigner.stream.clusters.plan.decision import make_plan, plan_load, rest_of
from spu_assigner.stream.clusters.plan.model import (
    ChangeKind,
    Configs,
    KafkaCluster,
    Maps,
    TopicsPlan,
    Wanted,
    is_adopted,
)
from spu_assigner.stream.clusters.plan.target_cluster import Target
from spu_assigner.stream.common.json_line_reading import event_of_line, lines_of
from spu_assigner.stream.common.plain_file import FileRefusedError, read_plain_file
from spu_assigner.stream.common.printable import listed, printable
from spu_assigner.stream.job.shard.clusters import output_key
from spu_assigner.stream.job.shard.published import PublishedState, checked_record, own_messages
from spu_assigner.stream.kafka.cloud_events import tombstone_is_release
from spu_assigner.stream.kafka.config.command_options import reading
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.errors import ClientError
from spu_assigner.stream.kafka.topics import APPLIED_TOPICS, REPLICA_MAP, TOPICS, topic_name

LOOKS_MAX: Final = 3  # at topics that are recorded and not seen: another run may just make them
LOOK_SECONDS: Final = 0.2
SIZE_MAX: Final = 1024 * 1024 * 1024  # a hundred thousand topics of a hundred partitions


class PlanFileError(AssignerError):
    """A file is no plan, or cannot be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What is to be planned."""

    connection: Connection  # to the job's topics
    target_connection: Connection | None  # to another Kafka cluster
    cluster_id: str
    file: Path | None = None  # of events, whose maps are meant instead of the job's
    globs: tuple[str, ...] = ()
    delete: bool = False
    recreate: bool = False
    foreign: tuple[str, ...] = ()  # globs
    configs: Configs | None = None  # of the only topics that are meant, to create them with

    def target(self) -> Target:
        """The Kafka cluster whose topics are to be as mapped."""
        return Target(self.target_connection or self.connection, self.configs or {})

    def ledger_connection(self) -> Connection:
        """To the Kafka cluster of the mapped topics, with the prefix of the job's topics."""
        return self.connection.to_target(self.target_connection)

    def own_topics(self, kafka_id: str) -> frozenset[str]:
        """The product's topics in the target; the job's may be there where that is not known."""
        is_elsewhere = False
        if self.target_connection is not None and self.file is None:
            with Target(self.connection) as mine:
                is_elsewhere = mine.kafka_id() != kafka_id
        names = [APPLIED_TOPICS] if is_elsewhere else [spec.name for spec in TOPICS]
        return frozenset(topic_name(name, prefix=self.connection.prefix) for name in names)

    def is_foreign(self, topic: str) -> bool:
        """Whether a topic may be changed though `apply` did not make it."""
        return bool(self.foreign) and matcher(self.foreign)(topic)

    def maps(self, saved: TopicsPlan | None = None) -> Maps:
        """The maps as they are now; of a saved plan those that it speaks of."""
        if saved is not None:
            lists = {**saved.unchanged, **{each.topic: each.after for each in saved.changes}}
            if saved.maps_from == "kafka":
                return read_maps(self.connection, saved.cluster_id, lists.__contains__)
            topics = {name: Wanted(replicas=rows or None) for name, rows in lists.items()}
            return Maps(cluster_id=saved.cluster_id, topics=topics, is_live=False)
        is_meant = matcher(self.globs) if self.configs is None else self.configs.__contains__
        if self.file is None:
            return read_maps(self.connection, self.cluster_id, is_meant)
        return maps_of_events(self.file, self.cluster_id, is_meant)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSources:
    """What a plan is made of besides the maps, and what is recorded of it."""

    cluster: KafkaCluster
    maps: Maps
    applied: AppliedRecords  # with what runs that broke off have created
    ledger: AppliedLedger
    notes: Notes  # what apply records before it does anything


def plan_now(
    request: PlanRequest,
    target: Target,
    saved: TopicsPlan | None = None,
    *,
    maps: Maps | None = None,
) -> tuple[TopicsPlan, PlanSources]:
    """A plan of these maps, or those of the request, and the topics as they are now.

    The topics are looked at before the records are read: what another run makes meanwhile is then
    recorded, or not seen yet.
    """
    maps, connection = maps or request.maps(saved), request.ledger_connection()
    records = topic_name(APPLIED_TOPICS, prefix=connection.prefix)
    topics = [*maps.lists()]
    deleted = maps.topics.keys() - {*topics}
    cluster = target.look([*topics, records], deleted=deleted)
    ledger = AppliedLedger(connection, maps.cluster_id, is_there=records in cluster.topics)
    applied = ledger.read()
    for _ in range(LOOKS_MAX):
        if all(name in cluster.topics or not applied.gone_id(name) for name in topics):
            break
        time.sleep(LOOK_SECONDS)
        cluster = target.look([*topics, records], deleted=deleted)
    cluster = replace(cluster, own=request.own_topics(cluster.kafka_id))
    untouched = partial(target.untouched, cluster)
    applied, settled = resolved(applied, cluster, untouched, now_ms=int(time.time() * 1000))
    noted = notes(maps, cluster, applied)
    noted = replace(noted, records=(*settled, *noted.records))
    foreign = {change.topic for change in saved.changes} if saved is not None else set()
    plan = make_plan(
        maps,
        cluster,
        applied=applied,
        delete=request.delete or saved is not None,
        recreate=request.recreate if saved is None else saved.recreate,
        is_foreign=lambda topic: topic in foreign or request.is_foreign(topic),
        globs=request.globs,
    )
    if saved is not None:
        plan = rest_of(saved, plan, cluster)
    found = PlanSources(cluster=cluster, maps=maps, applied=applied, ledger=ledger, notes=noted)
    return sized(plan, target), found


def costed_plan(request: PlanRequest) -> TopicsPlan:
    """A plan with what it costs; topics that are as mapped are recorded as seen."""
    with request.target() as target:
        plan, found = plan_now(request, target)
        if found.ledger.is_there:
            with suppress(ClientError):  # A plan is as good without it.
                found.ledger.record(seen(found.notes, found.applied))
        ahead = found.cluster.partitions_ahead(found.maps.topics)
        could = improvable(found.maps.state) if found.maps.state else Improvable()
        plan = replace(plan, improvable=could, partitions_ahead=ahead)
        return with_load(plan, found, request, target)


def with_load(
    plan: TopicsPlan, found: PlanSources, request: PlanRequest, target: Target
) -> TopicsPlan:
    """The plan with what it costs, and what this user may not see."""
    cluster = found.cluster
    sizes, unseen = target.held(cluster)
    load = plan_load(plan, cluster, sizes, unseen)
    if not plan.changes:  # Then only topics that could be mapped are of concern.
        is_meant = matcher(request.globs)
        meant = {
            at: each
            for at, each in unseen.sizes.items()
            if is_meant(at[0]) and cluster.reserved(at[0]) is None
        }
        unseen = replace(unseen, sizes=meant)
    return replace(plan, load=load, unseen=unseen.summary)


def sized(plan: TopicsPlan, target: Target) -> TopicsPlan:
    """The plan with how much data its deletions concern, as it is now."""
    deletes = {change.topic: change for change in target.sized(plan.of(ChangeKind.DELETE))}
    return replace(plan, changes=tuple(deletes.get(each.topic, each) for each in plan.changes))


class EventsFileError(AssignerError):
    """A file of events holds something else, or has nothing of a cluster."""


def matcher(globs: Sequence[str]) -> Callable[[str], bool]:
    """Whether a topic is meant: all are where no glob is given."""
    return lambda topic: not globs or any(fnmatchcase(topic, glob) for glob in globs)


def read_maps(connection: Connection, cluster_id: str, is_meant: Callable[[str], bool]) -> Maps:
    """What the job has published, as far as it is committed now."""
    published, latest = PublishedState(connection.prefix), dict[str, Message]()
    released: set[str] = set()  # topics, now or before
    for name, key, message in own_messages(connection, cluster_id):
        published.take_message(name, message)
        topic = key.decode("utf-8", "replace").partition("/")[2]
        if name == REPLICA_MAP and is_meant(topic):
            latest[topic] = message
            if _is_release(message):
                released.add(topic)
    state = published.unchecked(cluster_id)
    topics = {
        topic: wanted_of(
            checked_record(message, ReplicaMap, output_key),
            is_released=_is_release(message),
            was_released=topic in released,
        )
        for topic, message in latest.items()
    }
    waiting = _waiting(state, is_meant)
    return Maps(cluster_id=cluster_id, topics=topics, waiting=waiting, state=state)


def maps_of_state(state: ClusterState) -> Maps:
    """The maps of a cluster's state, which the job may not have published."""
    topics = {
        name: wanted_of(map_of(state.cluster_id, name, topic))
        for name, topic in state.topics.items()
    }
    waiting = _waiting(state, lambda _: True)
    return Maps(cluster_id=state.cluster_id, topics=topics, waiting=waiting, is_live=False)


def maps_of_events(file: Path, cluster_id: str, is_meant: Callable[[str], bool]) -> Maps:
    """What the core decides of the events of a file, as `simulate` does."""
    topics: dict[str, Wanted] = {}

    def take(event: Event, answers: Iterable[Answer]) -> None:
        is_release = isinstance(event, TopicRelease)
        for answer in answers:
            if isinstance(answer, ReplicaMap) and is_meant(answer.topic):
                before = topics.get(answer.topic, Wanted(replicas=None))
                topics[answer.topic] = wanted_of(
                    answer, is_released=is_release, was_released=is_release or before.was_released
                )

    state = state_of_events(file, cluster_id, take)
    waiting = _waiting(state, is_meant)
    return Maps(cluster_id=cluster_id, topics=topics, waiting=waiting, is_live=False, state=state)


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
                    f"line {number} of {file} is not an event: {printable(fault.message)}; "
                    "`spu-assigner simulate --check` names all faults"
                ) from fault
            answers = () if event is None else assigner.apply(event)
            if event is not None and event.cluster_id == cluster_id:
                take(event, answers)
    if cluster_id not in assigner.clusters:
        known = printable(listed(sorted(assigner.clusters)))
        raise EventsFileError(f"{file} has no cluster {cluster_id!r}; it has {known}")
    return assigner.clusters[cluster_id]


def wanted_of(
    found: ReplicaMap | None, *, is_released: bool = False, was_released: bool = False
) -> Wanted:
    """A topic by its latest map; None: it is deleted."""
    if found is None or found.replicas is None:
        return Wanted(replicas=None, is_released=is_released, was_released=was_released)
    rows = tuple(map(tuple, found.replicas.tolist()))
    lengths = found.wanted_lengths or (found.replication_factor,) * len(rows)
    pairs = enumerate(zip(rows, lengths, strict=True))
    return Wanted(
        replicas=rows,
        short=frozenset(number for number, (row, length) in pairs if len(row) < length),
        is_pinned=found.pinned,
        is_adopted=is_adopted(found),
        was_released=was_released,
    )


def _waiting(state: ClusterState, is_meant: Callable[[str], bool]) -> dict[str, str]:
    """Creates without a map, and for what they wait."""
    return {
        entry.topic: f"its create of {entry.partitions} partitions waits for room for "
        f"{entry.replication_factor} replicas of each"
        for entry in state.waiting.values()
        if entry.kind is Wait.CREATE and is_meant(entry.topic)
    }


def _is_release(message: Message) -> bool:
    return message.value() is None and tombstone_is_release(message.headers())


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    try:
        with click.open_file(str(path), "w", encoding="utf-8", atomic=True) as file:
            file.write(text)
    except (OSError, ValueError) as reason:
        cause = getattr(reason, "strerror", None) or str(reason)
        raise PlanFileError(
            f"{str(path)!r} cannot be written: {cause}; name another file"
        ) from None


def read_plan(path: Path) -> TopicsPlan:
    """A plan that `plan --out` wrote. Whether it makes sense is not looked at: `rest_of` holds it
    against one that is made now."""
    try:
        data = read_plain_file(path, size_max=SIZE_MAX)
    except FileRefusedError as reason:
        raise PlanFileError(
            f"the plan {reason}; expected what `spu-assigner plan --out` writes: check its path"
        ) from reason
    try:
        return msgspec.json.decode(data, type=TopicsPlan)
    except (msgspec.MsgspecError, ValueError, RecursionError) as reason:
        raise PlanFileError(
            f"{str(path)!r} is no plan of this release ({printable(str(reason))[:120]}); expected "
            "what `spu-assigner plan --out` writes"
        ) from reason
