"""`spu-assigner verify`: an audit of all that the job has written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click
from spu_assigner.stream.common.printable import printable
from spu_assigner.stream.kafka.config.command_options import (
    broker_options,
    load_settings,
    output_option,
)
from spu_assigner.stream.kafka.config.connection import Connection

if TYPE_CHECKING:
    from spu_assigner.stream.audit.verify.model import AuditReport

KEY_SHOWN: Final = 300  # bytes


@click.command("verify")
@click.option("--strict", is_flag=True, help="End with 1 where something could not be checked.")
@output_option
@broker_options
def verify(*, strict: bool, output: str, connection: Connection) -> int:
    """Audit the outputs: against the markers, and against a replay of the inputs.

    Every message must belong to a batch that has a marker, once and in order; every batch must have
    the count and digest of its marker; and where the inputs are still there from the first batch
    on, they are applied again, and every message must be the same, byte for byte. What has expired
    or was compacted away cannot be checked, and is reported.

    The job may run meanwhile. Messages are put into a temporary file (TMPDIR).

    Exit status: 0 all is right; 1 something is not; 2 wrong usage, or Kafka cannot be read.
    """
    from spu_assigner.stream.audit.verify.audit import verify as audit
    from spu_assigner.stream.audit.verify.history import History, read_history

    with History(load_settings({}).query_name, connection.prefix) as history:
        read_history(connection, history)
        click.echo("verify: has read all topics, and checks them", err=True)
        report = audit(history)
    data = _json(report)
    if output == "json":
        click.echo(json.dumps(data, ensure_ascii=False))
    else:
        _show(data)
    return 0 if report.is_right and not (strict and data["not_checked"]) else 1


def _show(data: dict[str, Any]) -> None:
    verdict = "all right" if data["right"] else f"{data['finding_count']:,} findings"
    rows = [
        ("query", data["query"]),
        *((name, str(value)) for name, value in (data["last"] or {}).items()),
        ("messages", f"{data['messages']:,}"),
        *(("checked", f"{each['count']:,} {each['how']}") for each in data["checked"]),
        *(("not checked", line) for line in data["not_checked"]),
        ("verdict", verdict if data["last"] else f"{verdict}; there is no batch"),
    ]
    for name, text in rows:
        click.echo(f"{name:<14} {printable(text)}")
    for finding in data["findings"]:
        names = ("batch", "topic", "partition", "offset", "key")
        where = [f"{name} {finding[name]}" for name in names if finding[name] is not None]
        line = f"{finding['kind']}  {', '.join(where)}: found {finding['found']}; expected "
        click.echo(printable(f"{line}{finding['expected']}. To do: {finding['to_do']}"))
    if left := data["finding_count"] - len(data["findings"]):
        click.echo(f"… {left:,} more")


def _json(report: AuditReport) -> dict[str, Any]:
    return {
        "query": report.query,
        "right": report.is_right,
        "last": report.labels[-1]._asdict() if report.labels else None,
        "messages": report.messages,
        "batches": len(report.labels),
        "checked": [{"how": how, "count": count} for how, count in report.checked.items()],
        "not_checked": list(report.unchecked()),
        "finding_count": report.finding_count,
        "findings": [
            {
                "kind": finding.kind.name,
                "batch": finding.batch and finding.batch.batch,
                "checkpoint_id": finding.batch and finding.batch.checkpoint_id,
                **finding.at._asdict(),
                "key": key and key[:KEY_SHOWN].decode("utf-8", "backslashreplace"),
                "found": finding.found,
                "expected": finding.expected,
                "to_do": finding.kind.value,
            }
            for finding, key in ((each, each.at.key) for each in report.findings)
        ],
    }
