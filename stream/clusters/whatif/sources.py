"""Where `whatif` reads a cluster: Kafka, or what `simulate` reads."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import click
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.events import Policy
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.stream.common.json_line_reading import chunks_of_lines, event_of_line
from spu_assigner.stream.common.printable import listed, printable
from spu_assigner.stream.kafka.config.command_options import load_settings, reading

ATTEMPTS_MAX: Final = 3  # at topics that a job may write while they are read


class WhatifInputError(AssignerError):
    """There is no cluster to look at, or a line that cannot be read."""


Source = tuple[ClusterState, str]  # a cluster, and where it was read


def of_events(file: Path, cluster_id: str | None, default_policy: Policy) -> Source:
    """What the events of a file lead to, as `simulate` answers them.

    Raises:
        WhatifInputError: a line is no event, or the cluster is not there.
    """
    assigner = Assigner(default_policy)
    number = 0
    with reading(file) as source:
        for lines in chunks_of_lines(source):
            for line in lines:
                number += 1
                try:
                    event = event_of_line(line)
                    if event is not None:
                        assigner.apply(event)
                except DecodeError as fault:
                    raise WhatifInputError(
                        f"line {number} of {file}: {printable(str(fault))}; expected an event, as "
                        "`spu-assigner simulate` reads it"
                    ) from fault
    chosen = _chosen(cluster_id, assigner.clusters, str(file))
    return assigner.clusters[chosen], str(file)


def of_kafka(
    *,
    bootstrap_servers: str | None,
    topic_prefix: str | None,
    cluster_id: str | None,
) -> Source:
    """What a job has published, as far as it is committed now.

    Raises:
        ClientError, PublishedError: it cannot be read.
        WhatifInputError: the cluster is not there.
    """
    from spu_assigner.stream.job.shard.published import UnsoundError, read_published

    flags = {"bootstrap_servers": bootstrap_servers, "topic_prefix": topic_prefix}
    connection = load_settings(flags).connection()
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
    return state, place


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
