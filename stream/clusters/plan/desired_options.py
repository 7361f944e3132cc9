"""The option `--desired` of `plan` and `apply`: a file of desired topics instead of replica maps.

A command that has it runs as without it, unless a file is named, or a plan that was made of one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource
from spu_assigner.stream.kafka.config.command_options import Command

if TYPE_CHECKING:
    from spu_assigner.stream.clusters.desired.command import DesiredRequest
    from spu_assigner.stream.clusters.desired.rendering import SavedDesiredPlan
    from spu_assigner.stream.clusters.plan.sources import PlanRequest

WAIT_SECONDS: Final = 30.0  # a job that has just been started answers within it
_PLAN: Final = frozenset({"desired", "cluster_id", "is_json", "out", "read_only"})
_APPLY: Final = frozenset({"desired", "plan_file", "cluster_id", "is_json", "is_sure", "wait"})

_desired: Final = click.option(
    "--desired",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Topics as they are to be, in YAML: sends events instead of changing Kafka.",
)


def desired_plan(command: Command) -> Command:
    """`plan` with `--desired`."""

    @_desired
    @wraps(command)
    def planned(*, desired: Path | None, request: PlanRequest, **given: Any) -> Any:
        if desired is None:
            return command(request=request, **given)
        from spu_assigner.stream.clusters.desired.command import plan_desired
        from spu_assigner.stream.clusters.plan.plan_file import write_json

        _require_only(_PLAN, "desired topics")
        is_json, out = given["is_json"], given["out"]
        return plan_desired(_request(request), desired, is_json=is_json, out=out, write=write_json)

    return planned


def desired_apply(command: Command) -> Command:
    """`apply` with `--desired`, or with a plan that `plan --desired --out` wrote."""

    @_desired
    @click.option(
        "--wait",
        type=click.FloatRange(min=0, min_open=True, max=86_400),
        default=WAIT_SECONDS,
        show_default=True,
        metavar="SECONDS",
        help="With --desired: how long answers are waited for.",
    )
    @wraps(command)
    def applied(*, desired: Path | None, wait: float, request: PlanRequest, **given: Any) -> Any:
        from spu_assigner.stream.clusters.desired.command import apply_desired
        from spu_assigner.stream.clusters.desired.rendering import (
            is_desired_plan,
            read_desired_plan,
        )

        file: Path | None = given["plan_file"]
        source: Path | SavedDesiredPlan
        is_saved = file is not None and is_desired_plan(file)
        if file is not None and (is_saved or desired is not None):
            if desired is not None or request.cluster_id:
                raise click.UsageError("PLAN says what to do: leave out --desired and --cluster")
            source = read_desired_plan(file)
            request = replace(request, cluster_id=source.cluster_id)
        elif desired is not None:
            source = desired
        else:
            return command(request=request, **given)
        _require_only(_APPLY, "desired topics")
        return apply_desired(_request(request), source, seconds=wait, is_json=given["is_json"])

    return applied


def _require_only(names: Collection[str], what: str) -> None:
    """Return if no option was given that means nothing here.

    Raises:
        click.UsageError: it names them.
    """
    if others := given_but(names):
        them = "it" if len(others) == 1 else "them"
        raise click.UsageError(f"{', '.join(others)} cannot be given with {what}; leave {them} out")


def given_but(names: Collection[str]) -> list[str]:
    """What is given on the command line, as people name it, but the parameters of these names."""
    context = click.get_current_context()
    return [
        each.opts[0] if isinstance(each, click.Option) else each.make_metavar(context).strip("[]")
        for each in context.command.params
        if each.name not in names
        and context.get_parameter_source(each.name or "") is ParameterSource.COMMANDLINE
    ]


def _request(request: PlanRequest) -> DesiredRequest:
    from spu_assigner.stream.clusters.desired.command import DesiredRequest
    from spu_assigner.stream.clusters.desired.known import KafkaLook
    from spu_assigner.stream.clusters.plan.applied_store import AppliedLedger
    from spu_assigner.stream.kafka.topics import APPLIED_TOPICS, topic_name

    if not request.cluster_id:
        raise click.UsageError("Missing option '--cluster'.")

    def look() -> KafkaLook:
        ledger = request.ledger_connection()
        records = topic_name(APPLIED_TOPICS, prefix=ledger.prefix)
        with request.target() as target:
            cluster = target.look([records])
        is_there = records in cluster.topics
        applied = AppliedLedger(ledger, request.cluster_id, is_there=is_there).read()
        return KafkaLook(
            connection=request.target_connection or request.connection,
            own=request.own_topics(cluster.kafka_id),
            was_there={name for name in applied.records if applied.gone_id(name)},
        )

    return DesiredRequest(connection=request.connection, cluster_id=request.cluster_id, look=look)
