"""`spu-assigner lint`: faults of files of events and replica lists, before they are sent.

No broker, Spark or JVM. All faults of all files at once, each with its place and a code that stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Final

import click
from spu_assigner.core.base.events import DEFAULT_POLICY, Policy
from spu_assigner.core.base.limits import MANUAL_FILE_SIZE_MAX
from spu_assigner.stream.client.lint.findings import LintReport
from spu_assigner.stream.client.lint.rules import rule_of
from spu_assigner.stream.common.json_line_reading import chunks_of_lines
from spu_assigner.stream.common.printable import listed, printable

HEAD_SIZE: Final = 4_096  # bytes of a file that show what is in it
UNCHECKED_NAMED: Final = 3  # clusters, in a note

# A list, or the object with a list of partitions, as Kafka's reassignments too: no event begins so.
_LISTS: Final = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:\[|\{\s*(?:\"version\"\s*:\s*\d+\s*,\s*)?\"partitions\"\s*:\s*\[)"
)


def _explain(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is None or ctx.resilient_parsing:
        return
    rule = rule_of(value)
    if rule is None:
        raise click.BadParameter(f"{value!r} is no code; docs/lint.md lists them", ctx, param)
    weight = "an error: it will be rejected, or cannot be read"
    if not rule.is_error:
        weight = "a warning: it is accepted, and probably not intended"
    click.echo(f"{rule.code} {rule.name}: {rule.about}\nwhat to do: {rule.fix}\n{weight}")
    ctx.exit()


@click.command()
@click.argument(
    "files",
    metavar="FILE...",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, allow_dash=True),
)
@click.option(
    "--kind",
    type=click.Choice(["auto", "events", "lists"]),
    default="auto",
    show_default=True,
    help="What the files hold; auto: each as it begins.",
)
@click.option(
    "--whole/--part",
    default=None,
    help="Every cluster begins with its file; or exists already. "
    "[default: whole are those clusters in which an SPU joins]",
)
@click.option(
    "--policy",
    type=click.Choice([policy.value for policy in Policy if policy is not Policy.MANUAL]),
    default=DEFAULT_POLICY.value,
    show_default=True,
    help="Policy of creates that name none.",
)
@click.option("--strict", is_flag=True, help="End with 1 for warnings, too.")
@click.option(
    "--output",
    "-o",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Lines for people, or one JSON object a line.",
)
@click.option(
    "--explain",
    metavar="CODE",
    is_eager=True,
    expose_value=False,
    callback=_explain,
    help="Explain a code, with what to do; lints nothing.",
)
def lint(
    *,
    files: Sequence[Path],
    kind: str,
    whole: bool | None,
    policy: str,
    strict: bool,
    form: str,
) -> int:
    """Find all faults of event files and of replica lists, without Kafka or Spark.

    FILE holds events as for `simulate` and `produce events`, one a line, or the replica lists of a
    manual assignment; - is standard input. Each file is a history of its own: what the core would
    reject is reported in its words, every fault of every line at once.

    A cluster in which no SPU joins is assumed to exist already: what depends on its SPUs or earlier
    topics is not reported. With --whole every cluster begins with the file, as for `simulate`; with
    --part none does.

    Exit status: 0 when nothing is wrong, 1 for errors (with --strict for warnings too), 2 for wrong
    usage or a file that cannot be read.
    """
    reports, unreadable = _lint_files(files, kind=kind, policy=Policy(policy), whole=whole)
    for report in reports:
        for finding in report.findings:
            is_json = form == "json"
            click.echo(json.dumps(finding.as_json()) if is_json else finding.line_of_text())
    errors = sum(report.errors for report in reports)
    warnings = sum(report.warnings for report in reports)
    _summarise(reports, form=form, errors=errors, warnings=warnings)
    if unreadable:
        return 2
    return 1 if errors or (strict and warnings) else 0


def _lint_files(
    files: Sequence[Path], *, kind: str, policy: Policy, whole: bool | None
) -> tuple[list[LintReport], int]:
    """The reports in the order of the files, and how many files cannot be read.

    Files of events come first, since lists are checked against their SPUs.
    """
    from spu_assigner.stream.client.lint.event_file import EventLinter

    reports: dict[int, LintReport] = {}
    joined: set[int] = set()
    lists: list[tuple[int, Path, bytes]] = []
    unreadable = 0
    for number, file in enumerate(files):
        try:
            with click.open_file(str(file), "rb") as source:
                head = source.read(HEAD_SIZE)
                if kind == "lists" or (kind == "auto" and _LISTS.match(head)):
                    lists.append((number, file, head + source.read(MANUAL_FILE_SIZE_MAX)))
                    continue
                linter = EventLinter(_name(file), default_policy=policy, whole=whole)
                lines = chain.from_iterable(chunks_of_lines(source, head=head))
                for line, raw in enumerate(lines, start=1):
                    linter.take(line, raw)
        except OSError as error:
            unreadable += 1
            said = f"cannot read {str(file)!r}: {error.strerror}"
            click.echo(f"spu-assigner lint: {printable(said)}", err=True)
            continue
        reports[number] = linter.result()
        joined |= linter.spu_ids()
    if lists:
        from spu_assigner.stream.client.lint.replica_list_file import lint_lists

        for number, file, data in lists:
            is_link = str(file) != "-" and file.is_symlink()
            reports[number] = lint_lists(_name(file), data, is_link=is_link, joined=joined or None)
    return [report for _, report in sorted(reports.items())], unreadable


def _summarise(reports: Sequence[LintReport], *, form: str, errors: int, warnings: int) -> None:
    """One line that counts, and notes of what was not checked."""
    counts = {
        "files": len(reports),
        "events": sum(report.events for report in reports),
        "lists": sum(report.lists for report in reports),
        "errors": errors,
        "warnings": warnings,
        "not_shown": errors + warnings - sum(len(report.findings) for report in reports),
    }
    unchecked = {report.file: list(report.unchecked) for report in reports if report.unchecked}
    if form == "json":
        click.echo(json.dumps({"type": "summary", **counts, "unchecked": unchecked}))
        return
    for file, clusters in unchecked.items():
        named = listed(clusters, UNCHECKED_NAMED)
        click.echo(
            printable(
                f"{file}: note: no SPU joins {named}: what depends on SPUs and earlier topics "
                "there is not checked (--whole: as from its beginning)"
            )
        )
    if counts["not_shown"]:
        click.echo(f"… {counts['not_shown']:,} more")
    seen = [_many(counts[name], name[:-1]) for name in ("events", "lists") if counts[name]]
    of = ", ".join([*seen, _many(counts["files"], "file")])
    if errors or warnings:
        click.echo(f"{_many(errors, 'error')}, {_many(warnings, 'warning')}: {of}")
    else:
        click.echo(f"nothing found: {of}")


def _name(file: Path) -> str:
    return "<stdin>" if str(file) == "-" else str(file)


def _many(count: int, name: str) -> str:
    return f"{count:,} {name}{'' if count == 1 else 's'}"
