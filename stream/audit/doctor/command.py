"""`spu-assigner doctor`: diagnose start-up failures, with a fix for each.

Nothing is created or changed: no file, no topic, no group. No JVM is started except to ask its
version, and to read a checkpoint on S3.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

import click
from spu_assigner.stream.common.printable import printable
from spu_assigner.stream.kafka.acls import Role
from spu_assigner.stream.kafka.config.command_options import (
    is_broker_named,
    load_settings,
    output_option,
    settings_options,
    with_target,
)
from spu_assigner.stream.kafka.config.setting_spec import SettingsError
from spu_assigner.stream.kafka.config.settings import Settings

if TYPE_CHECKING:
    from spu_assigner.stream.audit.doctor.checks import CheckReport
    from spu_assigner.stream.kafka.config.connection import Connection

SECONDS_MAX: Final = 4.0  # with the start of the process less than five
S3_SECONDS_MAX: Final = 60.0  # with a checkpoint that is read through Spark
WIDTH: Final = 120  # of the table, where there is no terminal to ask
COLUMN: Final = 18  # where what was found begins
MARKS: Final = {  # of a state: the mark and its colour
    "fault": ("✗", "red"),
    "warning": ("!", "yellow"),
    "ok": ("✓", "green"),
    "unchecked": ("-", "bright_black"),
}


def _explain(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is None or ctx.resilient_parsing:
        return
    from spu_assigner.stream.audit.doctor.codes import rule_of

    rule = rule_of(value)
    if rule is None:
        raise click.BadParameter(f"{value!r} is no code; docs/doctor.md lists them", ctx, param)
    click.echo(rule.explained())
    ctx.exit()


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
    f"{SECONDS_MAX:.0f}; {S3_SECONDS_MAX:.0f} with a checkpoint on S3; more on a busy machine]",
)
@click.option("--strict", is_flag=True, help="End with 1 for warnings, too.")
@output_option
@click.option(
    "--explain",
    metavar="CODE",
    is_eager=True,
    expose_value=False,
    callback=_explain,
    help="Explain a code, with what to do; checks nothing.",
)
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

    Checks Java, Python and packages, jars, disk and ports; the broker, rights, topics; the
    checkpoint, and whether it fits what is in Kafka; with --role applier or mover also the Kafka
    cluster whose topics are made: rights to move data, left-over throttles, reassignments under
    way. All checks run, whatever one of them finds. Nothing is created or changed, and a job may
    run meanwhile.

    Exit status: 0 without faults, 1 for faults (with --strict for warnings too), 2 for wrong usage.
    """
    from spu_assigner.stream.audit.doctor.checks import CheckTarget, TimeLimit, run_checks
    from spu_assigner.stream.job.checkpoint.files import is_on_s3

    settings: Settings | SettingsError
    try:
        settings = load_settings(flags)
    except SettingsError as reason:
        settings, is_named = reason, True
    else:
        is_named = is_broker_named(flags, settings)
    target = CheckTarget(
        settings=settings,
        is_broker_named=is_named,
        role=Role(role),
        environ=os.environ,
        target_connection=target_connection,
    )
    with_spark = isinstance(settings, Settings) and is_on_s3(settings.checkpoint)
    usual = S3_SECONDS_MAX if with_spark else SECONDS_MAX
    limit = TimeLimit(seconds=usual if timeout is None else timeout, grows=timeout is None)
    reports = run_checks(target, limit)
    severities = [finding.rule.severity for report in reports for finding in report.findings]
    faults, warnings = severities.count("fault"), severities.count("warning")
    if output == "json":
        summary = {"role": role, "right": not faults, "faults": faults, "warnings": warnings}
        click.echo(json.dumps({**summary, "checks": [report.as_json() for report in reports]}))
    else:
        _show(reports)
        click.echo(_verdict(reports, faults=faults, warnings=warnings))
    return 1 if faults or (strict and warnings) else 0


def _show(reports: Sequence[CheckReport]) -> None:
    """The checks as a table: state, name, what was found; without rich, which may be missing."""
    width = shutil.get_terminal_size((WIDTH, 0)).columns if sys.stdout.isatty() else WIDTH
    for report in reports:
        name = report.name
        for state, text in _texts(report):
            mark, colour = MARKS[state]
            lead, name = f" {click.style(mark, fg=colour)}   {name:<13}", ""
            for part in map(printable, text.split("\n")):
                for line in wrap(part, max(20, width - COLUMN), break_on_hyphens=False) or [""]:
                    click.echo(lead + line)
                    lead = " " * COLUMN


def _texts(report: CheckReport) -> Iterator[tuple[str, str]]:
    """What is said of a check, each with its state."""
    for number, finding in enumerate(report.findings):
        rule, later = finding.rule, report.findings[number + 1 : number + 2]
        is_said_later = any(each.fix == finding.fix for each in later)
        fix = "" if is_said_later else f"\n→ {finding.fix}"
        yield rule.severity, f"{rule.code} {finding.message}{fix}"
    if report.state == "ok":
        yield "ok", report.summary
    elif report.state == "unchecked":
        yield "unchecked", f"not checked, because {report.unchecked}"
    for part in report.left_out:
        yield "unchecked", f"not checked: {part}"


def _verdict(reports: Sequence[CheckReport], *, faults: int, warnings: int) -> str:
    found, more = "nothing wrong", ""
    if faults or warnings:
        found = f"{_many(faults, 'fault')}, {_many(warnings, 'warning')}"
        more = "; `spu-assigner doctor --explain CODE` explains a code"
    partly = sum(report.unchecked is not None or bool(report.left_out) for report in reports)
    unsaid = f"; {partly} of {len(reports)} checks not made, or incomplete" if partly else ""
    return f"{found}{unsaid}{more}"


def _many(count: int, name: str) -> str:
    return f"{count} {name}{'' if count == 1 else 's'}"
