"""Where `whatif` reads a cluster: Kafka, or what `simulate` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.events import Policy
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.stream.common.json_line_reading import chunks_of_lines, event_of_line
from spu_assigner.stream.common.printable import listed, printable
from spu_assigner.stream.kafka.config.command_options import load_client_settings, reading


class WhatifInputError(AssignerError):
    """There is no cluster to look at, or a line that cannot be read."""


def of_events(file: Path, cluster_id: str, default_policy: Policy) -> ClusterState:
    """What the events of a file lead to, as `simulate` answers them.

    Raises:
        WhatifInputError: a line is no event, or the cluster is not there.
    """
    assigner = Assigner(default_policy)
    with reading(file) as source:
        lines = (line for chunk in chunks_of_lines(source) for line in chunk)
        for number, line in enumerate(lines, start=1):
            try:
                event = event_of_line(line)
            except DecodeError as fault:
                raise WhatifInputError(
                    f"line {number} of {file}: {printable(str(fault))}; expected an event, as "
                    "`spu-assigner simulate` reads it"
                ) from fault
            if event is not None:
                assigner.apply(event)
    if cluster_id not in assigner.clusters:
        known = printable(listed(sorted(assigner.clusters)))
        raise WhatifInputError(f"{file} has no cluster {cluster_id!r}; it has {known}")
    return assigner.clusters[cluster_id]


def of_kafka(cluster_id: str, **flags: Any) -> tuple[ClusterState, str]:
    """What a job has published, as far as it is committed now; and where that is.

    Raises:
        ClientError, PublishedError, ClusterUnknownError: it cannot be read, or is not there.
    """
    from spu_assigner.stream.job.shard.published import read_cluster_state

    connection = load_client_settings(flags).connection()
    if connection.security.warning is not None:
        click.echo(f"warning: {connection.security.warning}", err=True)
    place = f"the topics of {connection.bootstrap_servers}"
    if connection.prefix:
        place = f"{place} with prefix {connection.prefix}"
    return read_cluster_state(connection, cluster_id), place
