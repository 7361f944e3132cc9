"""`spu-assigner doctor`: what keeps a job from its work, each with what to do.

Nothing is made or changed: no file, no topic, no group. No JVM is started but to ask its version.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from spu_assigner.stream.common.printable import printable
from spu_assigner.stream.config.command_options import is_broker_named, settings_options
from spu_assigner.stream.config.setting_spec import SettingsError
from spu_assigner.stream.config.settings import Settings
from spu_assigner.stream.kafka.acls import Role

if TYPE_CHECKING:
    from spu_assigner.stream.doctor.check_runner import Check

SECONDS_MAX: Final = 4.0  # with the start of the process less than five
WIDTH: Final = 120  # of tables, where there is no terminal to ask
MARKS: Final = {"fault": "✗", "warning": "!", "ok": "✓", "unchecked": "-"}
COLOURS: Final = {"fault": "red", "warning": "yellow", "ok": "green", "unchecked": "dim"}


def _explain(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is None or ctx.resilient_parsing:
        return
    from spu_assigner.stream.doctor.explain_code import explained, rule_of

    rule = rule_of(value)
    if rule is None:
        raise click.BadParameter(f"{value!r} is no code; docs/doctor.md lists them", ctx, param)
    click.echo(explained(rule))
    ctx.exit()


@click.command()
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role if role is not Role.GROUP]),
    default=Role.JOB.value,
    show_default=True,
    help="Who is to work here; each needs other rights, and some no Java.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1, max=600),
    default=SECONDS_MAX,
    show_default=True,
    metavar="SECONDS",
    help="For all checks together.",
)
@click.option("--strict", is_flag=True, help="End with 1 for warnings, too.")
@click.option(
    "--format",
    "--output",
    "-o",
    "form",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="A table for people, or one JSON object.",
)
@click.option("--json", "is_json", is_flag=True, help="The same as --format json.")
@click.option(
    "--explain",
    metavar="CODE",
    is_eager=True,
    expose_value=False,
    callback=_explain,
    help="Tell what a code means, and what to do; checks nothing.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="A settings file; also SPU_ASSIGNER_CONFIG.",
)
@settings_options
def doctor(
    *,
    role: str,
    timeout: float,
    strict: bool,
    form: str,
    is_json: bool,
    config: Path | None,
    **flags: Any,
) -> int:
    """Find what is wrong here, before the job does: give it the options that `run` is given.

    Java, Python and packages, jars, disk and port; the broker, rights, topics; the checkpoint, and
    whether it goes with what is in Kafka. All checks are made, whatever one of them finds. Nothing
    is made or changed, and a job may run meanwhile.

    Exit status: 0 when all is right (warnings may be told), 1 for faults (with --strict for
    warnings too), 2 for wrong usage.
    """
    from spu_assigner.stream.doctor.check_list import CheckTarget, run_checks

    settings: Settings | SettingsError
    try:
        settings = Settings.load(flags=flags, file=config)
    except SettingsError as reason:
        settings, is_named = reason, True
    else:
        is_named = is_broker_named(flags, settings)
    target = CheckTarget(
        settings=settings, is_broker_named=is_named, role=Role(role), environ=os.environ
    )
    checks = run_checks(target, seconds=timeout)
    findings = [finding for check in checks for finding in check.findings]
    faults = sum(finding.rule.is_fault for finding in findings)
    warnings = len(findings) - faults
    if is_json or form == "json":
        click.echo(json.dumps(_as_json(checks, role=role, faults=faults, warnings=warnings)))
    else:
        _show(checks)
        click.echo(_verdict(checks, faults=faults, warnings=warnings))
    return 1 if faults or (strict and warnings) else 0


def _state(check: Check[Any]) -> str:
    if check.has_fault:
        return "fault"
    if check.findings:
        return "warning"
    return "ok" if check.unchecked is None else "unchecked"


def _as_json(
    checks: Sequence[Check[Any]], *, role: str, faults: int, warnings: int
) -> dict[str, Any]:
    return {
        "role": role,
        "right": not faults,
        "faults": faults,
        "warnings": warnings,
        "checks": [
            {
                "check": check.name,
                "state": _state(check),
                "found": printable(check.summary) or None,
                "not_checked": None if check.unchecked is None else printable(check.unchecked),
                "left_out": [printable(part) for part in check.left_out],
                "findings": [finding.as_json() for finding in check.findings],
            }
            for check in checks
        ],
    }


def _lines(check: Check[Any]) -> list[tuple[str, str]]:
    """What is said of a check, each with its weight."""
    lines: list[tuple[str, str]] = []
    for finding in check.findings:
        weight = "fault" if finding.rule.is_fault else "warning"
        lines.append((weight, f"{finding.rule.code} {finding.message}\n→ {finding.fix}"))
    if not lines:
        if check.unchecked is None:
            lines.append(("ok", check.summary))
        else:
            lines.append(("unchecked", f"not checked, because {check.unchecked}"))
    return lines + [("unchecked", f"not checked: {part}") for part in check.left_out]


def _show(checks: Sequence[Check[Any]]) -> None:
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:  # It is one of the packages that are looked at.
        for check in checks:
            for weight, line in _lines(check):
                click.echo(f"{MARKS[weight]} {check.name:<11} {_escaped(line)}")
        return
    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column()
    table.add_column(overflow="fold")
    for check in checks:
        name = check.name
        for weight, line in _lines(check):
            mark = Text(MARKS[weight], style=COLOURS[weight])
            style = "dim" if weight in ("ok", "unchecked") else ""
            table.add_row(mark, name, Text(_escaped(line), style=style))
            name = ""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    console.print(table)


def _escaped(text: str) -> str:
    """Foreign text made harmless; the lines stay."""
    return "\n".join(map(printable, text.split("\n")))


def _verdict(checks: Sequence[Check[Any]], *, faults: int, warnings: int) -> str:
    told = [_many(faults, "fault"), _many(warnings, "warning")] if faults or warnings else []
    partly = sum(check.unchecked is not None or bool(check.left_out) for check in checks)
    words = ", ".join(told) or "nothing wrong"
    unsaid = f"; {partly} of {len(checks)} checks not made, or not whole" if partly else ""
    more = "; `spu-assigner doctor --explain CODE` tells more" if told else ""
    return f"{words}{unsaid}{more}"


def _many(count: int, name: str) -> str:
    return f"{count} {name}{'' if count == 1 else 's'}"
