"""`spu-assigner verify`: an audit of all that the job has written."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

import click
from spu_assigner.stream.common.printable import printable
from spu_assigner.stream.kafka.config.command_options import (
    load_settings,
    output_option,
    settings_options,
)

if TYPE_CHECKING:
    from spu_assigner.stream.audit.verify.model import AuditReport

PROGRESS_SECONDS: Final = 2.0  # between two lines of progress
KEY_SHOWN: Final = 300  # bytes


@click.command("verify")
@settings_options("bootstrap_servers", "topic_prefix")
@click.option(
    "--strict", is_flag=True, help="End with 1 also where something could not be checked."
)
@output_option
def verify(*, strict: bool, output: str, **flags: Any) -> int:
    """Audit the outputs: against the markers, and against a replay of the inputs.

    Reads all topics of the job from their beginnings. Every message must belong to a batch that has
    a marker, once and in order; every batch must have the count and digest of its marker; and where
    the inputs are still there from the first batch on, they are applied again, and every message
    must be the same, byte for byte. What has expired or was compacted away cannot be checked, and
    is reported.

    The job may run meanwhile: what it writes after this has begun is left out. Messages are put
    into a temporary file (TMPDIR).

    Exit status: 0 all is right; 1 something is not; 2 wrong usage, or Kafka cannot be read.
    """
    from spu_assigner.stream.audit.verify.audit import verify as audit
    from spu_assigner.stream.audit.verify.history import History, read_history

    settings = load_settings(flags)
    connection = settings.connection()
    if connection.security.warning is not None:
        click.echo(f"warning: {connection.security.warning}", err=True)
    said = time.monotonic()

    def say(line: str) -> None:
        nonlocal said
        if time.monotonic() - said >= PROGRESS_SECONDS:
            said = time.monotonic()
            click.echo(f"verify: {line}", err=True)

    with History(settings.query_name, connection.prefix) as history:
        read_history(
            connection,
            history,
            lambda: say(f"read {history.count:,} messages, {history.size / 1e6:,.0f} MB"),
        )
        report = audit(history, lambda done, count: say(f"checked {done:,} of {count:,} batches"))
    if output == "json":
        click.echo(json.dumps(_json(report), ensure_ascii=False))
    else:
        _show(report)
    return 0 if report.is_right and not (strict and list(report.unchecked())) else 1


def _show(report: AuditReport) -> None:
    rows = [("query", report.query)]
    if report.labels:
        checkpoint_id, batch = report.labels[-1]
        rows.append(("to", f"batch {batch} of checkpoint {checkpoint_id}"))
    rows.append(("messages", f"{report.messages:,}"))
    rows += [("checked", f"{count:,} {how}: {which}") for how, count, which in report.how()]
    rows += [("not checked", line) for line in report.unchecked()]
    verdict = "all right" if report.is_right else f"{report.finding_count:,} findings"
    rows.append(("verdict", verdict if report.labels else f"{verdict}; there is no batch"))
    for name, text in rows:
        click.echo(f"{name:<12} {printable(text)}")
    for finding in report.findings:
        at = finding.at
        place = "/".join(str(each) for each in (at.topic, at.partition) if each is not None)
        where = [
            f"batch {finding.batch.batch}" if finding.batch else "",
            place if at.offset is None else f"{place} offset {at.offset}",
            "" if at.key is None else f"key {_text(at.key)}",
        ]
        line = f"{finding.kind.name}  {', '.join(filter(None, where))}: found {finding.found}; "
        line += f"expected {finding.expected}. To do: {finding.kind.value}"
        click.echo(printable(line))
    if report.finding_count > len(report.findings):
        click.echo(f"… {report.finding_count - len(report.findings):,} more")


def _json(report: AuditReport) -> dict[str, Any]:
    return {
        "query": report.query,
        "right": report.is_right,
        "last": report.labels[-1]._asdict() if report.labels else None,
        "messages": report.messages,
        "batches": len(report.labels),
        "checked": [
            {"how": how.name.lower(), "count": count, "batches": which}
            for how, count, which in report.how()
        ],
        "not_checked": list(report.unchecked()),
        "finding_count": report.finding_count,
        "findings": [
            {
                "kind": finding.kind.name,
                "batch": finding.batch and finding.batch.batch,
                "checkpoint_id": finding.batch and finding.batch.checkpoint_id,
                **finding.at._asdict(),
                "key": None if finding.at.key is None else _text(finding.at.key),
                "found": finding.found,
                "expected": finding.expected,
                "to_do": finding.kind.value,
            }
            for finding in report.findings
        ],
    }


def _text(key: bytes) -> str:
    text = key[:KEY_SHOWN].decode("utf-8", "backslashreplace")
    return text if len(key) <= KEY_SHOWN else f"{text}… ({len(key)} bytes)"
