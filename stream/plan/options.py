"""What `plan` and `apply` share: their options, the maps, the target, and a plan made of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from spu_assigner.stream.config.command_options import FILE, Command, broker_options, reading
from spu_assigner.stream.config.connection import Connection
from spu_assigner.stream.config.settings import Settings, has_target

if TYPE_CHECKING:
    from spu_assigner.stream.plan.applied import AppliedRecords
    from spu_assigner.stream.plan.applied_store import AppliedLedger
    from spu_assigner.stream.plan.model import KafkaCluster, Maps, TopicsPlan
    from spu_assigner.stream.plan.notes import Notes
    from spu_assigner.stream.plan.plan_file import SavedPlan
    from spu_assigner.stream.plan.target_cluster import Target

LOOKS_MAX: Final = (
    3  # at topics that are recorded and not seen: another run may just have made them
)
LOOK_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What is to be planned."""

    connection: Connection  # to the job's topics
    target_connection: Connection | None  # to another Kafka cluster
    cluster_id: str | None
    file: Path | None
    globs: tuple[str, ...]
    delete: bool
    recreate: bool
    foreign: tuple[str, ...]

    def is_foreign(self, topic: str) -> bool:
        """Whether a topic may be changed though apply did not make it."""
        from spu_assigner.stream.plan.wanted_maps import matcher

        return bool(self.foreign) and matcher(self.foreign)(topic)

    @property
    def records_connection(self) -> Connection:
        """To the Kafka cluster of the mapped topics, with the prefix of the job's topics."""
        found = self.target_connection or self.connection
        return replace(found, prefix=self.connection.prefix)

    def target(self) -> Target:
        """The Kafka cluster whose topics are to be as mapped."""
        from spu_assigner.stream.plan.target_cluster import Target

        return Target(self.target_connection or self.connection)

    def own_topics(self, kafka_id: str) -> frozenset[str]:
        """The product's topics, if they are in the target; where it is not known, they may be."""
        from spu_assigner.stream.plan.target_cluster import own_topics

        is_elsewhere = (
            self.target_connection is not None
            and self.file is None
            and self._kafka_id() != kafka_id
        )
        return own_topics(self.connection.prefix, is_elsewhere=is_elsewhere)

    def _kafka_id(self) -> str:
        """The id of the cluster that the job's topics are in."""
        from spu_assigner.stream.plan.target_cluster import Target

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
        recreate: bool,
        foreign: tuple[str, ...],
        target_bootstrap_servers: str | None,
        target_config: Path | None,
        **given: Any,
    ) -> Any:
        ask = PlanRequest(
            connection=connection,
            target_connection=_target(target_bootstrap_servers, target_config),
            cluster_id=cluster,
            file=maps,
            globs=topics,
            delete=delete,
            recreate=recreate,
            foreign=foreign,
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
            help="Delete topics that apply made and whose replica maps were deleted; no others.",
        ),
        click.option(
            "--recreate",
            is_flag=True,
            help="Create topics again that were in Kafka and are gone; they are empty then.",
        ),
        click.option(
            "--foreign",
            metavar="GLOB",
            multiple=True,
            help="Change such topics though apply did not make them; may be repeated. They are "
            "never deleted.",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSources:
    """What a plan is made of, and what is recorded of it."""

    cluster: KafkaCluster
    applied: AppliedRecords  # with what runs that broke off have created
    ledger: AppliedLedger
    notes: Notes  # what apply records before it does anything


def made_plan(ask: PlanRequest, target: Target) -> tuple[SavedPlan, PlanSources]:
    """A plan of the maps and the topics as they are now.

    Raises:
        MapsError, ClientError, TargetError, UnreachableError: one of them cannot be read.
    """
    from spu_assigner.stream.plan.model import make_plan
    from spu_assigner.stream.plan.plan_file import saved

    maps = read_wanted(ask)
    found = find(
        ask,
        target,
        maps,
        topics=[name for name, wanted in maps.topics.items() if wanted.replicas is not None],
        deleted=[name for name, wanted in maps.topics.items() if wanted.replicas is None],
    )
    plan = make_plan(
        maps,
        found.cluster,
        applied=found.applied,
        delete=ask.delete,
        recreate=ask.recreate,
        is_foreign=ask.is_foreign,
    )
    plan = sized(plan, found.cluster, target)
    return saved(plan, maps, is_live=ask.file is None), found


def find(
    ask: PlanRequest, target: Target, maps: Maps, *, topics: Iterable[str], deleted: Iterable[str]
) -> PlanSources:
    """The topics that are there, and what is recorded of them.

    The topics are looked at before the records are read: what another run makes meanwhile is then
    recorded, or not seen yet.

    Args:
        topics, deleted: those that are looked at.
    """
    from spu_assigner.stream.kafka.topics import APPLIED_TOPICS, topic_name
    from spu_assigner.stream.plan.applied_store import AppliedLedger, now_ms
    from spu_assigner.stream.plan.notes import Notes, notes, open_intents, resolved

    topics, deleted = list(topics), list(deleted)
    connection = ask.records_connection
    records = topic_name(APPLIED_TOPICS, prefix=connection.prefix)

    def look() -> KafkaCluster:
        return target.look([*topics, records], deleted=deleted)

    cluster = look()
    ledger = AppliedLedger(connection, maps.cluster_id, is_there=records in cluster.topics)
    applied = ledger.read()
    for _ in range(LOOKS_MAX):
        if all(name in cluster.topics or not applied.gone_id(name) for name in topics):
            break
        time.sleep(LOOK_SECONDS)
        cluster = look()
    cluster = replace(cluster, own=ask.own_topics(cluster.kafka_id))
    now = now_ms()
    untouched = target.untouched(cluster, open_intents(applied, cluster))
    applied, settled = resolved(applied, cluster, untouched=untouched, now_ms=now)
    noted = notes(maps, cluster, applied, now_ms=now)
    everything = Notes(records=(*settled, *noted.records), forgotten=noted.forgotten)
    return PlanSources(cluster=cluster, applied=applied, ledger=ledger, notes=everything)


def sized(plan: TopicsPlan, cluster: KafkaCluster, target: Target) -> TopicsPlan:
    """The plan with how much data its deletions concern, as it is now."""
    from spu_assigner.stream.plan.model import ChangeKind

    there = [change for change in plan.of(ChangeKind.DELETE) if change.topic in cluster.topics]
    sizes = target.sizes(there)
    changes = tuple(
        replace(change, size=sizes.get(change.topic))
        if change.kind is ChangeKind.DELETE
        else change
        for change in plan.changes
    )
    return replace(plan, changes=changes)


def read_wanted(ask: PlanRequest) -> Maps:
    """The maps as they are now."""
    from spu_assigner.stream.plan.wanted_maps import maps_of_file, matcher, read_maps

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
