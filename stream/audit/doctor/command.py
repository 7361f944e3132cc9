"""`spu-assigner doctor`: diagnose start-up failures, with a fix for each.

Nothing is created or changed: no file, no topic, no group. No JVM is started except to ask its
version, and to read a checkpoint on S3.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click
from spu_assigner.stream.common.printable import counted, printable
from spu_assigner.stream.kafka.acls import Role
from spu_assigner.stream.kafka.config.command_options import (
    is_broker_named,
    load_settings,
    output_option,
    settings_options,
    table_width,
    with_target,
)
from spu_assigner.stream.kafka.config.setting_spec import SettingsError
from spu_assigner.stream.kafka.config.settings import Settings

if TYPE_CHECKING:
    from spu_assigner.stream.audit.doctor.look import CheckReport
    from spu_assigner.stream.kafka.config.connection import Connection

SECONDS_MAX: Final = 10.0  # a sound installation takes one; a silent broker is given up before
S3_SECONDS_MAX: Final = 60.0  # with a checkpoint that is read through Spark
MARKS: Final = {  # of a state: the mark and its colour
    "fault": ("✗", "red"),
    "warning": ("!", "yellow"),
    "ok": ("✓", "green"),
    "unchecked": ("-", "bright_black"),
}
REQUEST_SHARE: Final = 0.3  # of the time, for a broker's first answer
REFUSED_SECONDS_MAX: Final = 1.0  # until a refusal is taken for one


@click.command()
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role if role is not Role.GROUP]),
    default=Role.JOB.value,
    show_default=True,
    help="Whose needs are checked; each role needs other rights, and some no Java.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1, max=600),
    metavar="SECONDS",
    help="For all checks together.  [default: "
    f"{SECONDS_MAX:.0f}; {S3_SECONDS_MAX:.0f} with a checkpoint on S3]",
)
@click.option("--strict", is_flag=True, help="End with 1 for warnings, too.")
@output_option
@with_target
@settings_options("bootstrap_servers", "topic_prefix", "checkpoint")
def doctor(
    *,
    role: str,
    timeout: float | None,
    strict: bool,
    output: str,
    target_connection: Connection | None,
    **flags: Any,
) -> int:
    """Diagnose start-up failures, with a fix for each: with the settings of `run`.

    Makes the checks that the job makes at its start (Java, the address for metrics, broker, rights
    and topics, checkpoint, last marker, input) and reports all of them; also the jars, and whether
    the checkpoint goes on where the last marker is. With --role applier or mover also the Kafka
    cluster whose topics are made: rights to move data, left-over throttles, reassignments under
    way. Nothing is created or changed, and a job may run meanwhile.

    Exit status: 0 without faults, 1 for faults (with --strict for warnings too), 2 for wrong usage.
    """
    from spu_assigner.stream.audit.doctor.checks import run_checks
    from spu_assigner.stream.audit.doctor.look import DoctorLook
    from spu_assigner.stream.audit.doctor.own_checks import HELD_SECONDS
    from spu_assigner.stream.job.checkpoint.files import is_on_s3
    from spu_assigner.stream.job.start_checks import StartLook
    from spu_assigner.stream.kafka.connection_diagnosis import WaitLimits

    fault, settings = None, Settings()
    try:
        settings = load_settings(flags)
    except SettingsError as reason:
        fault = reason
    seconds = timeout or (S3_SECONDS_MAX if is_on_s3(settings.checkpoint) else SECONDS_MAX)
    request = REQUEST_SHARE * seconds
    look = DoctorLook(
        start=StartLook(
            settings=settings,
            limits=WaitLimits(request=request, refused=min(REFUSED_SECONDS_MAX, request)),
            held_seconds=HELD_SECONDS,
        ),
        role=Role(role),
        is_broker_named=fault is not None or is_broker_named(flags, settings),
        settings_fault=fault,
        target_connection=target_connection,
    )
    reports = run_checks(look, seconds)
    severities = [finding.severity for report in reports for finding in report.findings]
    faults, warnings = severities.count("fault"), severities.count("warning")
    if output == "json":
        summary = {"role": role, "right": not faults, "faults": faults, "warnings": warnings}
        click.echo(json.dumps({**summary, "checks": [report.as_json() for report in reports]}))
    else:
        _show(reports)
        click.echo(_verdict(reports, faults=faults, warnings=warnings))
    return 1 if faults or (strict and warnings) else 0


def _show(reports: Sequence[CheckReport]) -> None:
    """The checks as a table: state, name, what was found."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 3, 0, 1))
    for report in reports:
        texts: list[tuple[str, str]] = [
            (each.severity, f"{each.code} {each.message}\n→ {each.fix}") for each in report.findings
        ]
        if report.state == "ok":
            texts = [("ok", printable(report.found))]
        elif report.state == "unchecked":
            texts = [("unchecked", f"not checked, because {printable(report.not_checked or '')}")]
        for number, (state, text) in enumerate(texts):
            mark, colour = MARKS[state]
            table.add_row(Text(mark, style=colour), "" if number else report.name, Text(text))
    Console(highlight=False, width=table_width()).print(table)


def _verdict(reports: Sequence[CheckReport], *, faults: int, warnings: int) -> str:
    found = "nothing wrong"
    if faults or warnings:
        found = f"{counted(faults, 'fault')}, {counted(warnings, 'warning')}"
    left = sum(report.not_checked is not None for report in reports)
    return f"{found}; {left} of {len(reports)} checks not made" if left else found
