"""Where `whatif` reads a cluster: Kafka, a checkpoint, or what `simulate` reads or prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

import click
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.entries import EntryKind
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.events import Policy, SpuId
from spu_assigner.core.base.limits import CAPACITY_MAX, SPU_ID_MAX
from spu_assigner.core.base.records import ReplicaMap, RingChange, SpuChanged
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.stream.common.json_line_reading import (
    LINE_SIZE_MAX,
    chunks_of_lines,
    event_of_line,
)
from spu_assigner.stream.common.printable import listed, printable
from spu_assigner.stream.config.command_options import load_client_settings, reading
from spu_assigner.stream.config.connection import Connection
from spu_assigner.stream.config.settings import Settings

ATTEMPTS_MAX: Final = 3  # at topics that a job may write while they are read

_CHANGES: Final[Mapping[str, dict[str, Any]]] = {  # of an SPU, that count here
    RingChange.JOINED: {"online": True},
    RingChange.LEFT: {"online": False},
    RingChange.CORDONED: {"cordoned": True},
    RingChange.UNCORDONED: {"cordoned": False},
}


class WhatifInputError(AssignerError):
    """There is no cluster to look at, or a line that cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatifSource:
    """A cluster and where it was read."""

    state: ClusterState
    place: str
    is_of_maps: bool = False  # neither racks nor capacities are known, and none count


def of_events(file: Path, cluster_id: str | None, default_policy: Policy) -> WhatifSource:
    """What the events of a file lead to, as `simulate` answers them.

    Raises:
        WhatifInputError: a line is no event, or the cluster is not there.
    """
    assigner = Assigner(default_policy)

    def take(line: bytes) -> None:
        event = event_of_line(line)
        if event is not None:
            assigner.apply(event)

    _read_lines(file, take, "an event, as `spu-assigner simulate` reads it (or give --maps)")
    chosen = _chosen(cluster_id, assigner.clusters, str(file))
    return WhatifSource(state=assigner.clusters[chosen], place=str(file))


def of_maps(file: Path, cluster_id: str | None) -> WhatifSource:
    """What `simulate` printed: lists and SPUs, but neither racks nor capacities.

    Raises:
        WhatifInputError: a line is none of `simulate`'s, or the cluster is not there.
    """
    from spu_assigner.stream.plan.wanted_maps import LINE_SIZE_MAX as ANSWER_SIZE_MAX
    from spu_assigner.stream.plan.wanted_maps import answer_of_line

    clusters: dict[str, ClusterState] = {}

    def take(line: bytes) -> None:
        try:
            if line.strip():
                found = answer_of_line(line)
                name = str(found.get("cluster_id"))
                _take_answer(clusters.setdefault(name, ClusterState(name)), found)
        except ValueError as fault:
            raise ValueError(f"it {fault}") from fault

    expected = "the output of `spu-assigner simulate` (or give --events)"
    _read_lines(file, take, expected, size_max=ANSWER_SIZE_MAX)
    state = clusters[_chosen(cluster_id, clusters, str(file))]
    for spu_id, spu in sorted(state.spus.items()):
        if not (spu.online or state.ledger.count(spu_id)):  # It left, and is in no list.
            state.forget_entry(EntryKind.SPU, str(spu_id))
    return WhatifSource(state=state, place=str(file), is_of_maps=True)


def of_checkpoint(checkpoint: str, config: Path | None, cluster_id: str | None) -> WhatifSource:
    """The last committed batch of a checkpoint.

    Raises:
        InspectError: it cannot be read.
        WhatifInputError: the cluster is not there.
    """
    from spu_assigner.stream.inspect.checkpoint_reading import inspect_checkpoint

    settings = Settings.load(flags={"checkpoint": checkpoint}, file=config)
    found = inspect_checkpoint(settings.checkpoint)
    place = f"batch {found.batch} of checkpoint {found.checkpoint}"
    return WhatifSource(
        state=found.clusters[_chosen(cluster_id, found.clusters, place)], place=place
    )


def of_kafka(
    *,
    bootstrap_servers: str | None,
    topic_prefix: str | None,
    config: Path | None,
    cluster_id: str | None,
) -> WhatifSource:
    """What a job has published, as far as it is committed now.

    Raises:
        ClientError, PublishedError: it cannot be read.
        WhatifInputError: the cluster is not there.
    """
    from spu_assigner.stream.recover.published import UnsoundError, read_published

    flags = {"bootstrap_servers": bootstrap_servers, "topic_prefix": topic_prefix}
    connection = load_client_settings(flags, config).connection()
    if connection.security.warning is not None:
        click.echo(f"warning: {connection.security.warning}", err=True)
    place = f"the topics of {connection.bootstrap_servers}"
    if connection.prefix:
        place = f"{place} with prefix {connection.prefix}"
    attempts_left = ATTEMPTS_MAX
    while True:
        attempts_left -= 1
        published = read_published(connection)
        chosen = _chosen(cluster_id, published.cluster_ids, place)
        try:
            state = published.restored(chosen)
            break
        except UnsoundError:  # The job may have written a batch while it was read.
            if not attempts_left:
                raise
    for line in _unseen_lines(connection, state):
        click.echo(f"warning: {line}", err=True)
    return WhatifSource(state=state, place=place)


def _unseen_lines(connection: Connection, state: ClusterState) -> Iterator[str]:
    """What else is on the SPUs, where they are brokers of this Kafka cluster."""
    from spu_assigner.stream.kafka.connection_diagnosis import DiagnosedAdmin
    from spu_assigner.stream.kafka.log_dirs import replica_sizes, unseen_replicas

    with DiagnosedAdmin(connection.client()) as admin:
        found = admin.metadata()
        spus = found.brokers.keys() & set(map(int, state.spus))
        if found.topics.keys().isdisjoint(state.topics):  # They are in another cluster.
            return
        unseen = unseen_replicas(admin, replica_sizes(connection, spus), spus, found.topics)
    mapped = frozenset(state.topics)
    yield from unseen.of(lambda topic: topic not in mapped).lines("what they lose is not counted")


def _chosen(cluster_id: str | None, known: Iterable[str], place: str) -> str:
    """The cluster that is meant.

    Raises:
        WhatifInputError: it is not there; or none is named and there are several, or none.
    """
    names = sorted(known)
    if not names:
        raise WhatifInputError(
            f"{place} has no cluster yet; it needs the joins of SPUs and the maps of topics"
        )
    if cluster_id is None and len(names) > 1:
        raise WhatifInputError(
            f"{place} has {len(names)} clusters; expected one: name it with --cluster "
            f"({printable(listed(names))})"
        )
    if cluster_id is not None and cluster_id not in names:
        raise WhatifInputError(
            f"{place} has no cluster {cluster_id!r}; it has {printable(listed(names))}"
        )
    return names[0] if cluster_id is None else cluster_id


def _read_lines(
    file: Path, take: Callable[[bytes], None], expected: str, *, size_max: int = LINE_SIZE_MAX
) -> None:
    number = 0
    with reading(file) as source:
        for lines in chunks_of_lines(source, size_max=size_max):
            for line in lines:
                number += 1
                try:
                    take(line)
                except (DecodeError, ValueError) as fault:
                    said = printable(str(fault))
                    raise WhatifInputError(
                        f"line {number} of {file}: {said}; expected {expected}"
                    ) from fault


def _take_answer(state: ClusterState, line: dict[str, Any]) -> None:
    """Take over a line of `simulate`'s; an SPU that only lists name is online.

    Raises:
        ValueError: it is none.
    """
    from spu_assigner.stream.plan.wanted_maps import checked_rows

    if line["type"] == "replica_map":
        topic, lists = str(line.get("topic")), line.get("replicas")
        if lists is None:
            state.forget_topic(topic)
            return
        rows = checked_rows(lists)
        for unknown in sorted({*chain.from_iterable(rows)}.difference(state.spus)):
            state.restore(_spu(state, unknown))
        state.restore(
            ReplicaMap(
                cluster_id=state.cluster_id,
                topic=topic,
                revision=1,
                policy=Policy.MANUAL,
                replicas=ReplicaLists.of_lists([*map(list, rows)]),
                cores=None,
                chain_index=None,
                cause="",
                replication_factor=max(map(len, rows)),
            )
        )
    elif line["type"] == "ring_event":
        spu_id, changes = line.get("spu_id"), _CHANGES.get(str(line.get("change")))
        if type(spu_id) is not int or not 0 <= spu_id <= SPU_ID_MAX:
            raise ValueError(f"has spu_id {spu_id!r:.80}, which is none of an SPU")
        if changes is not None:
            state.restore(replace(_spu(state, spu_id), **changes))


def _spu(state: ClusterState, spu_id: int) -> SpuChanged:
    """What is known of an SPU; nothing but its id at first."""
    return state.spus.get(SpuId(spu_id)) or SpuChanged(
        cluster_id=state.cluster_id,
        spu_id=spu_id,
        online=True,
        rack=None,
        cores=1,
        capacity=CAPACITY_MAX,
        labels=(),
        registration=len(state.spus),
        core_weights=(0,),
    )
