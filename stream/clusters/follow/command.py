"""`spu-assigner follow` and `adopt`: what others do to a Kafka cluster enters the state.

Its brokers join and leave, and its topics are adopted: look after look, or once.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.limits import CAPACITY_MAX, CORES_MAX
from spu_assigner.stream.clusters.follow.options import FollowOptions
from spu_assigner.stream.common.interrupts import Interrupts
from spu_assigner.stream.common.printable import counted
from spu_assigner.stream.kafka.config.command_options import (
    Command,
    Form,
    amounts,
    broker_options,
    cluster_option,
    errors_end_with,
    globs_option,
    output_option,
    seconds_option,
    with_options,
    with_target,
)
from spu_assigner.stream.kafka.config.connection import Connection

WAIT_SECONDS: Final = 60.0  # a job that has just been started answers within it
NOT_ANSWERED: Final = 3  # exit status, as of `produce --wait`
SECONDS_MAX: Final = 7 * 24 * 3600.0  # as long as Kafka keeps events by default
INTERVAL_SECONDS_MIN: Final = 0.05


def following(cluster: str) -> Callable[[Command], Command]:
    """Sizes of brokers, what is accepted, the output, and how both clusters are reached."""
    return with_options(
        cluster_option(cluster),
        click.option(
            "--capacity", type=click.IntRange(0, CAPACITY_MAX), help="Replica slots of a broker."
        ),
        click.option("--cores", type=click.IntRange(1, CORES_MAX), help="Cores of a broker."),
        amounts(
            "--resources", "What a broker has of a resource, such as disk_bytes.", checked=True
        ),
        click.option(
            "--accept-cluster",
            is_flag=True,
            help="Go on though the SPUs were brokers of another Kafka cluster, or its brokers are "
            "SPUs of another cluster.",
        ),
        click.option("--dry-run", is_flag=True, help="Show what would be sent; send nothing."),
        output_option,
        broker_options,
        with_target,
    )


@click.command("follow")
@seconds_option(
    "--grace",
    "grace_seconds",
    "How long a broker is missing before it leaves.",
    default=60.0,
    most=SECONDS_MAX,
)
@seconds_option(
    "--interval",
    "interval_seconds",
    "Between two looks.",
    default=5.0,
    least=INTERVAL_SECONDS_MIN,
    most=SECONDS_MAX,
)
@click.option(
    "--labels",
    "labels_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="YAML: labels and taints by broker id, read at each look; what it does not name stays.",
)
@click.option(
    "--exclude",
    "excluded_brokers",
    type=click.IntRange(min=0),
    multiple=True,
    callback=lambda _, __, ids: frozenset(ids),
    metavar="ID",
    help="Announce nothing of this broker; may be repeated.",
)
@click.option(
    "--adopt", "take_over", is_flag=True, help="Take over SPUs that were joined by others."
)
@click.option(
    "--topics",
    "globs",
    metavar="[GLOB]",
    is_flag=False,
    flag_value="*",
    multiple=True,
    help="Adopt topics, too, that others make or change; all, or such.",
)
@globs_option("--exclude-topics", "excluded", "Not such topics; may be repeated.")
@click.option(
    "--place-new",
    is_flag=True,
    help="With --topics: have the job place topics that others make from now on.",
)
@click.option(
    "--allow-mass-leave",
    is_flag=True,
    help="Let brokers leave though more than half are missing at once.",
)
@click.option(
    "--once", is_flag=True, help="End when nothing is left to do; waits for those who are missing."
)
@following("The cluster whose SPUs the brokers are.")
def follow(
    *, connection: Connection, target_connection: Connection | None, output: Form, **given: Any
) -> int:
    """Follow a Kafka cluster: its brokers join, with their racks, and leave when they are gone.

    It is the cluster that the events go to, or another one, which SPU_ASSIGNER_TARGET_… name.

    Of several processes one leads. SPUs that others joined, or made to leave, are left alone. While
    the watched cluster cannot be seen nobody leaves, nor if more than half of the brokers are
    missing at once.

    With --topics, topics without a map, and those that others changed, are adopted as they are;
    adopted topics that were deleted in Kafka are released. With --place-new a new topic is placed
    by the default policy, and moved there, while nothing was written to it.

    With -o json the events go to standard output as `simulate` reads them.

    Exit status: 0 done (--once), also where another process leads; 1 failed, or with --once leaves
    held back; 2 wrong usage; 130 and 143 interrupted.
    """
    # Heavy: `--help` needs none of it.
    from spu_assigner.stream.clusters.follow.labels_file import read_labels
    from spu_assigner.stream.clusters.follow.loop import follow_cluster
    from spu_assigner.stream.clusters.follow.report import FollowOutput

    if given["place_new"] and (given["once"] or not given["globs"]):
        raise click.UsageError("--place-new needs --topics, and goes on: leave out --once")
    if given["labels_file"] and (faults := read_labels(given["labels_file"])[1]):
        raise click.UsageError("; ".join(faults))
    options = FollowOptions(**given)
    shown = FollowOutput("follow", output, dry_run=options.dry_run)
    target, check = target_connection or connection, Interrupts(lambda: None).check
    return follow_cluster(connection, target, options, shown, check=check)


@click.command("adopt", cls=errors_end_with(1))
@globs_option("--topics", "globs", "Only such topics; may be repeated.", ("*",))
@globs_option("--exclude", "excluded", "Not such topics; may be repeated.")
@click.option(
    "--pinned/--not-pinned",
    "pinned",
    default=None,
    help="Whether rebalances leave them.  [default: as before, else no]",
)
@click.option(
    "--policy",
    type=click.Choice([policy.value for policy in Policy]),
    callback=lambda _, __, name: name and Policy(name),
    help="What they grow by.  [default: as before; of new ones the job's]",
)
@click.option(
    "--overwrite",
    is_flag=True,
    help="Take Kafka's side, too, where a map was changed or released here and Kafka has not "
    "followed yet, and where a topic holds fewer bytes than reserved.",
)
@click.option(
    "--forget-gone", is_flag=True, help="Release adopted topics that are in Kafka no more."
)
@seconds_option(
    "--wait",
    "wait_seconds",
    "Give up when nothing was answered for so long.",
    default=WAIT_SECONDS,
    is_positive=True,
)
@following("The cluster that takes the topics over.")
def adopt(
    *, connection: Connection, target_connection: Connection | None, output: Form, **given: Any
) -> int:
    """Take over the topics of a Kafka cluster as they are. Nothing moves. Safe to repeat.

    Brokers that are not known join first. Then a `TopicAdopted` is sent for each topic that has no
    replica map, or whose lists in Kafka differ from it, and its answer is awaited. A second run
    sends nothing. Where an SPU has the resource disk_bytes, the events also say how many bytes a
    partition holds, and topics that hold over 10 % more or fewer than is known are sent again.

    Left out are Kafka's own topics (`__*`), the product's, those that Kafka is reassigning, and
    those that differ because their map was changed here: `plan` shows these.

    Exit status: 0 all is done; 1 something is not, an error, or wrong usage; 3 not answered in
    time. With --dry-run: 0 nothing to do; 2 something to do; 1 the rest.
    """
    from spu_assigner.stream.clusters.follow.loop import adopt_topics
    from spu_assigner.stream.clusters.follow.report import FollowOutput
    from spu_assigner.stream.kafka.open_transactions import why_unanswered

    options = FollowOptions(is_adopt=True, **given)
    shown = FollowOutput("adopt", output, dry_run=options.dry_run)
    check = Interrupts(lambda: None).check
    target = target_connection or connection
    report = adopt_topics(connection, target, options, shown, check=check)
    shown.adopted(report)
    if report.unanswered:
        shown.say(
            f"{counted(report.unanswered, 'event')} not answered within "
            f"{options.wait_seconds:g} s; {why_unanswered(connection)} Run this again: what is "
            "equal by then is not sent"
        )
        return NOT_ANSWERED
    if report.topics.left or report.rejected or report.changed:
        return 1
    return 2 if options.dry_run and report.events else 0
