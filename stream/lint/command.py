"""`spu-assigner lint`: what is wrong with files of events and replica lists, before they are sent.

No broker, Spark or JVM. All faults of all files at once, each with its place and a code that stays.
"""

from __future__ import annotations

import gc
import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final

import click
from spu_assigner.core.base.events import DEFAULT_POLICY, Policy
from spu_assigner.core.base.limits import MANUAL_FILE_SIZE_MAX
from spu_assigner.stream.common.json_line_reading import chunks_of_lines
from spu_assigner.stream.common.printable import printable
from spu_assigner.stream.lint.findings import LintReport
from spu_assigner.stream.lint.rules import LintRule, rule_of

HEAD_SIZE: Final = 4_096  # bytes of a file that tell what is in it
GARBAGE_LOOKED_FOR: Final = 50_000  # new objects; 700 unless said otherwise
UNCHECKED_NAMED: Final = 3  # clusters, in a note

# A list, or the object with a list of partitions: no event begins so.
_LISTS: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:\[|\{\s*\"partitions\"\s*:\s*\[)")


def _explain(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is None or ctx.resilient_parsing:
        return
    rule = rule_of(value)
    if rule is None:
        raise click.BadParameter(f"{value!r} is no code; README lists them", ctx, param)
    click.echo(f"{rule.code} {rule.name}: {rule.about}\nwhat to do: {rule.fix}\n{_weight(rule)}")
    ctx.exit()


def _weight(rule: LintRule) -> str:
    if rule.is_error:
        return "an error: it will be refused, or cannot be read"
    return "a warning: it is taken, and probably not meant"


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
    help="The files tell every cluster from its beginning; or go on with clusters there are. "
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
    "--format",
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
    help="Tell what a code means, and what to do; lints nothing.",
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
    refuse is told as it would refuse it, every fault of every line at once.

    Of a cluster in which no SPU joins nothing is told that depends on its SPUs or earlier topics:
    it is taken to be there already. --whole takes it to begin with the file, as `simulate` does;
    --part takes no cluster to.

    Exit status: 0 when nothing is wrong, 1 for errors (with --strict for warnings too), 2 for wrong
    usage or a file that cannot be read.
    """
    run = _Run(form=form, kind=kind, default_policy=Policy(policy), whole=whole)
    with _short_lived():
        run.lint(files)
    run.summarise()
    if run.unreadable:
        return 2
    return 1 if run.errors or (strict and run.warnings) else 0


class _Run:
    """Files, one after the other: those of events first, for lists are held against their SPUs."""

    def __init__(self, *, form: str, kind: str, default_policy: Policy, whole: bool | None) -> None:
        self.form = form
        self.kind = kind
        self.default_policy = default_policy
        self.whole = whole
        self.reports: dict[int, LintReport] = {}
        self.unreadable = 0

    @property
    def errors(self) -> int:
        return sum(report.errors for report in self.reports.values())

    @property
    def warnings(self) -> int:
        return sum(report.warnings for report in self.reports.values())

    def lint(self, files: Sequence[Path]) -> None:
        """Lint all, and tell what was found in the order in which they were named."""
        from spu_assigner.stream.lint.event_file import EventLinter

        joined: set[int] = set()
        lists: list[tuple[int, Path, bytes]] = []
        for number, file in enumerate(files):
            try:
                with _reading(file) as source:
                    data = self._lists_in(source)
                    if data is not None:
                        lists.append((number, file, data))
                        continue
                    linter = EventLinter(
                        _name(file), default_policy=self.default_policy, whole=self.whole
                    )
                    lines = chain.from_iterable(chunks_of_lines(source))
                    for line, raw in enumerate(lines, start=1):
                        linter.take(line, raw)
            except OSError as error:
                self.unreadable += 1
                said = f"cannot read {str(file)!r}: {error.strerror}"
                click.echo(f"spu-assigner lint: {printable(said)}", err=True)
                continue
            self.reports[number] = linter.report()
            joined |= linter.spu_ids()
        if lists:
            from spu_assigner.stream.lint.replica_list_file import lint_lists

            for number, file, data in lists:
                is_link = str(file) != "-" and file.is_symlink()
                self.reports[number] = lint_lists(
                    _name(file), data, is_link=is_link, joined=joined or None
                )
        for _, report in sorted(self.reports.items()):
            self._tell(report)

    def _lists_in(self, source: _Headed) -> bytes | None:
        """The whole of a file of lists; None if it holds events."""
        is_lists = self.kind == "lists"
        if self.kind == "auto":
            is_lists = _LISTS.match(source.head()) is not None
        return source.read(MANUAL_FILE_SIZE_MAX + 1) if is_lists else None

    def _tell(self, report: LintReport) -> None:
        write = sys.stdout.write
        for finding in report.findings:
            if self.form == "json":
                write(json.dumps(finding.as_json()) + "\n")
            else:
                write(finding.line_of_text() + "\n")

    def summarise(self) -> None:
        """One line that counts, and notes of what was not checked."""
        reports = [report for _, report in sorted(self.reports.items())]
        kept = sum(len(report.findings) for report in reports)
        counts = {
            "files": len(reports),
            "events": sum(report.events for report in reports),
            "lists": sum(report.lists for report in reports),
            "errors": self.errors,
            "warnings": self.warnings,
            "not_shown": self.errors + self.warnings - kept,
        }
        unchecked = {report.file: list(report.unchecked) for report in reports if report.unchecked}
        if self.form == "json":
            click.echo(json.dumps({"type": "summary", **counts, "unchecked": unchecked}))
            return
        for file, clusters in unchecked.items():
            named = ", ".join(clusters[:UNCHECKED_NAMED])
            more = f" and {len(clusters) - UNCHECKED_NAMED} more" * (
                len(clusters) > UNCHECKED_NAMED
            )
            click.echo(
                printable(
                    f"{file}: note: no SPU joins {named}{more}: what depends on SPUs and earlier "
                    "topics there is not checked (--whole: as from its beginning)"
                )
            )
        if counts["not_shown"]:
            click.echo(f"… {counts['not_shown']:,} more")
        seen = [_many(counts[name], name[:-1]) for name in ("events", "lists") if counts[name]]
        of = f"{', '.join([*seen, _many(counts['files'], 'file')])}"
        if not self.errors and not self.warnings:
            click.echo(f"nothing found: {of}")
        else:
            errors, warnings = _many(self.errors, "error"), _many(self.warnings, "warning")
            click.echo(f"{errors}, {warnings}: {of}")


def _name(file: Path) -> str:
    return "<stdin>" if str(file) == "-" else str(file)


def _many(count: int, name: str) -> str:
    return f"{count:,} {name}{'' if count == 1 else 's'}"


@contextmanager
def _short_lived() -> Iterator[None]:
    """As suits a process of a fraction of a second.

    There is little garbage in what is read, so it is looked for less often.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(GARBAGE_LOOKED_FOR)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


class _Headed:
    """A source whose first bytes can be looked at before they are read."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._read: Any = getattr(source, "read1", source.read)
        self._head = b""

    def head(self) -> bytes:
        """The first bytes; waits for them."""
        while len(self._head) < HEAD_SIZE and (more := self._read(HEAD_SIZE)):
            self._head += more
        return self._head

    def read1(self, size: int) -> bytes:
        """At most as many bytes; none at the end."""
        if self._head:
            head, self._head = self._head[:size], self._head[size:]
            return head
        data: bytes = self._read(size)
        return data

    def read(self, size: int) -> bytes:
        """As many bytes, unless it ends before."""
        pieces = []
        while size and (piece := self.read1(size)):
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)


@contextmanager
def _reading(file: Path) -> Iterator[_Headed]:
    if str(file) == "-":
        yield _Headed(sys.stdin.buffer)
        return
    with file.open("rb") as source:
        yield _Headed(source)
