"""The command line `spu-assigner`: the group, and how its commands end.

Each command is imported when it is called, and what is heavy (Spark, Kafka's client, Avro, tables)
inside the command: `simulate` answers in a fraction of a second.

Exit status: 0 done; 1 the answer is no, or something outside failed; 2 wrong usage or settings;
3 no answer in time (`produce --wait`, `adopt`); of `plan` and `adopt --dry-run`, 2 says that there
is something to do, and wrong usage is 1; 130 interrupted, 143 terminated. An error is one line on
standard error.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, NoReturn

import click
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.common.daemon_threads import is_any_running

PROGRAM: Final = "spu-assigner"

# command: (its module, its short help; kept here so that `--help` imports none of them)
_COMMANDS: Final = {
    "simulate": ("client.simulate", "Answer or check a file of events, without Kafka or Spark."),
    "run": ("job.run.command", "Run the job: events in on Kafka, replica maps out."),
    "produce": ("client.produce", "Send events to Kafka, and wait for their answers."),
    "watch": ("client.watch", "Show replica maps and answers as they come."),
    "inspect": (
        "audit.inspect_command",
        "Show what a job knows: clusters, SPUs, topics, what waits.",
    ),
    "recover": ("audit.recover_command", "Make a checkpoint out of what the job has published."),
    "verify": ("audit.verify.command", "Audit what the job has written."),
    "explain": ("audit.explain_command", "Explain why a topic's replicas are where they are."),
    "ui": ("audit.ui.command", "Show clusters, rings, loads and maps in a browser."),
    "follow": ("clusters.follow.command", "Follow the brokers of a Kafka cluster, and its topics."),
    "adopt": ("clusters.follow.command", "Take over a Kafka cluster's topics as they are."),
    "plan": ("clusters.plan.command", "Show what would make Kafka's topics as their replica maps."),
    "apply": ("clusters.plan.command", "Make Kafka's topics as their replica maps."),
    "drain": ("clusters.drain.command", "Empty a broker, so that it may be switched off."),
    "rebalance": ("clusters.drain.command", "Even out a cluster, maps and data."),
    "whatif": ("clusters.whatif.command", "Show what a failure of SPUs or racks would cost."),
    "doctor": ("audit.doctor.command", "Diagnose start-up failures, with a fix for each."),
    "topics": ("client.topics_command", "Create or check the Kafka topics."),
    "schemas": ("client.schemas_command", "Put the schemas of messages into a Schema Registry."),
    "broker": ("local.broker.command", "Run the embedded Kafka broker alone."),
    "completion": ("client.completion", "Print the script that completes this command in a shell."),
}


class Commands(click.Group):
    """A group whose commands are imported when called, and whose errors are one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, in the order of the help text."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None: there is none of this name."""
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"spu_assigner.stream.{_COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands into the help text, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in _COMMANDS.items()])

    def main(self, args: Sequence[str] | None = None, *more: Any, **named: Any) -> Any:
        """Run, and exit with the status that the module's docstring names."""
        try:
            given = {"prog_name": PROGRAM, **named, "standalone_mode": False}
            status = super().main(args, *more, **given)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            status = 2
        except click.UsageError as error:
            command = _called(args) if error.ctx is None else error.ctx.command_path
            message = error.format_message().rstrip(".")
            click.echo(f"{command}: {message} (see {command} --help)", err=True)
            status = error.exit_code
        except click.ClickException as error:
            click.echo(f"{PROGRAM}: {error.format_message()}", err=True)
            status = error.exit_code
        except click.Abort:
            status = 130
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("spu_assigner"):
                raise  # The package itself is broken.
            fix = f"pip install '{PROGRAM}[job]'"
            click.echo(
                f"{PROGRAM}: this needs {PROGRAM}[job]: {fix} (no module {error.name})", err=True
            )
            status = 1
        except AssignerError as error:
            click.echo(f"{PROGRAM}: {' '.join(str(error).split())}", err=True)
            status = getattr(error, "exit_status", 1)
        sys.exit(status)


@click.group(
    PROGRAM,
    cls=Commands,
    commands={name: click.Command(name) for name in _COMMANDS},  # for suggestions of names
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit status: 0 done; 1 refused or failed; 2 wrong usage or settings; "
    "3 no answer in time; 130 interrupted.",
)
@click.version_option(package_name=PROGRAM, message="%(prog)s %(version)s")
def cli() -> None:
    """Assign replicas of partitions to storage nodes (SPUs), from events on Kafka.

    \b
    spu-assigner run --demo        see it work: broker, job and the documents' examples
    spu-assigner simulate FILE     the same decisions without Kafka or Spark
    """


def _called(args: Sequence[str] | None) -> str:
    """The command whose help is meant where click does not say: an option without its value."""
    first, *_ = [*(sys.argv[1:] if args is None else args), ""]
    return f"{PROGRAM} {first}" if first in _COMMANDS else PROGRAM


def main() -> None:
    """The entry point. A request to terminate ends it as Ctrl-C does: everything is closed."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    # numpy loads OpenBLAS, which starts a thread for each core and lets them turn for a while. No
    # command does linear algebra, nor does what it starts.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        cli()
    except SystemExit as end:
        if is_any_running():
            _leave(end.code)
        raise
    finally:
        gc.freeze()  # Else an interpreter that ends looks for garbage in all that it holds.


def _leave(code: str | int | None) -> NoReturn:
    """End at once, without taking the interpreter down.

    A thread that still asks Kafka would be answered by another one, of Kafka's client, which takes
    the interpreter's lock: if it is gone by then, the process dies of SIGSEGV (confluent-kafka
    2.16.1).
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # no reader, or it is closed
            stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    main()
