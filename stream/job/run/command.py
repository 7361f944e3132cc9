"""`spu-assigner run`: the job in this process, with a broker of its own where none is named.

`--demo` plays the bundled scenario through it and compares the maps with the documents' tables.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.kafka.config.command_options import (
    is_broker_named,
    load_settings,
    settings_options,
)
from spu_assigner.stream.kafka.config.security import Protocol
from spu_assigner.stream.kafka.config.settings import FLAGS, Settings

if TYPE_CHECKING:
    from spu_assigner.stream.common.interrupts import Interrupts
    from spu_assigner.stream.job.lifecycle import Job
    from spu_assigner.stream.job.run.launch import Launch

HOME: Final = Path(".spu-assigner")  # of the embedded broker and the checkpoint
LOOK_SECONDS: Final = 0.5  # between looks at the query


@click.command()
@click.option("--demo", is_flag=True, help="Play the source documents' examples and compare.")
@click.option("--once", is_flag=True, help="With --demo: end after it, status 1 if a map differs.")
@click.option("--create-topics", is_flag=True, help="Create topics that are missing.")
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help=f"Where broker and checkpoint are kept if no broker is named. [default: {HOME}; with "
    "--demo a temporary folder]",
)
@settings_options(*FLAGS)
def run(*, demo: bool, once: bool, create_topics: bool, data: Path | None, **flags: Any) -> int:
    """Run the job: events in on Kafka, replica maps out. Ctrl-C ends it.

    Without --bootstrap-servers (or KAFKA_BOOTSTRAP_SERVERS, or a settings file that names them) it
    starts a Kafka broker of its own. Users, TLS, memory and the rest are settings without an
    option: docs/settings.md.
    """
    from spu_assigner.stream.job.run.launch import Launch

    if once and not demo:
        raise click.UsageError("--once goes with --demo")
    settings = load_settings(flags)
    is_named = is_broker_named(flags, settings)
    if is_named and data is not None:
        raise click.UsageError("--data is for the embedded broker, and a broker is named")
    if not is_named and settings.security.security_protocol is not Protocol.PLAINTEXT:
        raise click.UsageError(
            f"{settings.security.security_protocol} is for a broker of yours, and none is named: "
            "give --bootstrap-servers; the embedded broker speaks PLAINTEXT, on the loopback"
        )
    if (warning := settings.security.warning) is not None:
        click.echo(f"warning: {warning}", err=True)
    with ExitStack() as stack:
        home = None
        if not is_named:
            home = data or (stack.enter_context(_temporary_home()) if demo else HOME)
            if settings.checkpoint == Settings().checkpoint:  # It belongs to the broker's data.
                settings = replace(settings, checkpoint=str(home / "checkpoint"))
        launch = Launch(
            settings=settings,
            home=home,
            spark_log=_spark_log_folder(settings.checkpoint, home or HOME) / "spark.log",
            create_topics=create_topics or demo or not is_named,
            # Ids of clusters are new in each run, where the topics may hold earlier runs.
            demo_prefix=f"demo-{uuid.uuid4().hex[:6]}." if demo else None,
            short_lived=once,
        )
        stack.enter_context(launch.up())
        _print_addresses(launch)
        status = finish_demo(launch)
        if once:
            return status
        _print_how_to_produce(launch.settings)
        _wait(launch.job, launch.interrupts)
    return 0


def _spark_log_folder(checkpoint: str, home: Path) -> Path:
    """Beside a checkpoint on this machine's disk, so that the logs of jobs do not mix; else `home`.

    Likewise `home` where only the checkpoint itself may be written, as on a volume mounted there.
    """
    from spu_assigner.stream.job.checkpoint.files import absolute, is_local, local_path

    if checkpoint == Settings().checkpoint or not is_local(absolute(checkpoint)):
        return home
    folder = local_path(absolute(checkpoint)).parent
    there = next(each for each in (folder, *folder.parents) if each.exists())
    return folder if os.access(there, os.W_OK) else home


@contextmanager
def _temporary_home() -> Iterator[Path]:
    """A folder that is removed afterwards, unless an error leaves logs that explain it."""
    folder = Path(tempfile.mkdtemp(prefix="spu-assigner-run-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            yield folder
        except Exception:
            stack.pop_all()
            click.echo(f"logs are kept in {folder}", err=True)
            raise


def finish_demo(launch: Launch) -> int:
    """Wait for the answers, print the comparison; returns the exit status."""
    from spu_assigner.stream.job.run.demo import report

    if launch.play is None:
        return 0

    def check() -> None:
        launch.interrupts.check()
        # Reports why it ended; a query that is restarted has not.
        if not launch.job.query.isActive and launch.job.await_termination(LOOK_SECONDS):
            raise QueryEndedError(
                "the query was stopped from outside; start the command again to play the rest"
            )

    found = launch.play.gather(check)
    launch.say("every message is answered")
    return 0 if report(launch.play.examples, found) else 1


class QueryEndedError(AssignerError):
    """The query was stopped from outside."""


def _print_addresses(launch: Launch) -> None:
    job, settings = launch.job, launch.settings
    lines = {
        "Spark UI": job.spark.sparkContext.uiWebUrl,
        "metrics": job.watch.url,
        "query": f"{settings.query_name}, {job.shards} shards",
        "checkpoint": settings.checkpoint,
        "Spark log": launch.spark_log,
        "broker log": launch.broker_log,
    }
    for name, value in lines.items():
        if value is not None:
            click.echo(f"{name:<10}  {value}")


def _print_how_to_produce(settings: Settings) -> None:
    options = f"-b {settings.bootstrap_servers}"
    if settings.topic_prefix:
        options += f" --topic-prefix {settings.topic_prefix}"
    click.echo(
        f"\nEvents are answered. From another terminal:\n"
        f"  spu-assigner produce spu-joined {options} --cluster mine --spu-id 0 --wait\n"
        f"  spu-assigner produce topic-create {options} --cluster mine --topic first --wait\n"
        f"  spu-assigner explain {options} mine first\n"
        f"  spu-assigner inspect {options} --cluster mine\n"
        f"  spu-assigner watch {options} --from-beginning\n"
        "Ctrl-C ends it."
    )


def _wait(job: Job, interrupts: Interrupts) -> None:
    """Until Ctrl-C, or until the query ends."""
    restarts = 0
    while not job.await_termination(LOOK_SECONDS):
        interrupts.check()
        if job.restarts > restarts:
            restarts = job.restarts
            click.echo("query restarted: a process that was fenced had planned a batch")
