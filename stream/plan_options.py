"""What `plan` and `apply` share: their options, the maps, the target, and a plan made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from spu_assigner.stream.connection import Connection
from spu_assigner.stream.options import FILE, Command, broker_options, reading
from spu_assigner.stream.settings import Settings, has_target

if TYPE_CHECKING:
    from spu_assigner.stream.plan_cluster import Target
    from spu_assigner.stream.plan_file import SavedPlan
    from spu_assigner.stream.plan_model import Maps


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What is to be planned."""

    connection: Connection  # to the job's topics
    target_connection: Connection | None  # to another Kafka cluster
    cluster_id: str | None
    file: Path | None
    globs: tuple[str, ...]
    delete: bool

    def target(self) -> Target:
        """The Kafka cluster whose topics are to be as mapped."""
        from spu_assigner.stream.plan_cluster import Target

        return Target(self.target_connection or self.connection)

    def own_topics(self, kafka_id: str) -> frozenset[str]:
        """The product's topics, if they are in the target; where it is not known, they may be."""
        from spu_assigner.stream.plan_cluster import own_topics

        is_elsewhere = (
            self.target_connection is not None
            and self.file is None
            and self._kafka_id() != kafka_id
        )
        return frozenset() if is_elsewhere else own_topics(self.connection.prefix)

    def _kafka_id(self) -> str:
        """The id of the cluster that the job's topics are in."""
        from spu_assigner.stream.plan_cluster import Target

        with Target(self.connection) as mine:
            return mine.kafka_id()


def plan_options(command: Command) -> Command:
    """Whose maps, of which topics, and where; the command is given it as `ask`."""

    @broker_options
    @wraps(command)
    def asked(
        *,
        connection: Connection,
        cluster: str | None,
        maps: Path | None,
        topics: tuple[str, ...],
        delete: bool,
        target_bootstrap_servers: str | None,
        target_config: Path | None,
        **given: Any,
    ) -> Any:
        ask = Ask(
            connection=connection,
            target_connection=_target(target_bootstrap_servers, target_config),
            cluster_id=cluster,
            file=maps,
            globs=topics,
            delete=delete,
        )
        return command(ask=ask, **given)

    for option in (
        click.option(
            "--target-config",
            type=click.Path(path_type=Path),
            help="A settings file for it; also SPU_ASSIGNER_TARGET_CONFIG.",
        ),
        click.option(
            "--target-bootstrap-servers",
            metavar="HOST:PORT",
            help="The Kafka cluster whose topics are meant, if it is not the job's; also "
            "SPU_ASSIGNER_TARGET_BOOTSTRAP_SERVERS.",
        ),
        click.option(
            "--delete",
            is_flag=True,
            help="Delete topics whose replica maps were deleted; no others.",
        ),
        click.option(
            "--topics", metavar="GLOB", multiple=True, help="Only such topics; may be repeated."
        ),
        click.option(
            "--maps", metavar="FILE", type=FILE, help="Output of `simulate`, instead of the job's."
        ),
        click.option("--cluster", metavar="ID", help="Whose replica maps."),
    ):
        asked = option(asked)
    return asked


def made_plan(ask: Ask, target: Target) -> SavedPlan:
    """A plan of the maps and the topics as they are now.

    Raises:
        MapsError, ClientError, TargetError, UnreachableError: one of them cannot be read.
    """
    from spu_assigner.stream.plan_file import saved
    from spu_assigner.stream.plan_model import make_plan

    maps = read_wanted(ask)
    cluster = target.look(
        [name for name, wanted in maps.topics.items() if wanted.replicas is not None],
        deleted=[name for name, wanted in maps.topics.items() if wanted.replicas is None],
    )
    cluster = replace(cluster, own=ask.own_topics(cluster.kafka_id))
    plan = make_plan(maps, cluster, delete=ask.delete)
    return saved(plan, maps, is_live=ask.file is None)


def read_wanted(ask: Ask) -> Maps:
    """The maps as they are now."""
    from spu_assigner.stream.plan_maps import maps_of_file, matcher, read_maps

    if ask.cluster_id is None:
        raise click.UsageError("Missing option '--cluster'.")
    is_meant: Callable[[str], bool] = matcher(ask.globs)
    if ask.file is None:
        return read_maps(ask.connection, ask.cluster_id, is_meant)
    with reading(ask.file) as source:
        return maps_of_file(source, ask.file, ask.cluster_id, is_meant)


def _target(servers: str | None, config: Path | None) -> Connection | None:
    if servers is None and config is None and not has_target():
        return None
    flags = {"bootstrap_servers": servers}
    connection = Settings.load(flags=flags, file=config, is_target=True).connection()
    if connection.security.warning is not None:
        click.echo(f"warning: target: {connection.security.warning}", err=True)
    return connection
