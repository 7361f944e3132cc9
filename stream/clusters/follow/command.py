"""`spu-assigner follow`: what others do to a Kafka cluster enters the state.

Its brokers join and leave, and with `--topics` its topics are adopted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click
from spu_assigner.core.base.limits import CAPACITY_MAX, CORES_MAX
from spu_assigner.stream.clusters.follow.decision import FollowOptions, Size
from spu_assigner.stream.clusters.follow.rendering import FollowOutput
from spu_assigner.stream.common.interrupts import Interrupts
from spu_assigner.stream.kafka.config.command_options import (
    Form,
    amounts,
    broker_options,
    cluster_option,
    output_option,
)
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.config.setting_spec import SettingsError
from spu_assigner.stream.kafka.config.settings import Settings

_UNITS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
SECONDS_MAX: Final = 7 * 24 * 3600.0  # as long as Kafka keeps events by default
INTERVAL_SECONDS_MIN: Final = 0.05


def _duration(least: float) -> Callable[[click.Context, click.Parameter, str], float]:
    """Reads seconds, or a number with a unit."""

    def read(_ctx: click.Context, _parameter: click.Parameter, value: str) -> float:
        found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(|ms|s|m|h)", value)
        seconds = float(found[1]) * _UNITS[found[2]] if found else -1.0
        if not least <= seconds <= SECONDS_MAX:
            expected = f"{least:g}s to 7 days, such as 90s or 2m"
            raise click.BadParameter(f"{value!r} is no time; expected {expected}")
        return seconds

    return read


@click.command("follow")
@cluster_option("The cluster whose SPUs the brokers are.")
@click.option(
    "--watch-bootstrap-servers",
    metavar="HOST:PORT",
    help="The brokers that are followed, if not those the events go to.",
)
@click.option(
    "--watch-config",
    type=click.Path(path_type=Path),
    help="A settings file of theirs alone: addresses, TLS and users.",
)
@click.option(
    "--grace",
    "grace_seconds",
    metavar="TIME",
    callback=_duration(0.0),
    default="60s",
    show_default=True,
    help="How long a broker is missing before it leaves.",
)
@click.option(
    "--interval",
    "interval_seconds",
    metavar="TIME",
    callback=_duration(INTERVAL_SECONDS_MIN),
    default="5s",
    show_default=True,
    help="Between two looks.",
)
@click.option("--capacity", type=click.IntRange(0, CAPACITY_MAX), help="Replica slots of a broker.")
@click.option("--cores", type=click.IntRange(1, CORES_MAX), help="Cores of a broker.")
@amounts("--resources", "What a broker has of a resource, such as disk_bytes.", checked=True)
@click.option(
    "--sizes",
    "sizes_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="TOML with capacity, cores and resources, of all and, under [brokers.ID], of single "
    "brokers; read again at each look.",
)
@click.option(
    "--exclude",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="ID",
    help="Announce nothing of this broker; may be repeated.",
)
@click.option("--adopt", is_flag=True, help="Take over SPUs that were joined by others.")
@click.option(
    "--topics",
    metavar="[GLOB]",
    is_flag=False,
    flag_value="*",
    multiple=True,
    help="Adopt topics, too, that others make or change; all, or such.",
)
@click.option(
    "--exclude-topics",
    "excluded_topics",
    metavar="GLOB",
    multiple=True,
    help="Not such topics; may be repeated.",
)
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
    "--accept-cluster",
    is_flag=True,
    help="Go on though the SPUs were brokers of another Kafka cluster, or its brokers are SPUs of "
    "another cluster.",
)
@click.option(
    "--once", is_flag=True, help="End when nothing is left to do; waits for those who are missing."
)
@click.option("--dry-run", is_flag=True, help="Show what would be sent; send nothing.")
@output_option
@broker_options
def follow(
    *,
    connection: Connection,
    watch_bootstrap_servers: str | None,
    watch_config: Path | None,
    output: Form,
    capacity: int | None,
    cores: int | None,
    resources: Mapping[str, int],
    exclude: tuple[int, ...],
    **given: Any,
) -> int:
    """Follow a Kafka cluster: its brokers join, with their racks, and leave when they are gone.

    A restart, or a second process, announces nothing twice; of several processes one leads. SPUs
    that others joined, or made to leave, are left alone. While the watched cluster cannot be seen
    nobody leaves, nor if more than half of the brokers are missing at once.

    With --topics, topics without a map, and those that others changed, are adopted as they are, as
    `adopt` does it; adopted topics that were deleted in Kafka are released. With --place-new a new
    topic is placed by the default policy instead, and moved there, while nothing was written to it.

    With -o json the events go to standard output as `simulate` reads them.

    Exit status: 0 done (--once), also where another process leads; 1 failed, or with --once leaves
    held back; 2 wrong usage; 130 and 143 interrupted.
    """
    # Heavy: `--help` needs none of it.
    from spu_assigner.stream.clusters.follow.loop import follow_cluster

    if given["place_new"] and (given["once"] or not given["topics"]):
        raise click.UsageError("--place-new needs --topics, and goes on: leave out --once")
    size = Size(cores=cores, capacity=capacity, resources=resources)
    options = FollowOptions(size=size, excluded=frozenset(exclude), **given)
    watched = _watched(connection, watch_bootstrap_servers, watch_config)
    check = Interrupts(lambda: None).check
    shown = FollowOutput(output, dry_run=options.dry_run)
    return follow_cluster(connection, watched, options, shown, check=check)


def _watched(connection: Connection, servers: str | None, config: Path | None) -> Connection:
    """How the watched cluster is reached: as the other, unless a file of its own says how.

    Raises:
        SettingsError: the address cannot be.
        BadParameter: something in the file.
    """
    if config is None:
        if servers is None:
            return connection
        checked = Settings.load(flags={"bootstrap_servers": servers}, environ={})
        return Connection(bootstrap_servers=checked.bootstrap_servers, security=connection.security)
    try:
        settings = Settings.load(flags={"bootstrap_servers": servers}, environ={}, file=config)
    except SettingsError as error:
        raise click.BadParameter(str(error), param_hint="'--watch-config'") from error
    watched = settings.connection()
    if watched.security.warning is not None:
        click.echo(f"warning: of the watched cluster: {watched.security.warning}", err=True)
    return watched
